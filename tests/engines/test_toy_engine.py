"""A third engine goes all the way from a configuration to a verdict by its one module, with nothing else of SpecWeb changed."""

from __future__ import annotations

import inspect
import shutil
import sys
from pathlib import Path

import pytest
from specagent import local
from specagent.config import Config, ModelEntry, RuntimeEntry
from specagent.filecache import FileCache
from specagent.inventory import Host, take_inventory
from speccore import engines
from speccore.engines import llamacpp
from speccore.errors import SpecError
from speccore.measurement import Interval, value_of
from speccore.spec import parse_spec
from speccore.workload import Item, Workload

from tests.agent.conftest import Ran, make_spec
from tests.engines import toy_engine

HERE = Path(__file__).parent
REPO = HERE.parents[1]
SPEC = {
    "runtime": {"engine": "toy"},
    "arms": [{"name": "off", "mode": "off"}, {"name": "guess-4", "mode": "ngram-simple", "draft_limit": 4}],
    "points": [{"workload": "numbers", "max_tokens": 24, "probes": 2}],
    "blocks": 3,
}


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only line that a third engine needs beside its module."""
    monkeypatch.setattr(engines, "_ENGINES", dict(engines._ENGINES))
    engines.register("toy", toy_engine)


@pytest.fixture
def toy(registered: None, tmp_path: Path) -> Host:
    interpreter = tmp_path / "python"
    interpreter.symlink_to(sys.executable)  # the kernel cuts a script's first line at a space, which a clone's path may hold
    program = tmp_path / "toy"
    program.write_text(f"#!{interpreter}\n{(HERE / 'toy_server.py').read_text()}")
    program.chmod(0o755)
    model = tmp_path / "target.gguf"
    shutil.copy(REPO / "demo" / "models" / "target.gguf", model)
    config = Config(
        state_dir=tmp_path / "state",
        runtimes=[RuntimeEntry(engine="toy", path=program)],
        models=[ModelEntry(alias="target", path=model)],
        threads=1,
    )
    host = take_inventory(config, FileCache(config.state_dir / "files.json"))
    assert host.inventory.problems == []
    return host


@pytest.fixture
def numbers() -> Workload:
    items = [Item(id=f"n{a}", prompt=f"{a} and then {a + 1}, and so on, up to {a + 79}:\n") for a in range(10, 30)]
    return Workload(name="numbers", version=1, title="Numbers", items=items[4:], warmup=items[:4])


def test_from_plan_to_verdict(toy: Host, numbers: Workload, tmp_path: Path) -> None:
    ran = Ran(toy, make_spec(**SPEC), numbers, tmp_path / "out")
    assert ran.run().outcome == "completed", [r.error for r, _ in ran.sink.done]
    (found,) = local.analyse(ran.offer, ran.workloads, ran.sink).comparisons
    assert isinstance(found.speedup, Interval)
    assert found.speedup.n_blocks == 3
    assert found.verdict.word in ("keep", "inconclusive", "disable", "invalid")  # which, is the machine's to say
    # 24 tokens: one, then rounds of up to 4 guesses and one token of its own; every fourth round loses its last guess
    assert value_of(found.acceptance_rate) == pytest.approx(18 / 20)
    assert value_of(found.tokens_per_target_pass) == pytest.approx(23 / 5)
    checks = {c.name: c for c in found.checks}
    assert checks["counts agree"].state == "passed"
    assert checks["same comparison key"].state == "passed"
    assert checks["no cache hits"].state == "not checked"
    assert checks["evidence whole"].state == "passed"


def test_its_build_is_known_by_its_files(toy: Host, tmp_path: Path) -> None:
    (runtime,) = toy.inventory.runtimes
    assert (runtime.engine, runtime.version, runtime.capabilities.spec_types) == ("toy", "toy 0.3", ["guess"])
    assert set(runtime.manifest) == {"toy", "interpreter"}
    assert toy.inventory.allowed_flags[-1] == "--shout"


def test_what_it_can_not_do_is_refused_in_its_own_words(toy: Host, numbers: Workload) -> None:
    arms = [{"name": "off", "mode": "off"}, {"name": "d", "mode": "draft", "draft_model": "target"}]
    with pytest.raises(SpecError, match="arm 'd': the toy has no mode draft"):
        local.make_offer(make_spec(**SPEC | {"arms": arms}), toy, {"numbers": numbers})


def test_an_engine_that_nobody_registered_is_refused_by_name() -> None:
    spec, problems = parse_spec({"name": "x", "target": {"model": "t"}} | SPEC)
    assert spec is None
    assert [(p.field, p.message) for p in problems] == [("runtime.engine", "unknown engine 'toy'; known: llama-server, vllm")]


@pytest.mark.parametrize("name", [*engines.names(), "toy"])
def test_all_engines_have_one_interface(name: str, registered: None) -> None:
    """Every name, and functions that take the same."""
    module = engines.engine(name)
    assert {n for n in llamacpp.__all__ if not hasattr(module, n)} == set()
    for asked in llamacpp.__all__:
        ours, theirs = getattr(llamacpp, asked), getattr(module, asked)
        assert callable(ours) == callable(theirs), asked
        if inspect.isfunction(ours) and theirs is not getattr(toy_engine, "_can_not", None):
            assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters), asked

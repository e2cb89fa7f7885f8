"""What can run where: each mode on each build with a target, or what is in the way, told from an inventory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from speccore import oddities
from speccore.engines import engine
from speccore.inventory import BlockShape, Device, HostInventory, MemoryShape, ModelInfo, RuntimeInfo
from speccore.offered import offered
from speccore.possible import OnBuild, possible

LOGS = Path(__file__).parents[1] / "logs" / "llamacpp"
GIB = 2**30


def build(help_file: str = "b11434.help.txt", **changes: Any) -> RuntimeInfo:
    can = engine("llama-server").capabilities((LOGS / help_file).read_text())
    data = {"engine": "llama-server", "version": "b1", "backend": "cuda", "manifest_hash": "a" * 64, "executable": "/x"}
    return RuntimeInfo(**(data | changes), capabilities=can)


def model(alias: str, gib: float, **changes: Any) -> ModelInfo:
    shape = MemoryShape(blocks=[BlockShape(weights=int(gib * GIB / 4), k=64, v=64)] * 4, embedding_bytes=0, other_bytes=0, width=64)
    data: dict[str, Any] = {
        "alias": alias,
        "manifest_hash": (alias.encode().hex() * 64)[:64],
        "path": f"/m/{alias}",
        "size_bytes": int(gib * GIB),
        "vocab_size": 1000,
        "tokenizer_hash": "t",
        "context_length": 8192,
        "n_layers": 4,
        "memory": shape,
    }
    return ModelInfo(**(data | changes))


def host(*models: ModelInfo, runtimes: list[RuntimeInfo] | None = None, gib: int = 8) -> HostInventory:
    return HostInventory(
        agent_version="1",
        hostname="h",
        os={},
        boot_id="b",
        cpu_model="c",
        n_cores=4,
        memory_bytes=64 * GIB,
        devices=[Device(uuid="g", kind="gpu", name="card", memory_bytes=gib * GIB)],
        runtimes=[build()] if runtimes is None else runtimes,
        models=list(models),
    )


def only(found: list[OnBuild]) -> OnBuild:
    (one,) = found
    return one


def why(found: OnBuild) -> dict[str, str]:
    return {m.mode: m.why_not for m in found.cannot}


def test_a_target_alone_can_do_without_a_helper_what_needs_none() -> None:
    target = model("t", 2)
    found = only(possible(host(target), target))
    assert {"off", "ngram-simple", "ngram-mod"} <= {m.mode for m in found.can}
    assert why(found)["draft"] == "no smaller model there that could draft for it"
    assert why(found)["mtp"] == "t has no head for mtp"
    assert next(m for m in found.cannot if m.mode == "mtp").remedy


def test_helpers_are_named_that_fit_and_the_others_are_not() -> None:
    target = model("t", 2)
    others = [model(f"d{i}", 0.1 + i / 100) for i in range(6)]
    odd = model("odd", 0.05, vocab_size=50_000)
    found = only(possible(host(target, *others, odd, model("larger", 3)), target))
    (draft,) = [m for m in found.can if m.mode == "draft"]
    assert (draft.helpers, draft.n_helpers) == (["d0", "d1", "d2", "d3"], 6)
    alone = only(possible(host(target, odd), target))
    assert why(alone)["draft"].startswith("no model there can draft for it: odd can't draft for t: it knows 50,000 tokens")


def test_a_flag_that_the_build_lacks_is_named() -> None:
    target = model("t", 2, has_mtp=True)
    found = only(possible(host(target, runtimes=[build("handmade-draft-flag.help.txt")]), target))
    assert why(found)["mtp"] == "needs --spec-type draft-mtp, which this build doesn't have"
    assert "mtp" in {m.mode for m in only(possible(host(target), target)).can}


def test_what_the_memory_is_too_small_for_is_told_by_arm() -> None:
    target = model("t", 6)
    found = only(possible(host(target, model("d", 3)), target))
    assert "off" in {m.mode for m in found.can}
    assert "needs about" in why(found)["draft"]
    assert "of 8 GiB of GPU memory at 4,096 tokens" in why(found)["draft"]
    none = only(possible(host(target, gib=4), target))
    assert "of 4 GiB of GPU memory" in none.none
    assert none.can == []


def test_without_a_shape_the_files_alone_count_against_it() -> None:
    target = model("t", 6, memory=None)
    assert only(possible(host(target), target)).none == ""
    assert only(possible(host(target, gib=4), target)).none == "its files have 6 GiB, GPU memory 4 GiB"


def test_a_model_that_the_engine_can_not_read_runs_nothing_there() -> None:
    target = model("t", 2, format="hf")
    assert only(possible(host(target), target)).none.startswith("llama-server reads a GGUF file")


def test_servers_that_stand_already_and_unknown_engines_promise_nothing() -> None:
    target = model("t", 2)
    builds = [build(kind="attached", servers={"off": "http://x"}, executable=""), build(engine="of-2031")]
    found = only(possible(host(target, runtimes=builds), target))
    assert found.none == "of-2031 is no engine that this release knows"


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ("libggml-cpu.so.0 is built for amx_int8, which this processor doesn't have: it may crash (SIGILL)", "for this processor"),
        ("none of its processor libraries (a, b) is for this processor", "for this processor"),
        ("crashes (SIGSEGV) at --version", "by hand"),
        ("prints nothing at --version: only its hash tells it from another build", "hash"),
        ("takes libggml-base.so.0 from /other although there is one beside the program", "LD_LIBRARY_PATH"),
        ("vllm 0.32.0 is not as it was installed: x.py", "--force-reinstall"),
        ("identified by what the servers say of themselves and by no file", "under runtimes"),
        ("something that a later agent finds odd", "nothing else stands in its way"),
    ],
)
def test_each_oddity_has_a_remedy(odd: str, words: str) -> None:
    assert words in oddities.remedy(odd)


def test_only_the_fear_of_a_crash_is_disproved_by_jobs_that_ran() -> None:
    assert oddities.is_disproved_by_running("x.so is built for amx_int8, which this processor doesn't have: it may crash (SIGILL)")
    assert oddities.is_disproved_by_running("none of its processor libraries (a, b) is for this processor")
    for odd in ("crashes (SIGILL: an instruction that this processor doesn't have) at --version", "prints nothing at --version"):
        assert not oddities.is_disproved_by_running(odd)


def test_builds_alike_promise_the_same_and_each_other_build_its_own() -> None:
    found = build()
    assert offered(found) is offered(build(executable="/elsewhere/llama-server", version="9.9"))
    without = found.capabilities.model_copy(update={"spec_types": [], "dialect": "none"})
    assert "draft" in offered(found).modes
    assert "draft" not in offered(found.model_copy(update={"capabilities": without})).modes
    assert offered(found.model_copy(update={"kind": "attached"})).modes == []

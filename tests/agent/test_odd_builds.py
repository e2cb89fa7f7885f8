"""What looking at an engine build finds odd, and what makes it one that can't be used: fake builds, and the real one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from specagent import probing
from specagent.config import Config, RuntimeEntry
from specagent.filecache import FileCache
from specagent.inventory import take_inventory
from specagent.runtimes import RuntimeBroken, read_runtime
from speccore.inventory import RuntimeInfo

from tests.agent.fake_elf import Reply, write_program

LOGS = Path(__file__).parents[1] / "logs" / "llamacpp"
HELP = (LOGS / "b10434.help.txt").read_text()
DRAFT_FLAG_HELP = (LOGS / "handmade-draft-flag.help.txt").read_text()
BARE_HELP = "--host HOST\n--port PORT  where to listen\n-m, --model FNAME  model\n"
GOOD = {"v": Reply("version: 10434 (7e4c0a9)\n"), "h": Reply(HELP), "l": Reply("Available devices:\n")}


def looked_at(tmp_path: Path, **changes: Reply) -> RuntimeInfo:
    path = write_program(tmp_path / "llama-server", GOOD | changes)
    return read_runtime(RuntimeEntry(path=path), FileCache(tmp_path / "cache.json")).info


def test_a_build_with_nothing_odd(tmp_path: Path) -> None:
    info = looked_at(tmp_path)
    assert (info.version, info.source_commit, info.backend, info.oddities) == ("10434 (7e4c0a9)", "7e4c0a9", "cpu", [])
    assert "draft-simple" in info.capabilities.spec_types


@pytest.mark.parametrize(
    ("reply", "odd", "version"),
    [
        (Reply("", "sigill"), "crashes (SIGILL: an instruction that this processor doesn't have) at --version", ""),
        (Reply("version: 7\n", "sigsegv"), "crashes (SIGSEGV) at --version", ""),
        (Reply("unknown argument\n", 1), "ends with 1 (unknown argument) at --version", ""),
        (Reply(" \n"), "prints nothing at --version: only its hash tells it from another build", ""),
        (Reply("version: 1 (7e4c0a9)\n"), "says build 1 or 0, as one does that was made without its history", "1 (7e4c0a9)"),
        (Reply("0.1.0-dev (build 1, commit 7e4c0a9)\n"), "says build 1 or 0", "0.1.0-dev (build 1, commit 7e4c0a9)"),
    ],
)
def test_what_goes_wrong_at_the_version_alone_is_odd(tmp_path: Path, reply: Reply, odd: str, version: str) -> None:
    info = looked_at(tmp_path, v=reply)
    (told,) = info.oddities
    assert told.startswith(odd)
    assert info.version == version
    assert info.capabilities.dialect == "spec-type"


@pytest.mark.parametrize(("text", "dialect", "odd"), [(DRAFT_FLAG_HELP, "draft-flag", "older one"), (BARE_HELP, "none", "only baselines")])
def test_a_help_without_spec_type_is_odd(tmp_path: Path, text: str, dialect: str, odd: str) -> None:
    info = looked_at(tmp_path, h=Reply(text))
    assert info.capabilities.dialect == dialect
    (told,) = info.oddities
    assert told.startswith("its --help lists no --spec-type")
    assert odd in told


def test_a_crash_while_devices_are_listed_is_odd(tmp_path: Path) -> None:
    info = looked_at(tmp_path, l=Reply("Available devices:\n  CUDA0: A card\n", "sigsegv"))
    assert info.oddities == ["crashes (SIGSEGV) at --list-devices"]
    assert info.backend == "cuda"


@pytest.mark.parametrize(
    ("reply", "why", "remedy"),
    [
        (Reply("", "sigill"), "crashes (SIGILL: an instruction that this processor doesn't have) at --help", "a build for this processor"),
        (Reply(HELP, "sigsegv"), "crashes (SIGSEGV) at --help", "Run it by hand"),
        (Reply("no such option\n", 2), "ends with 2 (no such option) at --help", "Name the engine's own executable"),
        (Reply("starting …\n", "hang"), "doesn't end within 0.5 s at --help", "goes on when asked for its help"),
        (Reply("usage: something\n"), "is no llama-server: its --help lists no --model and no --port", "Name the llama-server executable"),
    ],
)
def test_a_build_whose_help_can_t_be_had_can_t_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Reply, why: str, remedy: str
) -> None:
    monkeypatch.setattr(probing, "ASK_TIMEOUT_S", 0.5)
    with pytest.raises(RuntimeBroken) as caught:
        looked_at(tmp_path, h=reply)
    assert str(caught.value) == f"{tmp_path / 'llama-server'} {why}"
    assert remedy in caught.value.remedy


def test_a_broken_build_stands_in_the_inventory_with_why_and_the_others_are_offered(
    tmp_path: Path, config: Config, llama_server: Path
) -> None:
    broken = write_program(tmp_path / "crashing", GOOD | {"h": Reply("", "sigsegv")})
    entries = [RuntimeEntry(path=broken), RuntimeEntry(path=llama_server)]
    told = take_inventory(config.model_copy(update={"runtimes": entries}), FileCache(tmp_path / "cache.json")).inventory
    assert [r.executable for r in told.runtimes] == [str(llama_server)]
    (build,) = told.broken_runtimes
    assert build.path == str(broken)
    assert build.why == f"{broken} crashes (SIGSEGV) at --help"
    assert build.remedy
    assert told.problems == []


# --- the real build ---


@pytest.fixture
def processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the kernel tell of a processor with these instruction sets."""

    def has(flags: str) -> None:
        path = tmp_path / "cpuinfo"
        path.write_text(f"processor\t: 0\nmodel name\t: A processor\nflags\t\t: fpu {flags}\n\nprocessor\t: 1\nflags\t\t: fpu {flags}\n")
        monkeypatch.setattr(probing, "_CPUINFO", path)

    return has


def test_instruction_sets_that_the_processor_lacks_are_named(tmp_path: Path, llama_server: Path, processor: Any) -> None:
    library = llama_server.with_name("libggml-cpu.so.0")
    needed = probing.compiled_for(library, {"LD_LIBRARY_PATH": str(library.parent)})
    assert needed
    assert {"ssse3", "avx2"} <= set(needed)
    every = " ".join(name for names in probing.INSTRUCTION_SETS.values() for name in names)
    cache = FileCache(tmp_path / "cache.json")
    processor(every)
    assert not any("SIGILL" in o for o in read_runtime(RuntimeEntry(path=llama_server), cache).info.oddities)
    processor(every.replace(" avx2 ", " "))
    odd = [o for o in read_runtime(RuntimeEntry(path=llama_server), cache).info.oddities if "SIGILL" in o]
    assert odd == ["libggml-cpu.so.0 is built for avx2, which this processor doesn't have: it may crash (SIGILL)"]


def test_the_kernel_s_words_for_instruction_sets(processor: Any) -> None:
    processor("avx2 avx512f amx_int8 vme f16c fma3 hypervisor pni")
    assert probing.cpu_flags() == ["amx_int8", "avx2", "avx512f", "f16c", "pni"]


def test_of_several_processor_libraries_one_must_fit() -> None:
    needed = {"libggml-cpu-haswell.so": ["avx2"], "libggml-cpu-x64.so": []}
    assert probing.odd_processor(needed, ["pni"]) == []
    (odd,) = probing.odd_processor({"libggml-cpu-haswell.so": ["avx2"], "libggml-cpu-zen4.so": ["avx512"]}, ["pni"])
    assert odd == "none of its processor libraries (libggml-cpu-haswell.so, libggml-cpu-zen4.so) is for this processor"
    assert probing.odd_processor({"libggml-cpu.so.0": ["avx2"]}, []) == []  # the kernel doesn't say


def test_what_is_no_library_tells_nothing(tmp_path: Path) -> None:
    path = tmp_path / "libggml-cpu.so"
    path.write_bytes(b"no library")
    assert probing.compiled_for(path, {}) is None


def test_a_library_from_another_place_is_odd(tmp_path: Path, llama_server: Path) -> None:
    build, other = tmp_path / "build", tmp_path / "other"
    shutil.copytree(llama_server.parent, build)
    other.mkdir()
    shutil.copy(build / "libggml-base.so.0", other)
    entry = RuntimeEntry(path=build / "llama-server", env={"LD_LIBRARY_PATH": f"{other}:{build}"})
    odd = read_runtime(entry, FileCache(tmp_path / "cache.json")).info.oddities
    assert f"takes libggml-base.so.0 from {other} although there is one beside the program" in odd

"""What asking an engine build for its version and help brings to light: text, how the program ended, and what is odd about it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from speccore.inventory import Capabilities

ASK_TIMEOUT_S = 60.0
#: Of what a program prints no more is read: a help has some hundred kilobytes.
MOST_BYTES = 8 << 20
_CPUINFO = Path("/proc/cpuinfo")
#: Instruction sets that llama.cpp's processor library is compiled for, by the suffix of the function that tells, with the names
#: that the kernel has for them. Of several names one is enough.
INSTRUCTION_SETS: dict[str, tuple[str, ...]] = {
    "sse3": ("pni",),
    "ssse3": ("ssse3",),
    "avx": ("avx",),
    "avx_vnni": ("avx_vnni",),
    "avx2": ("avx2",),
    "bmi2": ("bmi2",),
    "f16c": ("f16c",),
    "fma": ("fma",),
    "avx512": ("avx512f",),
    "avx512_vbmi": ("avx512vbmi",),
    "avx512_vnni": ("avx512_vnni",),
    "avx512_bf16": ("avx512_bf16",),
    "amx_int8": ("amx_int8",),
    "neon": ("asimd", "neon"),
    "arm_fma": ("asimd", "neon"),
    "fp16_va": ("asimdhp", "fphp"),
    "dotprod": ("asimddp",),
    "matmul_int8": ("i8mm",),
    "sve": ("sve",),
    "sme": ("sme",),
}
_TELLS = re.compile(r"^(sse|ssse|pni|avx|amx|f16c|fma$|bmi|asimd|neon|fphp|i8mm|sve|sme)")
#: Asks a library in a process of its own, which may crash on what the library was compiled for.
_ASK_LIBRARY = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
asked = [getattr(library, "ggml_cpu_has_" + name, None) for name in sys.argv[2:]]
print(" ".join(name for name, ask in zip(sys.argv[2:], asked) if ask and ask()))
"""
#: llama.cpp loads the best of these that the processor can run.
_VARIANT = re.compile(r"^libggml-cpu-[a-z0-9_]+\.so$")


class RuntimeBroken(ValueError):
    """A build that can't be used; the message says why, ``remedy`` what its owner can do."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy or "Mend it, or take the entry out of the agent's configuration, and start the agent again."


@dataclass(frozen=True)
class Answer:
    """``how`` is empty for a program that ended with 0, else a clause such as ``crashes (SIGILL: …)``; ``text`` is what it printed."""

    text: str
    how: str = ""


def ask(executable: Path, words: str | Sequence[str], env: Mapping[str, str], timeout_s: float | None = None) -> Answer:
    """Runs the program with one flag or several words. It and its children are gone when this returns."""
    limit = ASK_TIMEOUT_S if timeout_s is None else timeout_s
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            asked = subprocess.Popen(
                [str(executable), *([words] if isinstance(words, str) else words)],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except OSError as error:
            return Answer("", f"can't be started: {error.strerror or error}")
        try:
            asked.wait(limit)
            late = False
        except subprocess.TimeoutExpired:
            late = True
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(asked.pid, signal.SIGKILL)  # and what it has forked
            asked.wait()
        printed, complained = _read(out), _read(err)
    text = printed if printed.strip() else complained
    if late:
        return Answer(text, f"doesn't end within {limit:g} s")
    return Answer(text, ended(asked.returncode, complained or printed))


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MOST_BYTES).decode("utf-8", "replace")


def ended(returncode: int, said: str) -> str:
    """How a program ended, as a clause; empty if it ended well."""
    if returncode == 0:
        return ""
    if returncode < 0:
        try:
            name = signal.Signals(-returncode).name
        except ValueError:
            name = f"signal {-returncode}"
        meaning = ": an instruction that this processor doesn't have" if name == "SIGILL" else ""
        return f"crashes ({name}{meaning})"
    last = [line.strip() for line in said.splitlines() if line.strip()][-1:] or ["nothing printed"]
    return f"ends with {returncode} ({last[0][:300]})"


# --- what is odd ---


def odd_version(answer: Answer) -> list[str]:
    """Of the answer to ``--version``."""
    if answer.how:
        return [f"{answer.how} at --version"]
    if not answer.text.strip():
        return ["prints nothing at --version: only its hash tells it from another build"]
    if re.search(r"\bbuild:? [01]\b|^version: [01]\b", answer.text, re.MULTILINE):
        return ["says build 1 or 0, as one does that was made without its history: the number tells nothing, commit and hash do"]
    return []


def odd_help(capabilities: Capabilities) -> list[str]:
    """Of llama-server's help."""
    if capabilities.spec_types:
        return []
    if capabilities.dialect == "draft-flag":
        return ["its --help lists no --spec-type: it is an older one, where a draft model alone switches speculation on"]
    # a dialect of another engine is none of these
    return ["its --help lists no --spec-type and no draft model: only baselines run on it"] if capabilities.dialect == "none" else []


def odd_libraries(executable: Path, libraries: Mapping[str, Path]) -> list[str]:
    """Engine libraries that the loader takes from another place than the rest. ``libraries``: by name, the engine's own only."""
    home = executable.resolve().parent
    strayed = [(name, path) for name, path in libraries.items() if path.parent.resolve() != home and (home / name).exists()]
    found = [f"takes {name} from {path.parent} although there is one beside the program" for name, path in strayed]
    folders = sorted({str(path.parent.resolve()) for path in libraries.values()})
    if not found and len(folders) > 1:
        found = [f"its libraries come from {len(folders)} places: {', '.join(folders)}"]
    return found


def cpu_flags() -> list[str]:
    """The instruction sets of this processor that engines are built for, by the kernel's names; empty where it doesn't say."""
    try:
        told = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", _CPUINFO.read_text(), re.MULTILINE)
    except OSError:
        return []
    return sorted(flag for flag in set(told[1].split()) if _TELLS.match(flag)) if told else []


def compiled_for(library: Path, env: Mapping[str, str]) -> list[str] | None:
    """What llama.cpp's processor library was compiled for, by its own word; None if it can't be asked."""
    try:
        asked = subprocess.run(
            [sys.executable, "-I", "-c", _ASK_LIBRARY, str(library), *INSTRUCTION_SETS],
            env=dict(env),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.split() if asked.returncode == 0 else None


def lacking(needed: Collection[str], there: Collection[str]) -> list[str]:
    """Of what a library was compiled for, what the processor doesn't have; nothing where the kernel doesn't say what it has."""
    return [name for name in needed if there and name in INSTRUCTION_SETS and not set(INSTRUCTION_SETS[name]) & set(there)]


def odd_processor(needed: Mapping[str, Collection[str]], there: Collection[str]) -> list[str]:
    """``needed``: what each of the build's processor libraries was compiled for, by its name; ``there``: :func:`cpu_flags`."""
    missing = {name: lacking(sets, there) for name, sets in needed.items()}
    variants = [name for name in missing if _VARIANT.match(name)]
    found = [_unfit(name, sets) for name, sets in missing.items() if sets and name not in variants]
    if variants and all(missing[name] for name in variants):
        found.append(f"none of its processor libraries ({', '.join(variants)}) is for this processor")
    return found


def _unfit(name: str, sets: list[str]) -> str:
    return f"{name} is built for {', '.join(sets)}, which this processor doesn't have: it may crash (SIGILL)"


def broken_help(executable: Path, answer: Answer) -> RuntimeBroken | None:
    """Why a program whose help can't be had is no build that can be used."""
    if not answer.how:
        return None
    if "SIGILL" in answer.how:
        remedy = "Take a build for this processor: one for x86-64 in general, or with all variants of its processor library."
    elif answer.how.startswith("crashes"):
        remedy = "Run it by hand to see why, install it anew or take another build, and start the agent again."
    elif answer.how.startswith("doesn't end"):
        remedy = "Name the engine's own executable: this one goes on when asked for its help. Run it by hand to see what it does."
    else:
        remedy = "Name the engine's own executable, and see by hand whether it runs."
    return RuntimeBroken(f"{executable} {answer.how} at --help", remedy)

"""Engine builds on this machine: which files make one, what it can do, and which backend it runs on."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from speccore import engines
from speccore.canonical import manifest_hash
from speccore.inventory import RuntimeInfo

from .config import Config, RuntimeEntry
from .filecache import FileCache

_ASK_TIMEOUT_S = 60.0
#: Where the distribution's own libraries live; they are the machine's and no part of an engine build.
_SYSTEM_FOLDERS = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/local/cuda")
_ENGINE_LIBRARY = re.compile(r"^lib(llama|ggml|mtmd)[a-z0-9_-]*\.(so|dylib)")
#: Without these a program is none of the engine's builds.
_NEEDED = {"llama-server": ("--model", "--port"), "vllm": ()}
_BACKEND_LIBRARY = re.compile(r"^libggml-[a-z0-9_-]+\.so$")


@dataclass(frozen=True)
class Runtime:
    """A build with what must be set in its environment (the environment never leaves the host by inventory).

    ``files``: where each file of its manifest lies.
    """

    info: RuntimeInfo
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)


class RuntimeBroken(ValueError):
    """The executable can't be used; the message says why."""


def configured_runtimes(config: Config) -> list[RuntimeEntry]:
    """The owner's list; else the executable that ``LLAMA_SERVER`` names, else llama-server from the PATH."""
    if config.runtimes:
        return list(config.runtimes)
    found = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")
    return [RuntimeEntry(path=Path(found).absolute())] if found else []


def read_runtime(entry: RuntimeEntry, cache: FileCache) -> Runtime:
    """Looks at one build. Raises :class:`RuntimeBroken`."""
    assert entry.path
    if not entry.path.is_file() or not os.access(entry.path, os.X_OK):
        raise RuntimeBroken(f"{entry.path} is no executable file")
    if platform.system() == "Linux" and not _is_elf(entry.path):
        # a wrapper's hash would say nothing about the engine behind it
        raise RuntimeBroken(f"{entry.path} is a script: name the llama-server executable itself, and put variables under env")
    env = dict(entry.env)
    libraries, missing = _libraries(entry.path, env)
    if missing and "LD_LIBRARY_PATH" not in env:
        env["LD_LIBRARY_PATH"] = str(entry.path.parent)
        libraries, missing = _libraries(entry.path, env)
    if missing:
        raise RuntimeBroken(f"{entry.path} lacks the libraries {', '.join(missing)}{_library_remedy(missing)}")
    files = _files(entry.path, libraries)
    manifest = {name: cache.sha256(path) for name, path in files.items()}
    version = _ask(entry.path, env, "--version")
    help_text = _ask(entry.path, env, "--help")
    capabilities = engines.engine(entry.engine).capabilities(help_text)
    if lacking := [flag for flag in _NEEDED[entry.engine] if flag not in capabilities.flags]:
        raise RuntimeBroken(f"{entry.path} is no {entry.engine}: its --help lists no {' and no '.join(lacking)}")
    lines = version.strip().splitlines()
    commit = re.search(r"commit:?\s+([0-9a-f]{7,40})|\(([0-9a-f]{7,40})\)", version)
    info = RuntimeInfo(
        engine=entry.engine,
        version=next((line for line in lines if line.startswith("version")), lines[0] if lines else "").removeprefix("version:").strip(),
        source_commit=(commit[1] or commit[2]) if commit else "",
        backend=_backend(entry.path, env),
        manifest_hash=manifest_hash(manifest),
        manifest=manifest,
        executable=str(entry.path),
        capabilities=capabilities,
    )
    return Runtime(info, env, files)


def _files(executable: Path, libraries: Mapping[str, Path]) -> dict[str, Path]:
    """By name: the executable, its own libraries, and the loadable backends that lie beside it."""
    files = {executable.name: executable, **libraries}
    stems = {name.split(".so")[0] for name in libraries}
    folders = {executable.resolve().parent} | {p.parent for n, p in libraries.items() if n.startswith("libggml")}
    for folder in sorted(folders):
        for path in sorted(folder.glob("libggml-*.so")):
            if _BACKEND_LIBRARY.match(path.name) and path.name.split(".so")[0] not in stems:
                files[path.name] = path
    return files


def _libraries(executable: Path, env: Mapping[str, str]) -> tuple[dict[str, Path], list[str]]:
    """What the dynamic loader resolves: the build's own libraries by name, and the names that it doesn't find.

    Own are those from anywhere but the system's library folders, and engine libraries wherever they lie
    (a distribution's package puts them into the system's folders).
    """
    if shutil.which("ldd") is None:
        return {p.name: p for p in sorted(executable.parent.iterdir()) if _ENGINE_LIBRARY.match(p.name)}, []
    answer = subprocess.run(["ldd", str(executable)], env=engine_environment(env), capture_output=True, text=True, timeout=_ASK_TIMEOUT_S)
    if answer.returncode != 0:  # a static build has no libraries
        return {}, []
    own: dict[str, Path] = {}
    missing = []
    for line in answer.stdout.splitlines():
        m = re.match(r"\s*(\S+) => (not found|.+?)(?: \(0x[0-9a-f]+\))?$", line)  # a path may hold spaces
        if not m:
            continue
        if m[2] == "not found":
            missing.append(m[1])
        elif not m[2].startswith(_SYSTEM_FOLDERS) or _ENGINE_LIBRARY.match(m[1]):
            own[m[1]] = Path(m[2])
    return own, missing


def _is_elf(path: Path) -> bool:
    with path.open("rb") as f:
        return f.read(4) == b"\x7fELF"


def _library_remedy(missing: list[str]) -> str:
    if any(name.startswith("libgomp") for name in missing):
        return " (Debian and Ubuntu: apt-get install libgomp1)"
    return ""


def _backend(executable: Path, env: Mapping[str, str]) -> str:
    """The backend of the first device that the build finds, e.g. "vulkan"; "cpu" if it finds none."""
    listed = _ask(executable, env, "--list-devices", strict=False)
    device = re.search(r"^\s+([A-Za-z]+)\d+:", listed, re.MULTILINE)
    return device[1].lower() if device else "cpu"


def _ask(executable: Path, env: Mapping[str, str], flag: str, *, strict: bool = True) -> str:
    try:
        answer = subprocess.run(
            [str(executable), flag],
            env=engine_environment(env),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeBroken(f"{executable} {flag} failed: {error}") from error
    text = answer.stdout if answer.stdout.strip() else answer.stderr
    if strict and answer.returncode != 0:
        last = (answer.stderr or answer.stdout).strip().splitlines()[-1:] or ["nothing printed"]
        raise RuntimeBroken(f"{executable} {flag} ended with {answer.returncode}: {last[0]}")
    return text


def engine_environment(env: Mapping[str, str]) -> dict[str, str]:
    """What an engine sees: PATH, HOME and locale of the agent, and what the owner set; nothing else of the agent's."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR")}
    return kept | dict(env)

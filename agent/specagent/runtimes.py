"""Engine builds on this machine: which files make one, what it can do, and which backend it runs on."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from speccore import engines
from speccore.canonical import manifest_hash
from speccore.inventory import ModelInfo, RuntimeInfo

from . import attached, container_runtime, script_runtime, vllm_runtime
from .config import Config, RuntimeEntry
from .containers import Place
from .filecache import FileCache
from .probing import (
    Answer,
    ask,
    broken_help,
    compiled_for,
    cpu_flags,
    odd_help,
    odd_libraries,
    odd_processor,
    odd_version,
)
from .probing import RuntimeBroken as RuntimeBroken

_LDD_TIMEOUT_S = 60.0
#: Where the distribution's own libraries live; they are the machine's and no part of an engine build.
_SYSTEM_FOLDERS = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/local/cuda")
_ENGINE_LIBRARY = re.compile(r"^lib(llama|ggml|mtmd)[a-z0-9_-]*\.(so|dylib)")
_BACKEND_LIBRARY = re.compile(r"^libggml-[a-z0-9_-]+\.so$")
_PROCESSOR_LIBRARY = re.compile(r"^libggml-cpu(-[a-z0-9_]+)?\.(so|dylib)")


@dataclass(frozen=True)
class Runtime:
    """A build with what must be set in its environment (the environment never leaves the host by inventory).

    ``files``: where each file of its manifest lies.
    """

    info: RuntimeInfo
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    models: Sequence[ModelInfo] = ()  # that only its servers tell of
    manifest_now: Callable[[FileCache], Mapping[str, str]] | None = None  # of a build whose manifest is no plain list of files
    architectures: frozenset[str] = frozenset()  # of models that it has code of its own for; empty: that is not known
    container: Place | None = None  # of one in an image


def configured_runtimes(config: Config) -> list[RuntimeEntry]:
    """The owner's list; else the executable that ``LLAMA_SERVER`` names, else llama-server from the PATH."""
    if config.runtimes:
        return list(config.runtimes)
    found = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")
    return [RuntimeEntry(path=Path(found).absolute())] if found else []


def read_runtime(entry: RuntimeEntry, cache: FileCache) -> Runtime:
    """Looks at one build. Raises :class:`RuntimeBroken`."""
    check_environment(entry)
    if entry.kind == "attached":
        try:
            looked = attached.look(entry)
        except attached.NotSeen as error:
            raise RuntimeBroken(
                str(error), "Start that server, or correct its address under servers in the agent's configuration."
            ) from error
        return Runtime(looked.info, models=looked.models)
    if entry.kind == "container":
        image = container_runtime.look(entry, cache)
        return Runtime(image.info, entry.env, container=image.place)
    assert entry.path
    if not entry.path.is_file() or not os.access(entry.path, os.X_OK):
        raise RuntimeBroken(f"{entry.path} is no executable file")
    asked: engines.Asked = engines.engine(entry.engine).ASKED
    if asked.packaged == "python":
        return _vllm(entry, cache)
    if asked.packaged == "script":
        info, files = script_runtime.look(entry.engine, entry.path, engine_environment(entry.env), cache)
        return Runtime(info, dict(entry.env), files)
    return _program(entry, entry.path, asked, cache)


def _program(entry: RuntimeEntry, executable: Path, asked: engines.Asked, cache: FileCache) -> Runtime:
    """Machine code with its libraries. Raises :class:`RuntimeBroken`."""
    if platform.system() == "Linux" and not _is_elf(executable):
        # a wrapper's hash would say nothing about the engine behind it
        raise RuntimeBroken(f"{executable} is a script: name the {asked.program} executable itself, and put variables under env")
    env = dict(entry.env)
    libraries, missing = _libraries(executable, env)
    if missing and "LD_LIBRARY_PATH" not in env:
        env["LD_LIBRARY_PATH"] = str(executable.parent)
        libraries, missing = _libraries(executable, env)
    if missing:
        raise RuntimeBroken(f"{executable} lacks the libraries {', '.join(missing)}{_library_remedy(missing)}")
    files = _files(executable, libraries)
    manifest = {name: cache.sha256(path) for name, path in files.items()}
    version = ask(executable, asked.version, engine_environment(env))
    help_text = ask(executable, asked.help, engine_environment(env))
    if broken := broken_help(executable, help_text):
        raise broken
    capabilities = engines.engine(entry.engine).capabilities(help_text.text)
    if lacking := [flag for flag in asked.needed if flag not in capabilities.flags]:
        remedy = f"Name the {entry.engine} executable itself in the agent's configuration."
        raise RuntimeBroken(f"{executable} is no {entry.engine}: its --help lists no {' and no '.join(lacking)}", remedy)
    words, commit = version_words("" if version.how else version.text)
    devices = ask(executable, asked.devices, engine_environment(env)) if asked.devices else Answer("")
    engines_own = {name: path for name, path in libraries.items() if _ENGINE_LIBRARY.match(name)}
    info = RuntimeInfo(
        engine=entry.engine,
        version=words,
        source_commit=commit,
        backend=_backend(devices.text),
        manifest_hash=manifest_hash(manifest),
        manifest=manifest,
        executable=str(executable),
        capabilities=capabilities,
        oddities=[
            *odd_version(version),
            *odd_help(capabilities),
            *([f"{devices.how} at --list-devices"] if devices.how.startswith(("crashes", "doesn't")) else []),
            *odd_libraries(executable, engines_own),
            *odd_processor(_compiled_for(files, env, cache), cpu_flags()),
        ],
    )
    return Runtime(info, env, files)


def check_environment(entry: RuntimeEntry) -> None:
    """Raises :class:`RuntimeBroken` for a variable that no owner's configuration may set for this engine."""
    never: Mapping[str, str] = engines.engine(entry.engine).NEVER_ENVIRONMENT
    for name in entry.env:
        if why := next((why for known, why in never.items() if fnmatchcase(name, known)), ""):
            raise RuntimeBroken(f"env: {name} {why}", f"Remove {name} from the env of this runtime in the agent's configuration.")


def _vllm(entry: RuntimeEntry, cache: FileCache) -> Runtime:
    assert entry.path
    try:
        found = vllm_runtime.look(entry.path, engine_environment(entry.env), cache)
    except vllm_runtime.NotUsable as error:
        raise RuntimeBroken(str(error)) from error
    # What a person installed for himself is no part of the identity, so the engine must not find it.
    env = {**entry.env, "PYTHONNOUSERSITE": "1"}
    return Runtime(found.info, env, manifest_now=found.manifest_now, architectures=found.architectures)


def version_words(text: str) -> tuple[str, str]:
    """What a build says of its version, in one line, and the source commit in it; each empty where it says none."""
    lines = text.strip().splitlines()
    commit = re.search(r"commit:?\s+([0-9a-f]{7,40})|\(([0-9a-f]{7,40})\)", text)
    line = next((line for line in lines if line.startswith("version")), lines[0] if lines else "")
    return line.removeprefix("version:").strip(), (commit[1] or commit[2]) if commit else ""


def _compiled_for(files: Mapping[str, Path], env: Mapping[str, str], cache: FileCache) -> dict[str, list[str]]:
    """Name of each processor library of a build → the instruction sets that it was compiled for, asked once for each file."""
    found = {}
    for name, path in files.items():
        if not _PROCESSOR_LIBRARY.match(name):
            continue
        known = cache.get(path, "compiled_for")
        if known is None and (known := compiled_for(path, engine_environment(env))) is not None:
            cache.put(path, "compiled_for", known)
        if known is not None:
            found[name] = known
    return found


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
    try:
        answer = subprocess.run(
            ["ldd", str(executable)], env=engine_environment(env), capture_output=True, text=True, timeout=_LDD_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise RuntimeBroken(f"ldd {executable} doesn't end within {_LDD_TIMEOUT_S:g} s") from None
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


def _backend(listed: str) -> str:
    """The backend of the first device that the build lists, e.g. "vulkan"; "cpu" if it lists none."""
    device = re.search(r"^\s+([A-Za-z]+)\d+:", listed, re.MULTILINE)
    return device[1].lower() if device else "cpu"


def engine_environment(env: Mapping[str, str]) -> dict[str, str]:
    """What an engine sees: PATH, HOME and locale of the agent, and what the owner set; nothing else of the agent's."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR")}
    return kept | dict(env)

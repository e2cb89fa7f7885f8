"""An engine that is one script: its file and the interpreter that its first line names are its build."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from speccore import engines
from speccore.canonical import manifest_hash
from speccore.inventory import RuntimeInfo

from .filecache import FileCache
from .probing import RuntimeBroken, ask, broken_help, odd_version


def look(engine: str, script: Path, env: Mapping[str, str], cache: FileCache) -> tuple[RuntimeInfo, dict[str, Path]]:
    """The build, and where each file of its manifest lies. Raises :class:`RuntimeBroken`."""
    module = engines.engine(engine)
    files = {script.name: script, "interpreter": _interpreter(script)}
    manifest = {name: cache.sha256(path) for name, path in files.items()}
    asked: engines.Asked = module.ASKED
    version, help_text = ask(script, asked.version, env), ask(script, asked.help, env)
    if broken := broken_help(script, help_text):
        raise broken
    capabilities = module.capabilities(help_text.text)
    if lacking := [flag for flag in asked.needed if flag not in capabilities.flags]:
        raise RuntimeBroken(f"{script} is no {engine}: its {' '.join(asked.help)} lists no {' and no '.join(lacking)}")
    said = version.text.strip().splitlines() if not version.how else []
    info = RuntimeInfo(
        engine=engine,
        version=said[0].strip() if said else "",
        backend="cpu",
        manifest_hash=manifest_hash(manifest),
        manifest=manifest,
        executable=str(script),
        capabilities=capabilities,
        oddities=[*odd_version(version), "of what it loads beside its own file nothing is part of its identity"],
    )
    return info, files


def _interpreter(script: Path) -> Path:
    """By the script's first line; one that is looked up along PATH says nothing for sure."""
    with script.open("rb") as f:
        line = f.readline(4096).decode("utf-8", "replace").strip()
    named = line.removeprefix("#!").split()
    if not line.startswith("#!") or not named or not Path(named[0]).is_file() or Path(named[0]).name == "env":
        raise RuntimeBroken(
            f"{script} names no interpreter by its path in its first line", "Begin it with #! and the interpreter's own path, not env's."
        )
    return Path(named[0]).resolve()

"""What a Python environment is made of: its interpreter and its distributions, each by the hash of its files as they are on the disk."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from speccore.canonical import sha256_of

from .filecache import FileCache

_ASK_TIMEOUT_S = 60.0
_FACT = "distribution"
#: Written by whoever installs, and other in each place where the same distribution lies.
_OF_THE_INSTALLATION = re.compile(r"\.dist-info/(RECORD|INSTALLER|REQUESTED|direct_url\.json|uv_[a-z_]+\.json)$|(^|/)__pycache__/|\.pyc$")
_EXEC_LINE = re.compile(r"^'''exec' (?P<quote>[\"']?)(?P<path>/[^\"'\n]+?)(?P=quote) \"\$0\"")
_ASK = """
import json, site, sys
print(json.dumps([sys.executable, sys.version.split()[0], *site.getsitepackages()]))
"""


class NoEnvironment(ValueError):
    """It can't be told which environment a script belongs to; the message says why."""


@dataclass(frozen=True)
class Environment:
    """Of one interpreter. ``folders``: where its distributions are installed; those of a person (user site) are none of it."""

    interpreter: Path
    python: str  # its version
    folders: list[Path]

    def distributions(self) -> dict[str, Path]:
        """``name version``: its RECORD. An installation without RECORD (a distribution's package, a checkout) is not among them."""
        found = {}
        for folder in self.folders:
            for record in sorted(folder.glob("*.dist-info/RECORD")):
                name, _, version = record.parent.name.removesuffix(".dist-info").rpartition("-")
                found[f"{name.replace('_', '-').lower()} {version}"] = record
        return found


@dataclass(frozen=True)
class Contents:
    """What an environment holds now. ``manifest``: name and version → hash; ``changed``: distribution → files that are not as installed."""

    manifest: dict[str, str]
    changed: dict[str, list[str]] = field(default_factory=dict)
    loose: list[str] = field(default_factory=list)  # code of no distribution


def environment_of(script: Path, env: Mapping[str, str]) -> Environment:
    """The environment of a console script, by the interpreter that its first lines name. Raises :class:`NoEnvironment`."""
    interpreter = _interpreter(script)
    try:
        # -I: what the interpreter's own folder holds, and nothing that a variable adds
        asked = [str(interpreter), "-I", "-c", _ASK]
        answer = subprocess.run(asked, env=dict(env), capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=True)
        executable, python, *folders = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise NoEnvironment(f"{script}: its interpreter {interpreter} does not run: {error}") from error
    return Environment(Path(executable), python, [Path(folder) for folder in dict.fromkeys(folders)])


def contents(environment: Environment, cache: FileCache) -> Contents:
    """Hashes every file of every distribution; those that the cache has seen with the same size and time are not read again.

    What lies in the environment by no distribution's word (a path file, a module) counts too. Raises OSError.
    """
    manifest = {f"python {environment.python}": cache.sha256(environment.interpreter.resolve())}
    changed: dict[str, list[str]] = {}
    listed: set[Path] = set()
    for name, record in environment.distributions().items():
        rows = list(_rows(record))
        listed |= {record.parents[1] / path for path, _ in rows if "/" not in path}
        manifest[name], differing = _digest(record, rows, cache)
        if differing:
            changed[name] = differing
    loose = {name: path for folder in environment.folders for name, path in _loose(folder, listed)}
    manifest |= {name: cache.sha256(path) for name, path in loose.items()}
    return Contents(manifest, changed, list(loose))


def _loose(folder: Path, listed: set[Path]) -> Iterator[tuple[str, Path]]:
    """What no RECORD lists: modules and path files, and distributions that were put there without one and may name plugins."""
    for path in sorted(folder.glob("*")):
        if path.suffix in (".py", ".pth", ".so", ".egg-link") and path not in listed:
            yield path.name, path
        elif path.suffix in (".dist-info", ".egg-info") and not (path / "RECORD").is_file():
            yield from ((f"{path.name}/{p.name}", p) for p in ([path] if path.is_file() else sorted(path.glob("*"))) if p.is_file())


def _interpreter(script: Path) -> Path:
    with script.open("rb") as f:
        head = f.read(4096).decode("utf-8", "replace").split("\n")
    if not head[0].startswith("#!"):
        raise NoEnvironment(f"{script} is no script of a Python environment: its first line names no interpreter")
    named = head[0][2:].strip()
    if named in ("/bin/sh", "/usr/bin/sh") and len(head) > 1 and (line := _EXEC_LINE.match(head[1])):
        named = line["path"]  # how installers write a path that is long or has spaces
    if not re.fullmatch(r"/.*/(python|pypy)[0-9.]*", named):
        raise NoEnvironment(f"{script} is no script of a Python environment: its first line names {named!r}")
    return Path(named)


def _rows(record: Path) -> Iterator[tuple[str, str]]:
    """(path under the folder of installation, hash as RECORD writes it) of each file that belongs to what is installed.

    Scripts outside the folder name the environment's own path in their first line and are left out, as are the files that an
    installer adds: the same distribution has one hash wherever it lies.
    """
    with record.open(newline="", encoding="utf-8") as f:
        for row in csv.reader(f):
            if row and not row[0].startswith(("../", "/")) and not _OF_THE_INSTALLATION.search(row[0]):
                yield row[0], row[1] if len(row) > 1 else ""


def _digest(record: Path, rows: list[tuple[str, str]], cache: FileCache) -> tuple[str, list[str]]:
    """A hash of all files as they are, and those of them that are not what RECORD says."""
    folder = record.parents[1]
    stamps = hashlib.sha256()
    for path, _ in rows:
        try:
            st = os.stat(folder / path)
            stamps.update(f"{path}\0{st.st_size}\0{st.st_mtime_ns}\0{st.st_ino}\n".encode())
        except OSError:
            stamps.update(f"{path}\0gone\n".encode())
    fingerprint = stamps.hexdigest()
    known = cache.get(record, _FACT)
    if isinstance(known, dict) and known.get("fingerprint") == fingerprint:
        return str(known["sha256"]), list(known["differing"])
    hashes, differing = {}, []
    for path, said in rows:
        digest = _sha256(folder / path, cache)
        hashes[path] = digest
        if digest != _as_hex(said):
            differing.append(path)
    found = sha256_of(hashes)
    cache.put(record, _FACT, {"fingerprint": fingerprint, "sha256": found, "differing": differing[:20]})
    return found, differing


def _sha256(path: Path, cache: FileCache) -> str:
    try:
        return cache.digest(path)
    except FileNotFoundError:
        return ""


def _as_hex(said: str) -> str:
    """``sha256=`` with URL-safe base64 as hexadecimal; another kind of hash says nothing."""
    kind, _, value = said.partition("=")
    try:
        return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex() if kind == "sha256" else ""
    except ValueError:
        return ""

"""A launch command as a shell, systemd and compose want it, each quoted by its own rules. No database access."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

from speccore.inventory import RuntimeInfo
from speccore.spec import Arm

#: Stands where a measured start had a port of its own.
PORT = "8080"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@")


@dataclass(frozen=True)
class Piece:
    """A stretch of a text: ``whole`` if it is a flag with its values, ``aside`` if that is there for measuring and may be left out."""

    text: str
    whole: bool = False
    aside: bool = False


@dataclass(frozen=True)
class Form:
    """The command in the shape that one kind of starter wants, ready to copy."""

    kind: str
    note: str
    pieces: list[Piece]


@dataclass(frozen=True)
class Setting:
    """What a command is bound to: the engine, the names of files, and what the engine found in its environment."""

    engine: str
    dialect: ModuleType
    runtime: RuntimeInfo | None
    files: Mapping[str, str]  # {target} and {executable}, as the command has them, → path
    drafts: Mapping[str, str]  # arm → path
    env: Mapping[str, str]


def pieces(
    command: Sequence[Sequence[str]], setting: Setting, quoted: Callable[[str], str], between: str, within: str = " "
) -> list[Piece]:
    found: list[Piece] = []
    for unit in command:
        found += [Piece(between)] if found else []
        found.append(Piece(within.join(map(quoted, unit)), whole=True, aside=unit[0] in setting.dialect.MEASURING_FLAGS))
    return found


def shell(command: Sequence[Sequence[str]], setting: Setting) -> Form:
    env = "".join(f"{name}={shlex.quote(value)} " for name, value in sorted(setting.env.items()))
    return Form("shell", "", [Piece(env), *pieces(command, setting, shlex.quote, " ")])


def systemd_word(text: str, *, expands: bool = True) -> str:
    """A word of a unit file. systemd reads ``%`` and, behind the executable of a command, ``$`` as its own."""
    text = text.replace("%", "%%")
    if expands:
        text = text.replace("$", "$$")
    if text and set(text) <= _PLAIN | {"%", "$"}:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def systemd(arm: Arm, command: Sequence[Sequence[str]], setting: Setting) -> Form:
    head = f"[Unit]\nDescription={setting.engine}, arm {arm.name.replace('%', '%%')}\n\n[Service]\n"
    head += "".join(f"Environment={systemd_word(f'{name}={value}', expands=False)}\n" for name, value in sorted(setting.env.items()))
    (executable,) = command[0]
    program = systemd_word(executable, expands=False)
    if not executable.isprintable() or set(executable) & set("\"'\\"):  # systemd starts no program with one of these in its path
        program = f"/usr/bin/env {systemd_word(executable)}"
    words = pieces(command[1:], setting, systemd_word, " \\\n  ")
    tail = "\nRestart=on-failure\n\n[Install]\nWantedBy=multi-user.target\n"
    note = "Set User= to an account that may read the model files; it is root's unit otherwise."
    return Form("systemd", note, [Piece(f"{head}ExecStart={program} \\\n  "), *words, Piece(tail)])


def compose_word(text: str) -> str:
    """A string of a compose file, which is YAML and reads ``$`` as its own."""
    return json.dumps(text, ensure_ascii=False).replace("$", "$$")


def compose(command: Sequence[Sequence[str]], folders: Sequence[str], setting: Setting) -> Form:
    """The image's own executable takes the place of the host's, so flags alone are given.

    The models' folders are mounted where the host has them: a split model is more files than the command names.
    """
    backend = setting.runtime.backend if setting.runtime else ""
    image = setting.dialect.IMAGES.get(backend) or setting.dialect.IMAGES[""]
    env = {name: value for name, value in setting.env.items() if name not in ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD")}
    own = [command[1][setting.dialect.IMAGE_ENTRY - 1 :], *command[2:]]  # the image says the words before
    flags = [["--host", "0.0.0.0"] if unit[0] == "--host" else unit for unit in own]  # noqa: S104  in a container
    head = f"services:\n  {setting.engine}:\n    image: {image}\n    restart: unless-stopped\n"
    head += f'    ports: ["127.0.0.1:{PORT}:{PORT}"]\n    volumes:\n'
    head += "".join(f"      - {{type: bind, source: {compose_word(f)}, target: {compose_word(f)}, read_only: true}}\n" for f in folders)
    if env:
        head += "    environment:\n" + "".join(f"      {compose_word(n)}: {compose_word(v)}\n" for n, v in sorted(env.items()))
    if backend == "cuda":
        head += "    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}\n"
    measured = f"{setting.runtime.version}" if setting.runtime else "the one under “held fixed”"
    note = (
        f"The image is another build than the measured one, {measured}: choose the tag of that build, or measure again. "
        "In the container it listens on all addresses, and only this machine's loopback leads there."
    )
    words = pieces(flags, setting, compose_word, ",\n      ", ", ")
    return Form("compose", note, [Piece(f"{head}    command: [\n      "), *words, Piece("\n    ]")])

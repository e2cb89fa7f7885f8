"""What to run from now on: the launch command of each recommended arm, for a shell, systemd and compose. No database access."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

from speccore.commandline import command_differences, units
from speccore.engines import engine
from speccore.errors import SpecError
from speccore.inventory import HostInventory, RuntimeInfo
from speccore.spec import Arm, ExperimentSpec

from specweb.experiments.models import Job

from .marks import mode_words
from .strips import Strip

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
class Recipe:
    """An arm with the kinds of work that it is for. ``gist`` holds what it adds to the baseline's command."""

    arm: str
    mode: str
    works: list[str]
    gist: list[str]
    forms: list[Form]
    asides: list[tuple[str, str]]  # flag for measuring, and what it is for
    drafters: str  # in words


@dataclass(frozen=True)
class TakeHome:
    recipes: list[Recipe]
    undecided: list[tuple[str, str]]  # work, and the verdict's word
    host: str  # whose paths stand in the commands; empty where placeholders do
    port: str = PORT


@dataclass(frozen=True)
class _Setting:
    """What a command is bound to: the engine, the names of files, and what the engine found in its environment."""

    engine: str
    dialect: ModuleType
    runtime: RuntimeInfo | None
    files: Mapping[str, str]  # {target} and {executable}, as the command has them, → path
    drafts: Mapping[str, str]  # arm → path
    env: Mapping[str, str]


def take_home(
    spec: ExperimentSpec, job: Job, strips: Sequence[Strip], inventory: HostInventory | None, env: Mapping[str, str], *, for_team: bool
) -> TakeHome | None:
    """One recipe for each arm that an answer recommends, the baseline where speculation is to be disabled; None without commands.

    ``inventory`` is the one that the job was frozen with. Who is not in the team gets placeholders for the host's paths, and no ``env``.
    """
    works: dict[str, list[str]] = {}
    undecided = []
    for strip in strips:
        arm = strip.arm if strip.word == "keep" else spec.baseline.name if strip.word == "disable" else ""
        if arm in job.commands:
            works.setdefault(arm, []).append(f"{strip.title}, {strip.detail}")
        else:
            undecided.append((f"{strip.title}, {strip.detail}", strip.word))
    if not job.commands or not strips or spec.runtime.attached:  # of servers that somebody else started no command is known
        return None
    try:
        dialect = engine(spec.runtime.engine)
    except SpecError:  # of another release
        return None
    setting = _setting(spec, dialect, job, inventory if for_team else None, env if for_team else {})
    added = {c.arm: [p.text for p in c.parts if p.added] for c in command_differences(spec, job.commands)}
    arms = {a.name: a for a in spec.arms}
    recipes = [_recipe(arms[name], for_, added[name], job.commands[name], setting) for name, for_ in works.items()]
    return TakeHome(recipes, undecided, job.host.name if for_team and inventory and job.host else "")


def _setting(spec: ExperimentSpec, dialect: ModuleType, job: Job, inventory: HostInventory | None, env: Mapping[str, str]) -> _Setting:
    runtimes = {r.manifest_hash: r for r in inventory.runtimes} if inventory else {}
    paths = {m.manifest_hash: m.path for m in inventory.models} if inventory else {}
    runtime = runtimes.get(job.runtime.manifest_hash) if job.runtime else None

    def path(digest: str, name: str) -> str:
        return paths.get(digest) or f"/path/to/{name}"

    return _Setting(
        engine=spec.runtime.engine,
        dialect=dialect,
        runtime=runtime,
        files={
            "{executable}": runtime.executable if runtime else f"/path/to/{spec.runtime.engine}",
            "{target}": path(job.target.manifest_hash if job.target else "", spec.target.model),
        },
        drafts={a.name: path(job.draft_hashes.get(a.name, ""), a.draft_model) for a in spec.arms if a.draft_model},
        env=env,
    )


def _recipe(arm: Arm, works: list[str], gist: list[str], symbolic: Sequence[str], setting: _Setting) -> Recipe:
    bound = {**setting.files, "{host}": "127.0.0.1", "{port}": PORT, "{draft}": setting.drafts.get(arm.name, "")}
    # The executable and the word after it are units of their own.
    command = units([bound.get(word) or _in_json(word, bound["{draft}"]) for word in symbolic])
    measuring: Mapping[str, str] = setting.dialect.MEASURING_FLAGS
    asides = [(unit[0], measuring[unit[0]]) for unit in command if unit[0] in measuring]
    models = [bound[name] for name in ("{target}", "{draft}") if any(name in word for word in symbolic)]
    folders = list(dict.fromkeys(path.rpartition("/")[0] or "/" for path in models))
    gist = [text.replace("{draft}", bound["{draft}"].rpartition("/")[2]) for text in gist]
    forms = [_shell(command, setting), _systemd(arm, command, setting), _compose(command, folders, setting)]
    return Recipe(arm.name, arm.mode, works, gist, forms, asides, mode_words(arm))


def _in_json(word: str, draft: str) -> str:
    """A word with the draft model's path in the place that stands for it inside of JSON."""
    return word.replace('"{draft}"', json.dumps(draft, ensure_ascii=False)) if word.startswith("{") else word


def _pieces(
    command: Sequence[Sequence[str]], setting: _Setting, quoted: Callable[[str], str], between: str, within: str = " "
) -> list[Piece]:
    found: list[Piece] = []
    for unit in command:
        found += [Piece(between)] if found else []
        found.append(Piece(within.join(map(quoted, unit)), whole=True, aside=unit[0] in setting.dialect.MEASURING_FLAGS))
    return found


def _shell(command: Sequence[Sequence[str]], setting: _Setting) -> Form:
    env = "".join(f"{name}={shlex.quote(value)} " for name, value in sorted(setting.env.items()))
    return Form("shell", "", [Piece(env), *_pieces(command, setting, shlex.quote, " ")])


def systemd_word(text: str, *, expands: bool = True) -> str:
    """A word of a unit file. systemd reads ``%`` and, behind the executable of a command, ``$`` as its own."""
    text = text.replace("%", "%%")
    if expands:
        text = text.replace("$", "$$")
    if text and set(text) <= _PLAIN | {"%", "$"}:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def _systemd(arm: Arm, command: Sequence[Sequence[str]], setting: _Setting) -> Form:
    head = f"[Unit]\nDescription={setting.engine}, arm {arm.name.replace('%', '%%')}\n\n[Service]\n"
    head += "".join(f"Environment={systemd_word(f'{name}={value}', expands=False)}\n" for name, value in sorted(setting.env.items()))
    (executable,) = command[0]
    pieces = _pieces(command[1:], setting, systemd_word, " \\\n  ")
    tail = "\nRestart=on-failure\n\n[Install]\nWantedBy=multi-user.target\n"
    note = "Set User= to an account that may read the model files; it is root's unit otherwise."
    return Form("systemd", note, [Piece(f"{head}ExecStart={systemd_word(executable, expands=False)} \\\n  "), *pieces, Piece(tail)])


def compose_word(text: str) -> str:
    """A string of a compose file, which is YAML and reads ``$`` as its own."""
    return json.dumps(text, ensure_ascii=False).replace("$", "$$")


def _compose(command: Sequence[Sequence[str]], folders: Sequence[str], setting: _Setting) -> Form:
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
    pieces = _pieces(flags, setting, compose_word, ",\n      ", ", ")
    return Form("compose", note, [Piece(f"{head}    command: [\n      "), *pieces, Piece("\n    ]")])

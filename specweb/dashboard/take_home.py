"""What to run from now on: the launch command of each recommended arm, as a shell, systemd, compose and llama-swap want it. No database access."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

from speccore.commandline import command_differences, units
from speccore.engines import engine
from speccore.errors import SpecError
from speccore.inventory import HostInventory
from speccore.spec import Arm, ExperimentSpec

from specweb.experiments.models import Job

from .launch_forms import PORT, Form, Setting, compose, shell, systemd
from .llama_swap import Entry, llama_swap
from .marks import mode_words
from .strips import Strip


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
    together: Form | None  # all recipes in one configuration, of a proxy that starts what a request names
    host: str  # whose paths stand in the commands; empty where placeholders do
    port: str = PORT


def take_home(
    spec: ExperimentSpec, job: Job, strips: Sequence[Strip], inventory: HostInventory | None, env: Mapping[str, str], *, for_team: bool
) -> TakeHome | None:
    """One recipe for each arm that an answer recommends, the baseline where speculation is to be disabled; None without commands.

    ``inventory`` is the one that the job was frozen with. Who is not in the team gets placeholders for the host's paths, and no ``env``.
    """
    works: dict[str, list[Strip]] = {}
    undecided = []
    for strip in strips:
        arm = strip.arm if strip.word == "keep" else spec.baseline.name if strip.word == "disable" else ""
        if arm in job.commands:
            works.setdefault(arm, []).append(strip)
        else:
            undecided.append((_of(strip), strip.word))
    if not job.commands or not strips or spec.runtime.attached:  # of servers that somebody else started no command is known
        return None
    try:
        dialect = engine(spec.runtime.engine)
    except SpecError:  # of another release
        return None
    setting = _setting(spec, dialect, job, inventory if for_team else None, env if for_team else {})
    added = {c.arm: [p.text for p in c.parts if p.added] for c in command_differences(spec, job.commands)}
    arms = {a.name: a for a in spec.arms}
    bound = {name: _bound(name, job.commands[name], setting) for name in works}
    recipes = [
        _recipe(arms[name], list(map(_of, for_)), added[name], bound[name], job.commands[name], setting) for name, for_ in works.items()
    ]
    entries = [Entry(name, bound[name], [strip.key for strip in for_]) for name, for_ in works.items()]
    left = [f"{work}: {word}" for work, word in undecided]
    together = llama_swap(entries, left, spec.target.model, setting, spec.engine.start_timeout_s) if entries else None
    return TakeHome(recipes, undecided, together, job.host.name if for_team and inventory and job.host else "")


def _of(strip: Strip) -> str:
    return f"{strip.title}, {strip.detail}"


def _setting(spec: ExperimentSpec, dialect: ModuleType, job: Job, inventory: HostInventory | None, env: Mapping[str, str]) -> Setting:
    runtimes = {r.manifest_hash: r for r in inventory.runtimes} if inventory else {}
    paths = {m.manifest_hash: m.path for m in inventory.models} if inventory else {}
    runtime = runtimes.get(job.runtime.manifest_hash) if job.runtime else None

    def path(digest: str, name: str) -> str:
        return paths.get(digest) or f"/path/to/{name}"

    return Setting(
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


def _bindings(arm: str, setting: Setting) -> dict[str, str]:
    return {**setting.files, "{host}": "127.0.0.1", "{port}": PORT, "{draft}": setting.drafts.get(arm, "")}


def _bound(arm: str, symbolic: Sequence[str], setting: Setting) -> list[list[str]]:
    """The command cut before each flag; the executable and the word after it are units of their own."""
    bound = _bindings(arm, setting)
    return units([bound.get(word) or _in_json(word, bound["{draft}"]) for word in symbolic])


def _recipe(
    arm: Arm, works: list[str], gist: list[str], command: Sequence[Sequence[str]], symbolic: Sequence[str], setting: Setting
) -> Recipe:
    bound = _bindings(arm.name, setting)
    measuring: Mapping[str, str] = setting.dialect.MEASURING_FLAGS
    asides = [(unit[0], measuring[unit[0]]) for unit in command if unit[0] in measuring]
    models = [bound[name] for name in ("{target}", "{draft}") if any(name in word for word in symbolic)]
    folders = list(dict.fromkeys(path.rpartition("/")[0] or "/" for path in models))
    gist = [text.replace("{draft}", bound["{draft}"].rpartition("/")[2]) for text in gist]
    forms = [shell(command, setting), systemd(arm, command, setting), compose(command, folders, setting)]
    return Recipe(arm.name, arm.mode, works, gist, forms, asides, mode_words(arm))


def _in_json(word: str, draft: str) -> str:
    """A word with the draft model's path in the place that stands for it inside of JSON."""
    return word.replace('"{draft}"', json.dumps(draft, ensure_ascii=False)) if word.startswith("{") else word

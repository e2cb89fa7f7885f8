"""Presets as their page shows them: the question of each, what it needs, which of a team's hosts have that, its commands. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby

from speccore.commandline import Command
from speccore.inventory import HostInventory
from speccore.modes import BASELINE_MODE
from speccore.presets import DRAFT, LARGER, TARGET, Preset, presets
from speccore.reference import reference_builds, reference_commands
from speccore.spec import ExperimentSpec, parse_spec

from . import form_choices, hosts_page


@dataclass(frozen=True)
class BuildCommands:
    """``refusals``: arm and what such a build can't do."""

    words: str
    commands: list[Command]
    refusals: list[tuple[str, str]]


@dataclass(frozen=True)
class HostSays:
    name: str
    lacks: list[str]


@dataclass(frozen=True)
class PresetView:
    name: str
    title: str
    question: str
    n_arms: int
    n_points: int
    n_starts: int
    needs: str
    hosts: list[HostSays]
    builds: list[BuildCommands]

    @property
    def ready(self) -> list[str]:
        return [h.name for h in self.hosts if not h.lacks]


@dataclass(frozen=True)
class Group:
    """One preset, or the experiments of one that are to stand side by side under its ``question``."""

    name: str
    question: str
    needs: str
    presets: list[PresetView] = field(default_factory=list)


def groups(hosts: Sequence[tuple[str, HostInventory]]) -> list[Group]:
    """``hosts`` by name with what they offer."""
    found = []
    for of, members in groupby(presets().values(), key=lambda p: p.of or p.name):
        several = list(members)
        found.append(Group(of, several[0].of_question, several[0].needs, [_view(p, hosts) for p in several]))
    return found


def _view(preset: Preset, hosts: Sequence[tuple[str, HostInventory]]) -> PresetView:
    spec = _spec(preset.name)
    return PresetView(
        name=preset.name,
        title=spec.name,
        question=spec.question,
        n_arms=len(spec.arms),
        n_points=len(spec.points),
        n_starts=len(spec.arms) * spec.blocks,
        needs=preset.needs,
        hosts=[HostSays(name, lacks(preset, offered)) for name, offered in hosts],
        builds=_commands(preset.name),
    )


def lacks(preset: Preset, offered: HostInventory) -> list[str]:
    """What a host would still need, in words. Whether the memory suffices shows in the experiment's preview."""
    spec = _spec(preset.name)
    aliases = [m.alias for m in offered.models]
    found = [f"no {role.words.removeprefix('a ')}" for role in preset.roles.values() if role.like and not role.among(aliases)]
    target, draft = form_choices.likely_pair([offered])
    usual = [role for role in preset.roles.values() if not role.like]
    if usual and target is None:
        found.append("no model")
    elif any(role.name == DRAFT for role in usual) and draft is None:
        found.append("no small model of a large one’s vocabulary")
    if LARGER in preset.roles and form_choices.quantisations([offered]) is None:
        found.append("no model in two quantisations")
    trained = target.context_length if target and any(role.name == TARGET for role in usual) else None
    if trained is not None and trained < spec.engine.context:
        found.append(f"no such target that was trained for {spec.engine.context:,} tokens")
    modes = {mode for r in offered.runtimes for mode in hosts_page.modes_of(r)} | {BASELINE_MODE}
    found += [f"no build that offers {mode}" for mode in dict.fromkeys(a.mode for a in spec.arms) if mode not in modes]
    n_gpus = sum(d.kind == "gpu" for d in offered.devices)
    if n_gpus < 2 and any(a.draft_device and a.draft_device != "none" for a in spec.arms):
        found.append("no second GPU")
    return found


@cache
def _spec(name: str) -> ExperimentSpec:
    spec, problems = parse_spec(presets()[name].as_written())
    if spec is None:
        raise ValueError(f"the preset {name} is no valid experiment: {problems}")
    return spec


@cache
def _commands(name: str) -> list[BuildCommands]:
    return build_commands(_spec(name))


def build_commands(spec: ExperimentSpec) -> list[BuildCommands]:
    """Of an experiment without a host, by the builds that stand for each dialect."""
    found = [reference_commands(spec, build) for build in reference_builds(spec.runtime.engine)]
    return [BuildCommands(f.build.words, f.commands, [(arm, "; ".join(why)) for arm, why in f.refusals.items()]) for f in found]

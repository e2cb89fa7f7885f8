"""What a host can run with a target: each speculation mode on each engine build, or why it can't. Told from the inventory alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from . import engines, heads, model_formats, preflight
from .inventory import HostInventory, ModelInfo, RuntimeInfo
from .measurement import Withheld
from .memory_estimate import Room, estimate_arm
from .memory_needs import size
from .modes import BASELINE_MODE, MODES, MODES_WITH_DRAFT_MODEL
from .offered import Offered, offered
from .spec import Arm, EngineSettings

#: Helpers that are named; the others are counted.
MOST_HELPERS = 4
#: Models that are looked at as helpers, the smallest first: a host with thousands must not stop a page.
MOST_LOOKED_AT = 200
_LIMIT = 4


@dataclass(frozen=True)
class Possible:
    """``why_not``: empty where it can run. ``helpers``: aliases of models there that can draft, where the mode needs one."""

    mode: str
    why_not: str = ""
    remedy: str = ""
    helpers: list[str] = field(default_factory=list)
    n_helpers: int = 0


@dataclass(frozen=True)
class OnBuild:
    """``none``: why nothing runs on it with this target, not even without speculation; empty if something does."""

    runtime: RuntimeInfo
    modes: list[Possible]
    none: str = ""

    @property
    def can(self) -> list[Possible]:
        return [m for m in self.modes if not m.why_not]

    @property
    def cannot(self) -> list[Possible]:
        return [m for m in self.modes if m.why_not]


def possible(inventory: HostInventory, target: ModelInfo) -> list[OnBuild]:
    """On each build of the host; of servers that stand already nothing is known."""
    room = Room.of(inventory)
    others = sorted((m for m in inventory.models if m.manifest_hash != target.manifest_hash), key=lambda m: m.size_bytes)
    smaller = [m for m in others if m.size_bytes < target.size_bytes][:MOST_LOOKED_AT]
    return [_on_build(r, offered(r), target, smaller, room) for r in inventory.runtimes if r.kind != "attached"]


def _on_build(runtime: RuntimeInfo, found: Offered, target: ModelInfo, others: Sequence[ModelInfo], room: Room) -> OnBuild:
    if runtime.engine not in engines.names():
        return OnBuild(runtime, [], f"{runtime.engine} is no engine that this release knows")
    if found.baseline:
        return OnBuild(runtime, [], found.baseline)
    if unread := model_formats.refusals(target, {}, runtime).get(""):
        return OnBuild(runtime, [], unread.message)
    off = Possible(BASELINE_MODE, _too_large(Arm(name=BASELINE_MODE, mode=BASELINE_MODE), target, None, room))
    if off.why_not:
        return OnBuild(runtime, [off], off.why_not)
    known = [mode for mode in MODES if mode in found.modes or mode in found.lacking]
    modes = [off]
    for mode in known:
        if mode in found.lacking:
            need = found.lacking[mode]
            modes.append(Possible(mode, f"{need}, which this build doesn't have", "Take a build that has it."))
        elif mode in MODES_WITH_DRAFT_MODEL:
            modes.append(_with_helper(mode, runtime, target, others, room))
        else:
            modes.append(_alone(mode, runtime, target, room))
    return OnBuild(runtime, modes)


def _alone(mode: str, runtime: RuntimeInfo, target: ModelInfo, room: Room) -> Possible:
    arm = Arm(name=mode, mode=mode, draft_limit=_LIMIT)
    if headless := heads.refusal(arm, target, None, runtime):
        return Possible(mode, _plain(headless.message, mode), headless.remedy)
    return Possible(mode, _too_large(arm, target, None, room))


def _with_helper(mode: str, runtime: RuntimeInfo, target: ModelInfo, others: Iterable[ModelInfo], room: Room) -> Possible:
    """The first reason stands for all where no model there can draft."""
    can: list[str] = []
    first: tuple[str, str] = ("", "")
    for draft in others:
        arm = Arm(name=mode, mode=mode, draft_model=draft.alias, draft_limit=_LIMIT)
        refused = (
            model_formats.refusals(target, {mode: draft}, runtime).get(mode)
            or heads.refusal(arm, target, draft, runtime)
            or preflight.refusal(target, draft, mode, runtime)
        )
        why = _plain(refused.message, mode) if refused else _too_large(arm, target, draft, room)
        if not why:
            can.append(draft.alias)
        elif not first[0]:
            first = why, refused.remedy if refused else ""
    if can:
        return Possible(mode, helpers=can[:MOST_HELPERS], n_helpers=len(can))
    if first[0]:
        return Possible(mode, f"no model there can draft for it: {first[0]}", first[1])
    return Possible(mode, "no smaller model there that could draft for it", "Name one under models in the agent's configuration.")


def _plain(message: str, mode: str) -> str:
    return message.removeprefix(f"arm {mode!r}: ")


def _too_large(arm: Arm, target: ModelInfo, draft: ModelInfo | None, room: Room) -> str:
    """By the estimate, at the usual context; what can't be estimated is not held against it, but for files that are too large already."""
    usual = EngineSettings()
    context = min(usual.context, target.context_length or usual.context)
    found = estimate_arm(usual, arm, target, draft, on_device=room.on_device, context=context)
    if isinstance(found, Withheld):
        files = target.size_bytes + (draft.size_bytes if draft else 0)
        return f"its files have {size(files)}, {room.place} {size(room.n_bytes)}" if files > room.n_bytes else ""
    taken = room.taken(found)
    if taken <= room.n_bytes:
        return ""
    return f"needs about {size(taken)} of {size(room.n_bytes)} of {room.place} at {context:,} tokens"

"""The memory bill of an experiment page: each arm's own breakdown, its estimate beside it, and what the helper costs. No database."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from speccore.fit import together
from speccore.inventory import HostInventory, ModelInfo
from speccore.measurement import JobAnalysis, Withheld, value_of
from speccore.memory_estimate import Estimate, Room, estimate_arm
from speccore.memory_needs import Need, needs, size
from speccore.spec import Arm, ExperimentSpec

from specweb.results.memory_queries import TrialMemory

from .comparison_table import Cell

_MIB = 2**20
_SIDES = ("target", "draft")
_WHATS = ("weights", "cache", "buffers")


@dataclass(frozen=True)
class ArmMemory:
    """One row. ``parts``: weights, cache and buffers of the target, then of the helper."""

    arm: str
    mode: str
    parts: list[Cell]
    engine: Cell
    estimate: Cell
    error: Cell
    peak: Cell
    bill: Cell
    context: Cell
    slots: Cell
    layers: Cell
    free: Cell


@dataclass(frozen=True)
class MemorySection:
    rows: list[ArmMemory]
    sentences: list[str]  # what helpers cost in tokens, slots and layers, and what should fit
    with_layers: bool
    with_free: bool


def memory_section(
    spec: ExperimentSpec,
    analysis: JobAnalysis,
    trials: Sequence[TrialMemory],
    inventory: HostInventory | None,
    models: Mapping[str, ModelInfo],
) -> MemorySection | None:
    """``models``: the target under the baseline's name, each arm's helper under the arm's. None where nothing is known."""
    by_arm = {a.name: [t for t in trials if t.arm == a.name] for a in spec.arms}
    if not any(t.parts or t.peak_bytes is not None for t in trials):
        return None
    rows = [_row(spec, arm, by_arm[arm.name], analysis, inventory, models) for arm in spec.arms if by_arm[arm.name]]
    return MemorySection(
        rows,
        [*_costs(spec, by_arm), *_fitted(spec, trials), *_should_fit(spec, inventory, models)],
        with_layers=any(t.layers_placed for t in trials),
        with_free=any(t.free_bytes is not None for t in trials),
    )


def _row(
    spec: ExperimentSpec,
    arm: Arm,
    trials: Sequence[TrialMemory],
    analysis: JobAnalysis,
    inventory: HostInventory | None,
    models: Mapping[str, ModelInfo],
) -> ArmMemory:
    own = next((t.parts for t in trials if t.parts), {})
    total = sum(own.values())
    guess = _estimate(spec, arm, inventory, models)
    parts = []
    for side in _SIDES:
        for what in _WHATS:
            here = [n for (owner, kind, _), n in own.items() if (owner, kind) == (side, what)]
            known = f"estimated before: {_mib(guess.bytes_of(side, what))} MiB" if isinstance(guess, Estimate) else ""  # type: ignore[arg-type]
            parts.append(Cell(_mib(sum(here)), title=known) if here else Cell())
    return ArmMemory(
        arm=arm.name,
        mode=arm.mode,
        parts=parts,
        engine=Cell(_mib(total), title="sum of the engine's own buffers, from its log")
        if own
        else _none("the engine's log names no buffers"),
        estimate=Cell(_mib(guess.total), title="from the models' files, before anything ran")
        if isinstance(guess, Estimate)
        else _none(guess.withheld),
        error=Cell(signed_percent(guess.total / total - 1), title="estimate ÷ the engine's own sum − 1")
        if isinstance(guess, Estimate) and total
        else Cell(),
        peak=_median([t.peak_bytes for t in trials], "resident and device memory, highest while probing; median of the arm's trials"),
        bill=_bill(arm, analysis),
        context=_least((t.context_per_slot for t in trials), "tokens per slot"),
        slots=_least((t.slots for t in trials), "requests that the engine serves at once"),
        layers=_layers(trials),
        free=_least_bytes([t.free_bytes for t in trials]),
    )


def _estimate(spec: ExperimentSpec, arm: Arm, inventory: HostInventory | None, models: Mapping[str, ModelInfo]) -> Estimate | Withheld:
    target = models.get(spec.baseline.name)
    if inventory is None or target is None:
        return Withheld(withheld="the host's models are not known any more", reason_code="not_told")
    draft = None if arm.is_baseline else models.get(arm.name)
    return estimate_arm(spec.engine, arm, target, draft, on_device=Room.of(inventory).on_device)


def _bill(arm: Arm, analysis: JobAnalysis) -> Cell:
    bills = [b for c in analysis.comparisons if c.arm == arm.name and (b := value_of(c.memory_bill_bytes)) is not None]
    if arm.is_baseline or not bills:
        return Cell()
    return Cell(
        f"{bills[0] / _MIB:+z,.0f}".replace("-", "−"), title="the arm's peak − the baseline's in the same block, median over blocks"
    )


def _layers(trials: Sequence[TrialMemory]) -> Cell:
    placed = [t.layers_placed for t in trials if t.layers_placed]
    if not placed:
        return Cell()
    there, total = min(placed)
    return Cell(f"{there}/{total}", title="layers of the target on a device, of all; the fewest of the arm's trials")


def _costs(spec: ExperimentSpec, by_arm: Mapping[str, Sequence[TrialMemory]]) -> list[str]:
    """Tokens of context, slots and layers that an arm lacks beside the baseline."""
    base = by_arm[spec.baseline.name]
    found = []
    for arm in spec.arms:
        if arm.is_baseline or arm.control or not by_arm[arm.name]:
            continue
        lost = []
        for noun, rest, of in (
            ("token", " of context per slot", _context),
            ("slot", "", _slots),
            ("layer", " of the target on the device", _placed),
        ):
            before, after = _lowest(map(of, base)), _lowest(map(of, by_arm[arm.name]))
            if before is not None and after is not None and after < before:
                n = before - after
                lost.append(f"{n:,} {noun}{'' if n == 1 else 's'}{rest} ({after:,} of {before:,} left)")
        if lost:
            found.append(f"{arm.name} costs {' and '.join(lost)}.")
    return found


def _fitted(spec: ExperimentSpec, trials: Sequence[TrialMemory]) -> list[str]:
    """What was tried after the blocks, in one line and arm by arm."""
    found = next((t.fit for t in reversed(trials) if t.fit), None)
    if found is None:
        said = "No largest context was found: the job ended before its last start, that failed, or it was stopped while it looked."
        return [said] if spec.fit else []
    said = together(found, spec.baseline.name)
    lines = [f"Largest context that loads here, tried after the blocks: {said}."] if said else []
    lines += [f"{a.arm} {a.words()}{'' if a.exact or a.withheld else '; not exact'}." for a in found.arms]
    if found.reserve_bytes:
        lines.append(f"A context counts where {size(found.reserve_bytes)} of {found.place} stay free.")
    return lines


def _should_fit(spec: ExperimentSpec, inventory: HostInventory | None, models: Mapping[str, ModelInfo]) -> list[str]:
    target = models.get(spec.baseline.name)
    if inventory is None or target is None:
        return []
    drafts = {name: m for name, m in models.items() if name != spec.baseline.name}
    told = [n for n in needs(spec, inventory, target, drafts) if n.largest is not None and not spec.arm(n.arm).control]
    if not told or told[0].arm != spec.baseline.name:
        return []
    room = f"{size(told[0].room_bytes)} of {told[0].place}"
    return [f"By the estimate {_largest(told)} should fit into {room}."]


def _largest(told: Sequence[Need]) -> str:
    """``131,072 tokens per slot (all that the model was trained for) with off, 96,256 with draft-4 and draft-8``."""
    by_size: dict[int, list[str]] = {}
    for need in told:
        by_size.setdefault(need.largest or 0, []).append(need.arm)
    trained, parts = told[0].trained, []
    for i, (tokens, arms) in enumerate(by_size.items()):
        unit = " tokens per slot" if i == 0 else ""
        top = " (all that the model was trained for)" if trained is not None and tokens >= trained else ""
        names = (
            "every arm"
            if len(by_size) == 1 and len(arms) > 1
            else " and ".join(arms)
            if len(arms) < 3
            else f"{', '.join(arms[:-1])} and {arms[-1]}"
        )
        parts.append(f"{tokens:,}{unit}{top} with {names}")
    return ", ".join(parts)


def _context(t: TrialMemory) -> int | None:
    return t.context_per_slot


def _slots(t: TrialMemory) -> int | None:
    return t.slots


def _placed(t: TrialMemory) -> int | None:
    return t.layers_placed[0] if t.layers_placed else None


def _lowest(values: Iterable[int | None]) -> int | None:
    return min((v for v in values if v is not None), default=None)


def _least(values: Iterable[int | None], title: str) -> Cell:
    least = _lowest(values)
    return Cell() if least is None else Cell(f"{least:,}", title=title)


def _least_bytes(values: Sequence[float | None]) -> Cell:
    least = min((v for v in values if v is not None), default=None)
    return Cell() if least is None else Cell(_mib(least), title="left free where the model runs, at its lowest while probing")


def _median(values: Sequence[float | None], title: str) -> Cell:
    known = [v for v in values if v is not None]
    return Cell(_mib(statistics.median(known)), title=title) if known else _none("no memory was sampled while probing")


def _none(reason: str) -> Cell:
    return Cell("withheld", title=f"withheld: {reason}", withheld=True)


def _mib(n_bytes: float) -> str:
    mib = n_bytes / _MIB
    return f"{mib:,.0f}" if mib >= 100 else f"{mib:.1f}"


def signed_percent(share: float) -> str:
    return f"{100 * share:+z.1f} %".replace("-", "−")

"""Whether speculation was on in an attempt, by what the server reports of itself and by what it drafted, and why one says so."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from .measurement import LogFacts, ProbeMeasurement, value_of
from .spec import BASELINE_MODE, is_model_drafter


def reported_types(types: Collection[str] | None, log: LogFacts) -> set[str] | None:
    """The speculation types that the server says it uses: in its answers, else in its log; None where it says it nowhere.

    An answer may tell only that speculation is on, and leave it to the log which it is.
    """
    if types is not None:
        return set(types)
    return {t for t in log.speculation.split(",") if t} if log.speculation_line is not None else None


def engagement(
    spec_types: Mapping[str, str],
    mode: str,
    probes: Sequence[ProbeMeasurement],
    types: Collection[str] | None,
    log: LogFacts,
    *,
    also: Sequence[str] = (),
) -> tuple[bool | None, str]:
    """``spec_types``: the engine's name for each mode. ``types``: those that the server reports, None where it doesn't say.
    ``also``: drafters that should stand beside the mode's own."""
    if mode in ("", BASELINE_MODE):
        return None, ""
    reason = f"; its log says: {log.error}" if log.error else ""
    wanted = [spec_types.get(drafter, drafter) for drafter in (mode, *also)]
    if types is not None and not set(wanted) <= set(types):
        found = ", ".join(sorted(types)) or "none"
        return False, f"the server reports speculation {found}, asked for was {', '.join(wanted)}{reason}"
    drafted = [d for p in probes if not p.warmup and (d := value_of(p.counters.drafted)) is not None]
    if sum(drafted) > 0:
        return True, f"{sum(drafted):g} tokens drafted in {len(drafted)} probes"
    if not any(not p.warmup and p.ok for p in probes):
        return False, f"no probe was answered, so nothing shows that speculation was on{reason}"
    if is_model_drafter(mode):
        shown = "drafted nothing" if drafted else "reported no draft counts"
        return False, f"the server {shown} in {sum(not p.warmup for p in probes)} probes{reason}"
    if types is not None:
        return True, "speculation is on; its drafter found nothing to propose"
    return False, f"nothing shows that speculation was on{reason}"

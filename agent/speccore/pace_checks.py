"""Checks of how an engine came to the pace at which it was timed: warm-up until settled, and requests by the clock that it keeps up with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import openloop
from .formats import percent
from .integrity import NAMED, failed, not_checked, passed
from .measurement import AttemptMeasurement, Check, LoadMeasurement, Settling, value_of
from .settling import NO_PACE, WITHIN
from .spec import ExperimentSpec, Point

SETTLED = "warm-up settled"
KEEPS_UP = "engine keeps up"


def checks(spec: ExperimentSpec, point: Point, baseline: Sequence[AttemptMeasurement], arm: Sequence[AttemptMeasurement]) -> list[Check]:
    """Of one comparison; the second only where requests came by the clock."""
    attempts = [*baseline, *arm]
    if spec.warmup.mode == "fixed":
        found = [fixed_warmup(spec.warmup.requests)]
    else:
        found = [warmup_settled({a.trial: next((s for s in a.settlings if s.point == point.key), None) for a in attempts})]
    if point.rate_per_s is not None:
        found.append(keeps_up(point.rate_per_s, {a.trial: openloop.load_at(a, point.key) for a in attempts}))
    return found


def fixed_warmup(n_requests: int) -> Check:
    return not_checked(SETTLED, f"one fixed warm-up of {n_requests} request{'' if n_requests == 1 else 's'}, settling not checked")


def warmup_settled(by_trial: Mapping[str, Settling | None]) -> Check:
    """``by_trial``: the warm-up of the comparison's point in each start; None where nothing is known of it."""
    unknown = [trial for trial, s in by_trial.items() if s is None]
    known = {trial: s for trial, s in by_trial.items() if s is not None}
    if unknown or not known:
        where = f" of {unknown[0]}" if unknown else ""
        return not_checked(SETTLED, f"whether the warm-up{where} settled is not known: parse the evidence again", trials=unknown[:NAMED])
    never = {trial: s for trial, s in known.items() if not s.settled}
    evidence: dict[str, Any] = {"n": {trial: s.n for trial, s in known.items()}}
    if never:
        trial, first = min(never.items(), key=lambda item: NO_PACE in item[1].why)  # one that more warm-up may help, if there is any
        evidence["never"] = {t: list(s.windows_ms) if s.windows_ms else s.why for t, s in list(never.items())[:NAMED]}
        no_pace = NO_PACE in first.why
        remedy = "ask for longer answers, or see why they failed" if no_pace else "raise warmup.most, or see what else the host does"
        starts = f"{len(never)} of {len(known)} start{'' if len(known) == 1 else 's'}"
        sentence = f"the speed had not settled when timing began in {starts}, first {trial}: {_apart(first)}; {remedy}"
        return failed(SETTLED, sentence, **evidence)
    counts = sorted(s.n for s in known.values())
    after = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    starts = f"all {len(known)} starts" if len(known) > 1 else "the one start"
    sentence = f"the last two windows of warm-up agreed within {percent(WITHIN)} in time per token in {starts}, after {after} requests"
    return passed(SETTLED, sentence, **evidence)


def in_words(s: Settling) -> str:
    """How the warm-up of one point went in one start: ``settled after 7 requests: 10.1 and 10 ms per token``."""
    if not s.settled or s.windows_ms is None:
        return f"not settled: {_apart(s)}"
    return f"settled after {s.n} requests: {s.windows_ms[0]:.3g} and {s.windows_ms[1]:.3g} ms per token"


def clock_in_words(load: LoadMeasurement) -> str:
    """What came of requests by the clock in one start; empty of requests that did not come so."""
    rate = None if load.observed_rate_per_s is None else value_of(load.observed_rate_per_s)
    flying = value_of(load.observed_concurrency)
    if load.rate_per_s is None or rate is None or flying is None:
        return ""
    said = f"{rate:.3g} a second, {load.rate_per_s:g} asked for; {flying:.2f} under way on average"
    return f"{said}; overloaded: {load.overloaded}" if load.overloaded else said


def _apart(s: Settling) -> str:
    if s.windows_ms is None or s.apart is None:
        return s.why
    earlier, later = s.windows_ms
    return (
        f"after {s.n} requests the last two windows took {earlier:.3g} and {later:.3g} ms per token, {percent(s.apart, 1)} apart, "
        f"more than {percent(WITHIN)}"
    )


def keeps_up(rate_per_s: float, by_trial: Mapping[str, LoadMeasurement | None]) -> Check:
    """``rate_per_s``: as asked for. Soft, since latency at a rate that is too high is withheld and so decides nothing."""
    behind = {trial: why for trial, load in by_trial.items() if (why := openloop.fault(load))}
    observed = {t: n for t, load in by_trial.items() if load and load.observed_rate_per_s and (n := value_of(load.observed_rate_per_s))}
    flying = [n for load in by_trial.values() if load and (n := value_of(load.observed_concurrency)) is not None]
    evidence: dict[str, Any] = {"asked_per_s": rate_per_s, "observed_per_s": observed}
    if behind:
        trial, why = next(iter(behind.items()))
        sentence = f"overloaded in {len(behind)} of {len(by_trial)} starts, first {trial}: {why}; {openloop.remedy(rate_per_s)}"
        return failed(KEEPS_UP, sentence, **evidence, behind=dict(list(behind.items())[:NAMED]))
    if not observed or not flying:
        return not_checked(KEEPS_UP, "no start has requests by the clock", **evidence)
    low, high = min(observed.values()), max(observed.values())
    came = f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"
    sentence = f"requests came at {came} a second, asked for were {rate_per_s:g}, and no backlog grew: at most {max(flying):.2f} were under way on average"
    return passed(KEEPS_UP, sentence, **evidence)

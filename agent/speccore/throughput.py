"""Comparisons of points with several requests at once: block values from tokens per second, and what must hold under load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

from . import openloop, stats
from .derive import block_range, computed
from .formats import percent
from .integrity import failed, not_checked, passed
from .measurement import AttemptMeasurement, Check, Maybe, Number, Withheld
from .pairs import BlockPairs, used_probes
from .spec import Point
from .survey import LEAST_OBSERVED

#: Share of task checks that answers may lose when several are made at once.
CHECKS_TOLERANCE = 0.02


def block_values(blocks: Sequence[BlockPairs], point: Point) -> dict[int, float]:
    """Block: ln of how many times as fast the right arm is, over blocks with a matched prompt.

    One request at a time, or by the clock: the mean over prompts in equal-work seconds. Several at once: of tokens per second
    in the window, since what a request takes then depends on its neighbours. None where an engine fell behind the clock.
    """
    matched = [b for b in blocks if b.matched]
    if overloaded(matched, point):
        return {}
    if point.concurrency == 1:
        return {b.block: stats.block_value(b.seconds) for b in matched}
    values = {b.block: _of_windows(b, point.key) for b in matched}
    return {block: value for block, value in values.items() if isinstance(value, float)}


def why_no_values(blocks: Sequence[BlockPairs], point: Point) -> Withheld | None:
    """The first block's reason for having no value under load; None where that is not what is missing."""
    if behind := overloaded(blocks, point):
        return behind
    values = [_of_windows(b, point.key) for b in blocks if b.matched] if point.concurrency > 1 else []
    return next((v for v in values if isinstance(v, Withheld)), None)


def overloaded(blocks: Sequence[BlockPairs], point: Point) -> Withheld | None:
    return openloop.overloaded([attempt for b in blocks for attempt in (b.left, b.right)], point)


def steady(numbers: Mapping[str, Maybe], blocks: Sequence[BlockPairs], point: Point) -> dict[str, Maybe]:
    """Numbers of both arms by field of ``ComparisonResult``, those withheld that count from when a request was due if one fell behind."""
    behind = overloaded(blocks, point)
    return {name: behind if behind and name.endswith(("equal_work_s", "e2e_s")) else n for name, n in numbers.items()}


def _of_windows(block: BlockPairs, point: str) -> float | Withheld:
    left, right = tokens_per_s(block.left, point), tokens_per_s(block.right, point)
    for attempt, rate in ((block.left, left), (block.right, right)):
        if isinstance(rate, Withheld):
            return Withheld(withheld=f"{attempt.trial}: {rate.withheld}", reason_code=rate.reason_code)
    assert isinstance(left, Number)
    assert isinstance(right, Number)
    return math.log(right.value / left.value)


def leave_one_prompt_out(blocks: Sequence[BlockPairs], point: Point) -> tuple[float, float] | Withheld:
    if behind := overloaded(blocks, point):
        return behind
    if point.concurrency > 1:
        said = "requests ran together: the share of one prompt can't be taken out of the window"
        return Withheld(withheld=said, reason_code="together")
    return stats.leave_one_prompt_out([b.seconds for b in blocks])


def tokens_per_s(attempt: AttemptMeasurement, point: str) -> Maybe:
    load = openloop.load_at(attempt, point)
    return load.tokens_per_s if load else Withheld(withheld="no request ran together with others", reason_code="no_window")


def side_numbers(blocks: Sequence[BlockPairs], point: Point, arm: str, baseline: str) -> dict[str, Maybe]:
    """Tokens per second of all requests together and requests in flight, means over blocks, by field of ``ComparisonResult``."""
    if point.one_by_one:
        alone = Withheld(withheld="one request at a time", reason_code="alone")
        names = ("loaded_tokens_per_s", "observed_concurrency")
        return {f"{side}_{name}": alone for side in ("arm", "baseline") for name in names}
    found: dict[str, Maybe] = {}
    for prefix, name, attempts in (("arm", arm, [b.right for b in blocks]), ("baseline", baseline, [b.left for b in blocks])):
        found[f"{prefix}_loaded_tokens_per_s"] = _mean({a.block: tokens_per_s(a, point.key) for a in attempts}, name, point.key, "tokens")
        seen = {a.block: load.observed_concurrency for a in attempts if (load := openloop.load_at(a, point.key))}
        found[f"{prefix}_observed_concurrency"] = _mean(seen, name, point.key, "requests in flight")
    return found


def _mean(numbers: Mapping[int, Maybe], arm: str, point: str, what: str) -> Maybe:
    values = {block: n.value for block, n in numbers.items() if isinstance(n, Number)}
    if not values:
        reason = next((n for n in numbers.values() if isinstance(n, Withheld)), None)
        return reason or Withheld(withheld="no block has both arms", reason_code="no_blocks")
    formula = "mean tokens per second in the window" if what == "tokens" else "mean requests in flight in the window"
    return computed(sum(values.values()) / len(values), formula, f"{arm} at {point}, {block_range(values)}")


# --- checks ---


def checks(point: Point, points: Sequence[Point], baseline: Sequence[AttemptMeasurement], arm: Sequence[AttemptMeasurement]) -> list[Check]:
    """Of one comparison under load; none where requests ran one at a time. ``points`` are all of the experiment."""
    if point.concurrency == 1:
        return []
    seen = {a.trial: load.observed_concurrency for a in (*baseline, *arm) if (load := openloop.load_at(a, point.key))}
    return [observed_concurrency(point.concurrency, seen), right_under_load(point, points, baseline)]


def observed_concurrency(asked: int, observed: Mapping[str, Maybe]) -> Check:
    """``observed``: by trial, the mean number of requests in flight in the window."""
    name = "observed concurrency"
    known = {trial: n.value for trial, n in observed.items() if isinstance(n, Number)}
    low = {trial: n for trial, n in known.items() if n < LEAST_OBSERVED * asked}
    if low:
        trial, least = min(low.items(), key=lambda pair: pair[1])
        sentence = f"{least:.2f} requests were in flight on average in {trial}, asked for were {asked}"
        return failed(name, sentence, hard=True, observed=known, asked=asked)
    missing = {trial: n.withheld for trial, n in observed.items() if isinstance(n, Withheld)}
    if missing and known:  # such blocks have no value, and the others are those in which it came about
        trial, why = next(iter(missing.items()))
        sentence = f"so many requests at once did not come about in {len(missing)} of {len(observed)} trials, first {trial}: {why}"
        return failed(name, sentence, hard=True, observed=known, asked=asked, trials=missing)
    if missing or not known:
        trial, why = next(iter(missing.items()), ("", "no trial ran requests together"))
        return not_checked(name, f"{trial}: {why}" if trial else why, trials=missing)
    sentence = f"at least {min(known.values()):.2f} of {asked} requests were in flight on average in each trial"
    return passed(name, sentence, hard=True, observed=known, asked=asked)


def right_under_load(point: Point, points: Sequence[Point], baseline: Sequence[AttemptMeasurement]) -> Check:
    """Whether the baseline's answers pass their task checks as often with others beside them as alone.

    An engine may answer wrongly as soon as it serves several requests at a time, and no speed shows that.
    """
    name = "answers right under load"
    alone = next((p for p in points if p.concurrency == 1 and is_same_work(p, point)), None)
    if alone is None:
        return not_checked(name, "the experiment does not ask the same work one request at a time")
    sides = [_passed_by_prompt(baseline, key) for key in (point.key, alone.key)]
    if not all(sides):
        return not_checked(name, "no prompt has a check")
    (together, n), (single, n_single) = [(sum(side) / len(side), len(side)) for side in sides]
    low, high = share_difference(together, n, single, n_single)
    sentence = f"{percent(together)} of the baseline's task checks passed with {point.concurrency} requests at once and {percent(single)} one at a time"
    evidence = {"together": together, "alone": single, "n": [n, n_single], "low": low, "high": high}
    return (failed if high < -CHECKS_TOLERANCE else passed)(name, sentence, hard=True, **evidence)


def _passed_by_prompt(attempts: Sequence[AttemptMeasurement], point: str) -> list[float]:
    """A prompt that was asked in several blocks counts once, with its mean."""
    by_item: dict[str, list[bool]] = {}
    for probe in used_probes(attempts, point):
        if probe.check_passed is not None:
            by_item.setdefault(probe.item, []).append(probe.check_passed)
    return [sum(seen) / len(seen) for seen in by_item.values()]


def share_difference(first: float, n_first: int, second: float, n_second: int) -> tuple[float, float]:
    """95 % interval of the difference of two shares (Newcombe 1998, hybrid score)."""
    (low1, high1), (low2, high2) = _wilson(first, n_first), _wilson(second, n_second)
    down, up = math.hypot(first - low1, high2 - second), math.hypot(high1 - first, second - low2)
    return first - second - down, first - second + up


def _wilson(share: float, n: int) -> tuple[float, float]:
    z = NormalDist().inv_cdf(0.5 + stats.CONFIDENCE / 2)
    middle, wide = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, (middle - wide) / (1 + z * z / n)), min(1.0, (middle + wide) / (1 + z * z / n))


def is_same_work(a: Point, b: Point) -> bool:
    """Whether two points differ in nothing but how many requests they ask, and how many at once."""
    return a.model_dump(exclude={"concurrency", "probes"}) == b.model_dump(exclude={"concurrency", "probes"})

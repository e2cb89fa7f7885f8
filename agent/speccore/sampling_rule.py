"""The sampling-rule test: whether tokens drawn under speculation come from the distribution that they come from without it.

Many short continuations of the same prompts are drawn in each arm, every one with a seed of its own, so that no two draws
share their chance. Position by position a permutation test compares the arm with the baseline, within each prompt. A second
sample of the baseline (the control) stands the same test: where the baseline disagrees with itself nobody is accused.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .formats import percent
from .measurement import Withheld
from .stats import holm

POSITIONS = 4
CONTINUATIONS = 2000
#: An accusation needs a corrected p below this, in the arm, and none in the control …
ACCUSE_P = 0.01
#: … and at least this much of the probability proven to lie elsewhere: a difference can be real and too small to matter.
ACCUSE_TV = 0.02
#: One-sided, of the lower bound of the total variation.
BOUND_CONFIDENCE = 0.95
POWER = 0.9
MIN_CONTINUATIONS = 100
#: Of each test, and more where there are many arms.
PERMUTATIONS = 9999
#: The token that stands where an answer has ended before the position.
END = -1

#: Tokens seen less often than this in both arms together are counted as one kind. The sum is the same however the draws are
#: shared out, so the permutation test stays exact; the total variation can only become smaller.
_RARE = 10
_BATCH = 1000

Outcome = Literal["accused", "not accused", "control failed"]
Counts = NDArray[np.int64]


class Answer(NamedTuple):
    """One continuation: of which prompt, drawn with which seed, and its token ids from the first on."""

    prompt: str
    seed: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Position:
    """One position of one arm against the baseline. Shares of probability, not per cent."""

    position: int  # from 1
    n_kinds: int  # different tokens, rare ones together, summed over prompts
    p: float
    p_adjusted: float  # Holm, over all positions and arms of the test
    total_variation: float  # as seen, which chance alone makes larger than it is
    at_least: float  # its lower bound
    found_at: float | None  # the shift to or from the likeliest token that is found in nine of ten such tests; None: no shift is


@dataclass(frozen=True)
class Judged:
    """One arm. ``words`` is a sentence for a person."""

    arm: str
    outcome: Outcome
    n: int
    positions: list[Position]
    words: str


@dataclass(frozen=True)
class RuleResult:
    """``control`` is the baseline's second sample, held to the same test."""

    n_baseline: int
    n_permutations: int
    control: Judged
    arms: list[Judged]


def seeds(first: int, n_samples: int, n: int) -> list[range]:
    """Disjoint seeds, ``n`` for each sample."""
    return [range(first + i * n, first + (i + 1) * n) for i in range(n_samples)]


def sampling_rule(
    baseline: Sequence[Answer],
    control: Sequence[Answer],
    arms: Mapping[str, Sequence[Answer]],
    *,
    positions: int = POSITIONS,
    n_permutations: int | None = None,
    n_power: int = 400,
    seed: int = 1,
) -> RuleResult | Withheld:
    """Holds each arm and the control against the baseline. ``n_power`` simulated tests tell what would be found; 0: none told.

    Raises ValueError if a seed was used twice, prompts differ between samples, or the permutations are too few to accuse anybody.
    """
    n_tests = positions * max(1, len(arms))
    enough = 2 * n_tests / ACCUSE_P  # below it the smallest p there can be is no accusation
    n_permutations = max(PERMUTATIONS, round(5 * enough)) if n_permutations is None else n_permutations
    if n_permutations < enough:
        raise ValueError(f"{n_permutations} permutations can accuse nobody in {n_tests} tests: {enough:.0f} are needed")
    samples = {"baseline": baseline, "control": control, **arms}
    _check_seeds(samples)
    if few := {name: len(s) for name, s in samples.items() if len(s) < MIN_CONTINUATIONS}:
        name, n = min(few.items(), key=lambda pair: pair[1])
        return Withheld(withheld=f"needs {MIN_CONTINUATIONS} continuations, {name} has {n}", reason_code="too_few_continuations")
    rng = np.random.default_rng(seed)
    level = ACCUSE_P / n_tests
    tests = {
        name: [_test(baseline, sample, at, n_permutations, level, n_power, rng) for at in range(positions)]
        for name, sample in {"": control, **arms}.items()
    }
    own_adjusted = holm({f"{i}": t.p for i, t in enumerate(tests[""])})
    own = [_position(i, t, own_adjusted[f"{i}"]) for i, t in enumerate(tests[""])]
    adjusted = holm({f"{i} {name}": t.p for name in arms for i, t in enumerate(tests[name])})
    control_failed = min(p.p_adjusted for p in own) < ACCUSE_P
    judged = []
    for name, sample in arms.items():
        found = [_position(i, t, adjusted[f"{i} {name}"]) for i, t in enumerate(tests[name])]
        judged.append(_judge(name, len(sample), found, own, control_failed=control_failed))
    outcome: Outcome = "control failed" if control_failed else "not accused"
    words = f"the baseline does not agree with itself ({_worst(own)})" if control_failed else "the baseline agrees with itself"
    return RuleResult(len(baseline), n_permutations, Judged("", outcome, len(control), own, words), judged)


def _check_seeds(samples: Mapping[str, Sequence[Answer]]) -> None:
    """Draws of one seed share their chance: they would look more alike than they are."""
    seen: dict[int, str] = {}
    for name, sample in samples.items():
        for answer in sample:
            if answer.seed in seen:
                raise ValueError(f"seed {answer.seed} was used twice, in {seen[answer.seed]} and {name}: each continuation needs its own")
            seen[answer.seed] = name
    prompts = {name: {a.prompt for a in sample} for name, sample in samples.items()}
    for name, asked in prompts.items():
        if asked != prompts["baseline"] and asked:
            raise ValueError(f"{name} has other prompts than the baseline: {', '.join(sorted(asked ^ prompts['baseline']))}")


def _judge(name: str, n: int, found: list[Position], own: list[Position], *, control_failed: bool) -> Judged:
    guilty = [p for p in found if p.p_adjusted < ACCUSE_P and p.at_least > ACCUSE_TV]
    if control_failed:
        return Judged(name, "control failed", n, found, f"nothing is said: the baseline does not agree with itself ({_worst(own)})")
    if guilty:
        most = max(guilty, key=lambda p: p.at_least)
        words = (
            f"draws its tokens from another distribution than the baseline: at position {most.position} at least "
            f"{percent(most.at_least, 1)} of the probability lies elsewhere (p = {_p(most.p_adjusted)}), while the baseline agrees with itself"
        )
        return Judged(name, "accused", n, found, words)
    small = [p for p in found if p.p_adjusted < ACCUSE_P]
    words = (
        f"differs ({_worst(small)}), and no more than {percent(ACCUSE_TV)} of the probability is proven to lie elsewhere"
        if small
        else "no difference shown"
    )
    power = _power_words(found)
    return Judged(name, "not accused", n, found, f"{words}; {power}" if power else words)


def _power_words(found: Sequence[Position]) -> str:
    told = [p for p in found if p.n_kinds > 1]
    if not told:
        return "every draw gave the same tokens, so nothing could be found"
    shifts = [p.found_at for p in told if p.found_at is not None]
    if not shifts:
        return ""
    if len(shifts) < len(told):
        return f"more continuations are needed: at {len(told) - len(shifts)} of {len(told)} positions no shift would be found"
    return f"a shift of {percent(max(shifts), 1)} to or from the likeliest token would be found at any position in nine of ten such tests"


def _worst(found: Sequence[Position]) -> str:
    worst = min(found, key=lambda p: p.p_adjusted)
    return f"position {worst.position}, p = {_p(worst.p_adjusted)}"


def _p(p: float) -> str:
    return f"{p:.2g}"


# --- one position ---


@dataclass(frozen=True)
class _Test:
    n_kinds: int
    p: float
    total_variation: float
    at_least: float
    found_at: float | None


def _position(at: int, test: _Test, adjusted: float) -> Position:
    return Position(at + 1, test.n_kinds, test.p, adjusted, test.total_variation, test.at_least, test.found_at)


@dataclass(frozen=True)
class Table:
    """Tokens of one prompt at one position: how often each kind came, in the baseline and in the arm."""

    left: Counts
    right: Counts


def tables(baseline: Sequence[Answer], arm: Sequence[Answer], at: int) -> list[Table]:
    """One table for each prompt; ``at`` counts from 0."""
    counted = [_tokens(side, at) for side in (baseline, arm)]
    found = []
    for prompt in sorted(counted[0]):
        left, right = counted[0][prompt], counted[1][prompt]
        kinds = sorted(left.keys() | right.keys())
        rare = {k for k in kinds if left[k] + right[k] < _RARE}
        rows = [[side[k] for k in kinds if k not in rare] + ([sum(side[k] for k in rare)] if rare else []) for side in (left, right)]
        found.append(Table(*(np.asarray(row, dtype=np.int64) for row in rows)))
    return found


def _tokens(answers: Sequence[Answer], at: int) -> dict[str, Counter[int]]:
    counted: dict[str, Counter[int]] = {}
    for answer in answers:
        counted.setdefault(answer.prompt, Counter())[answer.ids[at] if at < len(answer.ids) else END] += 1
    return counted


def statistic(left: Counts, right: Counts) -> NDArray[np.float64]:
    """Pearson's χ² of homogeneity of two samples, along the last axis."""
    return _parts(left, right).sum(axis=-1)  # type: ignore[no-any-return]


def _parts(left: Counts, right: Counts) -> NDArray[np.float64]:
    """What each kind adds to χ²."""
    n, m = left.sum(axis=-1, keepdims=True), right.sum(axis=-1, keepdims=True)
    found: NDArray[np.float64] = (left * np.sqrt(m / n) - right * np.sqrt(n / m)) ** 2 / np.maximum(left + right, 1)
    return found


def total_variation(left: Counts, right: Counts) -> NDArray[np.float64]:
    """Half the sum of the absolute differences of shares, along the last axis: 0 for equal shares, 1 where nothing is common."""
    return np.abs(_differences(left, right)).sum(axis=-1) / 2  # type: ignore[no-any-return]


def _differences(left: Counts, right: Counts) -> NDArray[np.float64]:
    found: NDArray[np.float64] = left / left.sum(axis=-1, keepdims=True) - right / right.sum(axis=-1, keepdims=True)
    return found


class Measures(NamedTuple):
    """Of one pair of samples, or of many along the first axis. All kinds together find what is spread, the worst one what is not."""

    all_kinds: NDArray[np.float64]  # χ², summed over prompts
    one_kind: NDArray[np.float64]  # the largest squared standardised difference of any kind of any prompt
    variation: NDArray[np.float64]  # total variation, weighed by prompt
    one_difference: NDArray[np.float64]  # the largest difference of a single share, weighed by prompt: no more than the variation


def measured(pairs: Sequence[tuple[Counts, Counts]], weights: NDArray[np.float64]) -> Measures:
    """``pairs``: counts of both samples for each prompt, along the last axis."""
    all_kinds, variation = np.zeros(pairs[0][0].shape[:-1]), np.zeros(pairs[0][0].shape[:-1])
    one_kind, one_difference = all_kinds.copy(), all_kinds.copy()
    for weight, (left, right) in zip(weights, pairs):
        parts, differences = _parts(left, right), np.abs(_differences(left, right))
        both = left + right
        rest = 1 - both / both.sum(axis=-1, keepdims=True)
        all_kinds += parts.sum(axis=-1)
        one_kind = np.maximum(one_kind, np.where(rest > 0, parts / np.maximum(rest, 1e-12), 0).max(axis=-1))
        variation += weight * differences.sum(axis=-1) / 2
        one_difference = np.maximum(one_difference, weight * differences.max(axis=-1))
    return Measures(all_kinds, one_kind, variation, one_difference)


def _test(
    baseline: Sequence[Answer], arm: Sequence[Answer], at: int, n_permutations: int, level: float, n_power: int, rng: np.random.Generator
) -> _Test:
    found = tables(baseline, arm, at)
    weights = np.asarray([t.left.sum() + t.right.sum() for t in found], dtype=float)
    weights /= weights.sum()
    seen = measured([(t.left, t.right) for t in found], weights)
    null = shared_out(found, weights, n_permutations, rng)
    beyond = [int((chance >= of - 1e-9).sum()) for of, chance in zip(seen[:2], null[:2])]
    limits = _Limits(
        # Two statistics are looked at, and two bounds: each with half of the error that is allowed.
        critical=(float(np.quantile(null.all_kinds, 1 - level / 2)), float(np.quantile(null.one_kind, 1 - level / 2))),
        noise=(float(np.quantile(null.variation, _EACH_BOUND)), float(np.quantile(null.one_difference, _EACH_BOUND))),
    )
    return _Test(
        n_kinds=sum(len(t.left) for t in found),
        p=min(1.0, 2 * (1 + min(beyond)) / (1 + n_permutations)),
        total_variation=float(seen.variation),
        at_least=float(limits.at_least(seen)),
        found_at=_found_at(found, weights, limits, n_power, int(rng.integers(1 << 62))) if n_power else None,
    )


_EACH_BOUND = 1 - (1 - BOUND_CONFIDENCE) / 2


@dataclass(frozen=True)
class _Limits:
    """What chance alone seldom exceeds."""

    critical: tuple[float, float]
    noise: tuple[float, float]

    def at_least(self, of: Measures) -> NDArray[np.float64]:
        """Lower bound of the total variation.

        What is seen is at most the true value and the noise of both samples, of all kinds as of each. The permutations show that
        noise, and show it too large rather than too small, since a mixture varies more than its parts.
        """
        return np.maximum(0.0, np.maximum(of.variation - self.noise[0], of.one_difference - self.noise[1]))

    def accuse(self, of: Measures) -> NDArray[np.bool_]:
        significant = (of.all_kinds > self.critical[0]) | (of.one_kind > self.critical[1])
        found: NDArray[np.bool_] = significant & (self.at_least(of) > ACCUSE_TV)
        return found


def shared_out(found: Sequence[Table], weights: NDArray[np.float64], n_permutations: int, rng: np.random.Generator) -> Measures:
    """The measures, ``n_permutations`` of each, where chance alone says which draw belongs to which arm."""
    batches = []
    for n in itertools.chain([_BATCH] * (n_permutations // _BATCH), [n_permutations % _BATCH]):
        if n:
            both = [t.left + t.right for t in found]
            lefts = [
                rng.multivariate_hypergeometric(b, int(t.left.sum()), size=n, method="marginals").astype(np.int64)
                for b, t in zip(both, found)
            ]
            batches.append(measured([(left, b - left) for left, b in zip(lefts, both)], weights))
    return Measures(*(np.concatenate(columns) for columns in zip(*batches)))


# --- what would have been found ---


def _found_at(found: Sequence[Table], weights: NDArray[np.float64], limits: _Limits, n_power: int, seed: int) -> float | None:
    """The smallest shift of probability, as total variation, that an accusation follows in nine of ten simulated tests."""
    shapes = [t.left / t.left.sum() for t in found]
    most = float(sum(w * max(p.max(), 1 - p.max()) for w, p in zip(weights, shapes)))

    def is_found(shift: float) -> bool:
        rng = np.random.default_rng(seed)  # the same chance for each shift, so that more shift is never found less
        pairs = []
        for table, p in zip(found, shapes):
            left = rng.multinomial(int(table.left.sum()), p, size=n_power)
            pairs.append((left, rng.multinomial(int(table.right.sum()), shifted(p, shift), size=n_power)))
        return bool(limits.accuse(measured(pairs, weights)).mean() >= POWER)

    low, high = 0.0, most
    if not is_found(high):
        return None
    while high - low > 0.001:
        middle = (low + high) / 2
        low, high = (low, middle) if is_found(middle) else (middle, high)
    return high


def shifted(shares: NDArray[np.float64], shift: float) -> NDArray[np.float64]:
    """``shift`` of the probability moved to the likeliest kind from all others in proportion, or from it where it has most."""
    top = int(np.argmax(shares))
    others = 1 - shares[top]
    moved = shares.copy()
    if shares[top] <= 0.5:
        shift = min(shift, others)
        moved *= 1 - shift / others
        moved[top] = shares[top] + shift
        return moved
    shift = min(shift, float(shares[top]))
    if others > 0:
        moved *= 1 + shift / others
    moved[top] = shares[top] - shift
    # rounding makes a little more than 1 of all that there is, which no draw accepts
    return np.clip(moved, 0.0, 1.0) if others > 0 else shares

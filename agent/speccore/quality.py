"""Whether answers are still the target's: greedy answers beside the baseline's, task checks, and what both say of an arm.

What was answered stands in private evidence files, not among an attempt's numbers: it is read here, from their bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, TypeVar

from pydantic import ValidationError

from . import stats
from .agreement import Agreement, Output, agreement, arm_pairs, asked_of, own_pairs, read_output
from .formats import percent
from .inventory import Peer
from .measurement import Withheld
from .protocol import TrialPlan
from .quality_results import GREEDY_ANSWERS, TASK_CHECKS, AgreementResult, QualityMeasure
from .records import CONTINUATIONS, RECORDS, SECOND_LOOK, TEXTS, Continuation, SecondLook, StreamRecord, TextRecord
from .spec import ExperimentSpec, Point
from .verdict import QUALITY_TOLERANCE

#: The files of an attempt that are read here.
FILES = (RECORDS, TEXTS, SECOND_LOOK, CONTINUATIONS)
_NAMED = 10
#: So many prompts answered alike show quality held; fewer never do.
LEAST_TO_HOLD = stats.prompts_to_hold(QUALITY_TOLERANCE)

_Model = TypeVar("_Model", bound=Peer)
Pairs = list[tuple[Output, Output]]


@dataclass(frozen=True)
class Look:
    """What the target said when it was asked again: its tokens, and at each how far apart its two likeliest were."""

    output: Output
    point: str
    gaps_nat: tuple[float, ...]


@dataclass
class TrialAnswers:
    """Of one attempt that counts. ``left_out``: in words why answers can't be laid beside others, with how many, by point."""

    arm: str
    block: int
    outputs: dict[str, list[Output]] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    continuations: list[Continuation] = field(default_factory=list)
    left_out: dict[str, Counter[str]] = field(default_factory=dict)


def greedy_points(spec: ExperimentSpec) -> set[str]:
    return {p.key for p in spec.points if p.sampling.temperature == 0}


def read_answers(files: Mapping[str, bytes], spec: ExperimentSpec, trial: TrialPlan) -> TrialAnswers:
    """Never raises for what the files hold: a line that can't be read is one answer less."""
    found = TrialAnswers(trial.arm, trial.block)
    greedy = greedy_points(spec)
    asked: dict[str, Output] = {}  # by probe
    seen: Counter[tuple[str, str]] = Counter()
    for line, text_line in zip_longest(_lines(files, RECORDS), _lines(files, TEXTS)):
        if line is None or not _is_of(line, greedy):
            continue
        record = _decoded(StreamRecord, line)
        if record is None or record.warmup:
            continue
        text = _decoded(TextRecord, text_line) if text_line else None
        output = read_output(record, text, trial.block) if text and text.probe == record.probe else "its text is not in the evidence"
        if isinstance(output, str):
            found.left_out.setdefault(record.point, Counter())[output] += 1
            continue
        assert text is not None
        # An item that is asked several times is a task of several turns: each of them is a prompt of its own.
        seen[record.point, record.item] += 1
        turn = seen[record.point, record.item]
        name = record.item if turn == 1 else f"{record.item}, turn {turn}"
        asked[record.probe] = replace(output, item=name, asked=asked_of(text.request))
        found.outputs.setdefault(record.point, []).append(asked[record.probe])
    for line in _lines(files, SECOND_LOOK):
        look = _decoded(SecondLook, line)
        if look and not look.problem and look.probe in asked:
            again = replace(asked[look.probe], ids=tuple(look.ids), cut=look.cut)
            found.looks.append(Look(again, look.point, tuple(look.gaps_nat)))
    found.continuations = [c for line in _lines(files, CONTINUATIONS) if (c := _decoded(Continuation, line))]
    return found


def _lines(files: Mapping[str, bytes], name: str) -> list[str]:
    return [line for line in files.get(name, b"").decode("utf-8", errors="replace").split("\n") if line.strip()]


def _is_of(line: str, points: set[str]) -> bool:
    """Looked at before the line is decoded: records of sampled points are many and of no use here."""
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError):
        return False
    point = data.get("point") if isinstance(data, dict) else None
    return isinstance(point, str) and point in points


def _decoded(model: type[_Model], line: str) -> _Model | None:
    try:
        return model.model_validate_json(line)
    except ValidationError:
        return None


# --- greedy answers ---


@dataclass(frozen=True)
class Compared:
    """Pairs of greedy answers with what is known of where they part; prompts count once, however often they were asked."""

    pairs: Pairs
    found: Agreement

    def result(self) -> AgreementResult:
        wrong = self.found.wrong_prompts()
        return AgreementResult(
            n=self.found.n,
            n_identical=self.found.n_identical,
            n_near_tie=len(self.found.of_kind("near-tie")),
            n_wrong=len(self.found.of_kind("wrong")),
            n_unknown=len(self.found.of_kind("not known")),
            n_prompts=len({left.item for left, _ in self.pairs}),
            wrong_prompts=wrong[:_NAMED],
            n_wrong_prompts=len(wrong),
            median_first=self.found.median_first,
            words=self.found.words(),
        )

    def right(self, *, unknown: float) -> dict[str, float]:
        """Prompt: share of its pairs that don't part wrongly; one of which nothing is known counts ``unknown``."""
        n = Counter(left.item for left, _ in self.pairs)
        wrong = Counter(d.item for d in self.found.of_kind("wrong"))
        not_known = Counter(d.item for d in self.found.of_kind("not known"))
        return {item: 1 - (wrong[item] + (1 - unknown) * not_known[item]) / n[item] for item in n}


class Greedy:
    """The greedy answers of a job at one point."""

    def __init__(self, spec: ExperimentSpec, point: Point, trials: Sequence[TrialAnswers]) -> None:
        self._spec, self._point, self._trials = spec, point, trials
        self._looks: dict[str, list[Look]] = {}
        for look in (look for t in trials for look in t.looks):
            self._looks.setdefault(look.output.asked, []).append(look)
        self.own = self._compared(self._own_pairs())

    def of_arm(self, arm: str) -> Compared:
        return self._compared(arm_pairs(self._of(self._spec.baseline.name), self._of(arm)))

    def why_none(self, *arms: str) -> Withheld:
        """Where there is no pair of answers."""
        if self._point.sampling.temperature > 0:
            said = f"answers are drawn at temperature {self._point.sampling.temperature:g}: no two need be alike"
            return Withheld(withheld=said, reason_code="not_greedy")
        reasons = Counter[str]()
        for t in self._trials:
            if t.arm in arms:
                reasons += t.left_out.get(self._point.key, Counter())
        why = f": {reasons.most_common(1)[0][0]}" if reasons else ""
        return Withheld(withheld=f"no prompt has two answers to compare{why}", reason_code="no_answers")

    def _own_pairs(self) -> Pairs:
        """The baseline beside itself: over blocks, beside a second arm like it, and asked again within the start."""
        own = self._of(self._spec.baseline.name)
        pairs = own_pairs(own)
        for arm in self._spec.arms:
            if arm.is_repeat:
                pairs += arm_pairs(own, self._of(arm.name))
        again = [look.output for t in self._trials for look in t.looks if look.point == self._point.key]
        return pairs + arm_pairs(own, again)

    def _of(self, arm: str) -> list[Output]:
        return [o for t in self._trials if t.arm == arm for o in t.outputs.get(self._point.key, ())]

    def _compared(self, pairs: Pairs) -> Compared:
        return Compared(pairs, agreement(pairs, self._gap))

    def _gap(self, left: Output, at: int) -> float | None:
        """What holds after the tokens that both have: any answer to the same prompt that begins with them tells it."""
        for look in self._looks.get(left.asked, ()):
            if at < len(look.gaps_nat) and look.output.ids[:at] == left.ids[:at]:
                return look.gaps_nat[at]
        return None


# --- held, lost, not shown ---


def greedy_measure(own: Compared, arm: Compared) -> QualityMeasure:
    """Prompts that the arm answers wrongly, against those that the baseline answers wrongly beside itself.

    Where the target was not asked, the doubt goes against what would be claimed: such a prompt is no proof of a loss, and none of
    quality held.
    """
    if not arm.pairs:
        return QualityMeasure(name=GREEDY_ANSWERS, state="not checked", sentence="no greedy prompt has an answer of both")
    kindest = _difference(own.right(unknown=0), arm.right(unknown=1))
    harshest = _difference(own.right(unknown=1), arm.right(unknown=0))
    result = arm.result()
    shares = f"{result.n_wrong_prompts} of {result.n_prompts} greedy prompts answered wrongly where the target is sure"
    own_words = f"the baseline beside itself: {own.result().n_wrong_prompts} of {own.result().n_prompts}" if own.pairs else ""
    beside = f" ({own_words})" if own_words else ""
    if kindest.high < -QUALITY_TOLERANCE:
        return _measure(GREEDY_ANSWERS, "lost", f"has {shares}{beside}", kindest)
    if harshest.low > -QUALITY_TOLERANCE:
        return _measure(GREEDY_ANSWERS, "held", f"{shares}{beside}", harshest)
    return _measure(GREEDY_ANSWERS, "not shown", f"{shares}{beside}; n = {harshest.n}, needs about {harshest.needed} prompts", harshest)


def _difference(own: Mapping[str, float], arm: Mapping[str, float]) -> stats.PassDifference:
    found = stats.pass_difference([(own.get(item, 1.0), share) for item, share in arm.items()], QUALITY_TOLERANCE)
    assert isinstance(found, stats.PassDifference)  # there is a prompt
    return found


def task_measure(quality: stats.PassDifference | Withheld) -> QualityMeasure:
    if isinstance(quality, Withheld):
        return QualityMeasure(name=TASK_CHECKS, state="not checked", sentence=quality.withheld)
    shares = f"{percent(quality.arm)} of the task checks passed, {percent(quality.baseline)} in the baseline"
    if quality.high < -QUALITY_TOLERANCE:
        return _measure(TASK_CHECKS, "lost", shares, quality)
    if quality.low > -QUALITY_TOLERANCE:
        return _measure(TASK_CHECKS, "held", shares, quality)
    return _measure(TASK_CHECKS, "not shown", f"{shares}; n = {quality.n}, needs about {quality.needed} prompts", quality)


def _measure(name: str, state: Any, sentence: str, d: stats.PassDifference) -> QualityMeasure:
    return QualityMeasure(
        name=name, state=state, sentence=sentence, n=d.n, baseline=d.baseline, arm=d.arm, low=d.low, high=d.high, needed=d.needed
    )

"""What the answers of a whole job say, brought to each comparison: agreement, quality, and the checks on both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from . import quality_checks, sampling_plan, stats
from .measurement import DEFINED_LATER, Check, Withheld
from .quality import Greedy, TrialAnswers, greedy_measure, task_measure
from .quality_results import AgreementResult, QualityMeasure, SamplingResult
from .spec import Arm, ExperimentSpec, Point


@dataclass(frozen=True)
class Said:
    """Of one arm at one point. Without answers that could be read, task checks are all there is."""

    quality: list[QualityMeasure]
    agreement: AgreementResult | Withheld = DEFINED_LATER
    own_agreement: AgreementResult | Withheld = DEFINED_LATER
    checks: list[Check] = field(default_factory=list)


class AnswersOfJob:
    """``trials`` are those of the attempts that count; None: nobody has read them."""

    def __init__(self, spec: ExperimentSpec, trials: Sequence[TrialAnswers] | None) -> None:
        self._spec, self._trials = spec, trials
        self._greedy: dict[str, Greedy] = {}
        self.sampling: SamplingResult | Withheld | None = None if trials is None else sampling_plan.judged(spec, trials)

    @property
    def are_read(self) -> bool:
        return self._trials is not None

    def at(self, arm: Arm, point: Point, checked: stats.PassDifference | Withheld) -> Said:
        measures = [task_measure(checked)]
        if self._trials is None:
            return Said(measures)
        drawn = sampling_plan.measure(self.sampling, arm.name) if point.sampling.temperature > 0 else None
        checks = [] if self.sampling is None or arm.control else [quality_checks.sampling(self.sampling, arm.name)]
        greedy = self._greedy.get(point.key) or Greedy(self._spec, point, self._trials)
        self._greedy[point.key] = greedy
        why_none = greedy.why_none(self._spec.baseline.name, arm.name)
        if point.sampling.temperature > 0:
            return Said([*measures, *([drawn] if drawn else [])], why_none, why_none, checks)
        own, beside = greedy.own, greedy.of_arm(arm.name)
        checks += [quality_checks.own_answers(own, why_none), quality_checks.greedy_answers(beside, own, why_none)]
        return Said(
            [*measures, greedy_measure(own, beside)],
            beside.result() if beside.pairs else why_none,
            own.result() if own.pairs else why_none,
            checks,
        )

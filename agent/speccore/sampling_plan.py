"""The sampling-rule test inside an experiment: what each start of the engine draws, and what all draws say together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .canonical import sha256_of
from .dealing import rng
from .measurement import Withheld
from .protocol import JobPlan, TrialPlan
from .quality import TrialAnswers
from .quality_results import SAMPLING_RULE, QualityMeasure, SamplingJudged, SamplingPosition, SamplingResult
from .sampling_rule import MIN_CONTINUATIONS, Answer, Judged, sampling_rule
from .spec import ExperimentSpec, SamplingTest
from .workload import Item, Workload

#: Tokens asked for beyond the last position that is looked at, so that an engine drafts up to it.
BEYOND = 2
#: More failed requests than this are no matter of chance, and those that are left may be chosen by it.
MOST_FAILED = 0.01
#: Simulated tests that tell what would have been found.
_N_POWER = 200
_SEEDS = 2**31


def each_trial(spec: ExperimentSpec, test: SamplingTest) -> int:
    """Continuations of one arm in one block."""
    return math.ceil(test.continuations / spec.blocks)


def sizes(spec: ExperimentSpec, plan: JobPlan) -> dict[str, int]:
    """How many each trial draws. Of an arm with a trial for each point the first one does.

    The baseline draws twice as many where no second arm of mode off is its control.
    """
    if spec.sampling_test is None:
        return {}
    share = each_trial(spec, spec.sampling_test)
    found: dict[str, int] = {}
    seen: set[tuple[int, str]] = set()
    for trial in plan.trials:
        if (trial.block, trial.arm) not in seen:
            seen.add((trial.block, trial.arm))
            found[trial.id] = 2 * share if trial.arm == spec.baseline.name and not _control(spec) else share
    return found


def draws(spec: ExperimentSpec, trial: TrialPlan, n: int) -> list[int]:
    """The seeds of a trial's continuations: disjoint between arms, blocks and the two halves of the baseline."""
    first = _first_seed(spec, trial.arm, trial.block)
    return [first + i for i in range(n)]


def _first_seed(spec: ExperimentSpec, arm: str, block: int) -> int:
    assert spec.sampling_test is not None
    room = 2 * each_trial(spec, spec.sampling_test)
    base = int(sha256_of([spec.seed, "sampling"])[:16], 16) % (_SEEDS - room * spec.blocks * len(spec.arms))
    place = [a.name for a in spec.arms].index(arm) * spec.blocks + block - 1
    return base + place * room


def prompt(spec: ExperimentSpec, workload: Workload) -> Item:
    """The one prompt that is continued, drawn from the experiment's seed: further positions meet many contexts anyway."""
    return rng(spec.seed, "sampling").choice(workload.items)


def _control(spec: ExperimentSpec) -> str:
    return next((a.name for a in spec.arms if a.is_repeat), "")


# --- what the draws say ---


@dataclass(frozen=True)
class _Drawn:
    """What one arm drew in all blocks, or in words why that is no sample."""

    answers: list[Answer]
    drafted: int | None
    problem: str = ""


def judged(spec: ExperimentSpec, trials: Sequence[TrialAnswers]) -> SamplingResult | Withheld | None:
    """Pools each arm's draws over its blocks and holds them against the baseline's. None where no test is asked for."""
    test = spec.sampling_test
    if test is None:
        return None
    drawn = {a.name: _drawn(spec, test, a.name, trials) for a in spec.arms}
    baseline, control = _two_samples(spec, test, drawn)
    if why := baseline.problem or control.problem or (f"the baseline drafted {baseline.drafted:,} tokens" if baseline.drafted else ""):
        return Withheld(withheld=f"the sampling test says nothing: {why}", reason_code="no_sample")
    arms = [a.name for a in spec.arms if not a.is_baseline and not a.control]
    problems = {name: why for name in arms if (why := _why_not(drawn[name]))}
    testable = {name: drawn[name].answers for name in arms if name not in problems}
    try:
        found = sampling_rule(baseline.answers, control.answers, testable, positions=test.positions, n_power=_N_POWER, seed=spec.seed)
    except ValueError as error:  # a seed twice, other prompts: evidence of no agent of ours
        return Withheld(withheld=f"the sampling test says nothing: {error}", reason_code="no_sample")
    if isinstance(found, Withheld):
        return found
    by_arm = {j.arm: j for j in found.arms}
    told = [
        SamplingJudged(arm=name, outcome="not tested", words=problems[name], n=len(drawn[name].answers), drafted=drawn[name].drafted)
        if name in problems
        else _told(by_arm[name], drawn[name].drafted)
        for name in arms
    ]
    return SamplingResult(
        workload=test.workload,
        temperature=test.sampling.temperature,
        n_baseline=found.n_baseline,
        control=_told(found.control, None),
        arms=told,
    )


def _drawn(spec: ExperimentSpec, test: SamplingTest, arm: str, trials: Sequence[TrialAnswers]) -> _Drawn:
    all_of_it = [c for t in trials if t.arm == arm for c in t.continuations]
    failed = [c for c in all_of_it if c.problem]
    good = [c for c in all_of_it if not c.problem]
    answers = [Answer(c.item, c.seed, tuple(c.ids[: test.positions])) for c in good]
    drafted = [c.drafted for c in good if c.drafted is not None]
    problem = ""
    if len(failed) > MOST_FAILED * len(all_of_it):
        problem = f"{len(failed)} of {len(all_of_it)} continuations of {arm} failed, the first: {failed[0].problem}"
    elif len(answers) < MIN_CONTINUATIONS:
        problem = f"{arm} has {len(answers)} continuations, {MIN_CONTINUATIONS} are needed"
    return _Drawn(answers, sum(drafted) if drafted else None, problem)


def _two_samples(spec: ExperimentSpec, test: SamplingTest, drawn: Mapping[str, _Drawn]) -> tuple[_Drawn, _Drawn]:
    """The baseline and its control: a second arm of mode off, else the second half of what the baseline drew in each block."""
    baseline = drawn[spec.baseline.name]
    if control := _control(spec):
        return baseline, drawn[control]
    share = each_trial(spec, test)
    first = _first_seed(spec, spec.baseline.name, 1)
    halves: tuple[list[Answer], list[Answer]] = ([], [])
    for answer in baseline.answers:
        halves[(answer.seed - first) // share % 2].append(answer)
    small = min(map(len, halves))
    problem = baseline.problem or (
        f"half of the baseline's continuations are {small}, {MIN_CONTINUATIONS} are needed" if small < MIN_CONTINUATIONS else ""
    )
    return _Drawn(halves[0], baseline.drafted, problem), _Drawn(halves[1], None, problem)


def _why_not(drawn: _Drawn) -> str:
    if drawn.problem:
        return drawn.problem
    return "" if drawn.drafted else f"nothing was drafted in {len(drawn.answers):,} continuations, so nothing was tested"


def _told(j: Judged, drafted: int | None) -> SamplingJudged:
    positions = [
        SamplingPosition(
            position=p.position,
            n_kinds=p.n_kinds,
            p=p.p_adjusted,
            total_variation=p.total_variation,
            at_least=p.at_least,
            found_at=p.found_at,
        )
        for p in j.positions
    ]
    return SamplingJudged(arm=j.arm, outcome=j.outcome, words=j.words, n=j.n, drafted=drafted, positions=positions)


def measure(found: SamplingResult | Withheld | None, arm: str) -> QualityMeasure | None:
    """What the test says of one arm. It can show a loss; that nothing was found is no proof of sameness beyond its power."""
    if found is None:
        return None
    if isinstance(found, Withheld):
        return QualityMeasure(name=SAMPLING_RULE, state="not checked", sentence=found.withheld)
    one = next((a for a in found.arms if a.arm == arm), None)
    if one is None:
        return None
    state = {"accused": "lost", "not accused": "not shown"}.get(one.outcome, "not checked")
    sentence = f"at temperature {found.temperature:g} {one.words}" if one.outcome == "not accused" else one.words
    return QualityMeasure.model_validate({"name": SAMPLING_RULE, "state": state, "sentence": sentence, "n": one.n})

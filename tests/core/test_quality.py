"""Answers of a whole job: read from evidence, sorted into near-ties and wrong ones, and what that makes of an arm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from speccore.answers_of_job import AnswersOfJob
from speccore.cautions import cautions
from speccore.compare import JobFacts, analyse_job
from speccore.measurement import ComparisonResult, JobAnalysis, Withheld
from speccore.protocol import TrialPlan
from speccore.quality import TrialAnswers, read_answers
from speccore.quality_results import AgreementResult
from speccore.records import Continuation, SecondLook, StreamEvent, StreamRecord, TextRecord
from speccore.spec import ExperimentSpec

from tests.core.made import attempts, planned, spec_of, wobble, workload

IDS = list(range(100, 120))
SURE, TIED = 3.0, 0.1
FACTS = JobFacts(noise_floor=0.005, hashes_verified=True, n_hashes=80)
Answer = Callable[[TrialPlan, str], list[int]]


def lines(*models: Any) -> bytes:
    return b"".join(m.model_dump_json().encode() + b"\n" for m in models)


def files(spec: ExperimentSpec, trial: TrialPlan, answer: Answer, look: Answer | None, gaps: Mapping[int, float]) -> dict[str, bytes]:
    """The evidence of a trial that answered so. ``gaps``: by token, where the target was not sure."""
    records, texts, looks = [], [], []
    for p in trial.probes:
        ids, temperature = answer(trial, p.item), spec.point(p.point).sampling.temperature
        at = {"connected_at_s": 0.0, "sent_at_s": 0.1, "closed_at_s": 2.0}
        event = StreamEvent(at_s=1.0, tokens=len(ids))
        final = {"stop_type": "limit"}
        named = {"probe": p.id, "point": p.point, "item": p.item}
        records.append(StreamRecord(**named, seed=1, path="/completion", request_sha256="", status=200, events=[event], final=final, **at))
        texts.append(TextRecord(probe=p.id, request={"prompt": p.item, "temperature": temperature}, texts=[""], ids=[ids]))
        if look and spec.arm(trial.arm).is_baseline:
            again = look(trial, p.item)
            looks.append(SecondLook(**named, ids=again, gaps_nat=[gaps.get(i, SURE) for i in range(len(again))], cut=True))
    return {"records.jsonl": lines(*records), "texts.jsonl": lines(*texts), "second-look.jsonl": lines(*looks)}


def same(trial: TrialPlan, item: str) -> list[int]:
    return IDS


def parted(arm: str, *items: str, at: int = 5, block: int | None = None) -> Answer:
    """The named arm answers these items otherwise from a token on."""

    def answer(trial: TrialPlan, item: str) -> list[int]:
        if trial.arm != arm or item not in items or block not in (None, trial.block):
            return IDS
        return IDS[:at] + [7] * (len(IDS) - at)

    return answer


def items_of(spec: ExperimentSpec, **workloads: Any) -> list[str]:
    return sorted({p.item for t in planned(spec, **workloads).trials for p in t.probes})


def analysed(
    spec: ExperimentSpec,
    answer: Answer = same,
    look: Answer | None = same,
    gaps: Mapping[int, float] | None = None,
    speeds: Mapping[str, float] | None = None,
) -> JobAnalysis:
    plan = planned(spec)
    read = [read_answers(files(spec, t, answer, look, gaps or {}), spec, t) for t in plan.trials]
    measured = attempts(spec, plan, dict(speeds or {"off": 1.0, "draft-4": 2.0}), noise=wobble)
    return analyse_job(spec, plan, measured, [], FACTS, answers_read=read)


def compared(spec: ExperimentSpec, *args: Any, **more: Any) -> ComparisonResult:
    return analysed(spec, *args, **more).comparisons[0]


def check_of(c: ComparisonResult, name: str) -> tuple[str, str, str]:
    found = next(check for check in c.checks if check.name == name)
    return found.kind, found.state, found.sentence


OWN, GREEDY = "baseline agrees with itself", "greedy answers"
SPEC = spec_of(points=[{"workload": "count", "probes": 4}], blocks=5)
ITEMS = items_of(SPEC)


class TestAgreement:
    def test_an_arms_agreement_stands_beside_the_baselines_own(self) -> None:
        c = compared(SPEC, parted("draft-4", ITEMS[0], at=9), gaps={9: TIED})
        assert isinstance(c.agreement, AgreementResult)
        assert isinstance(c.own_agreement, AgreementResult)
        assert (c.agreement.n, c.agreement.n_identical, c.agreement.n_near_tie, c.agreement.median_first) == (20, 19, 1, 9)
        assert (c.own_agreement.n_prompts, c.own_agreement.n_identical) == (20, c.own_agreement.n)
        assert check_of(c, GREEDY)[1] == "passed"

    def test_where_the_target_was_sure_another_token_is_wrong(self) -> None:
        found = analysed(SPEC, parted("draft-4", ITEMS[0]))
        (c,) = found.comparisons
        assert isinstance(c.agreement, AgreementResult)
        assert (c.agreement.n_wrong, c.agreement.wrong_prompts) == (1, [ITEMS[0]])
        kind, state, sentence = check_of(c, GREEDY)
        assert (kind, state) == ("soft", "failed")
        assert f"1 of 20 greedy prompts are answered wrongly where the target is sure, first {ITEMS[0]}" in sentence
        assert c.verdict.word == "keep"  # one is too few to say that quality is lost, and stands beside the speed wherever that is told
        for said in (c.verdict.sentence, found.answers[0]["sentence"]):
            assert "1 of 20 greedy prompts" in said
            assert "answered wrongly where the target is sure" in said

    def test_without_a_second_look_nobody_knows(self) -> None:
        c = compared(SPEC, parted("draft-4", *ITEMS), look=None)
        assert isinstance(c.agreement, AgreementResult)
        assert (c.agreement.n_unknown, c.agreement.n_wrong) == (20, 0)
        assert check_of(c, GREEDY)[:2] == ("soft", "not checked")
        assert c.verdict.word == "keep"

    def test_a_second_look_speaks_of_what_it_saw_only(self) -> None:
        """It went another way before the place in question, so that what it held there was of another text."""
        c = compared(SPEC, parted("draft-4", ITEMS[0], at=9), look=parted("off", ITEMS[0], at=3), gaps={3: TIED})
        assert isinstance(c.agreement, AgreementResult)
        assert (c.agreement.n_unknown, c.agreement.n_wrong) == (1, 0)

    def test_drawn_answers_are_not_laid_beside_each_other(self) -> None:
        c = compared(spec_of(points=[{"workload": "count", "sampling": {"temperature": 0.8}}], blocks=5))
        assert isinstance(c.agreement, Withheld)
        assert c.agreement.withheld == "answers are drawn at temperature 0.8: no two need be alike"
        assert GREEDY not in [check.name for check in c.checks]
        assert [m.name for m in c.quality] == ["task checks"]

    def test_evidence_of_before_says_what_it_always_said(self) -> None:
        plan = planned(SPEC)
        found = analyse_job(SPEC, plan, attempts(SPEC, plan, {"off": 1.0, "draft-4": 2.0}), [], FACTS)
        assert OWN in [check.name for check in found.checks]
        assert isinstance(found.comparisons[0].agreement, Withheld)


class TestBaselineAgreesWithItself:
    def test_one_wrong_prompt_in_twenty_makes_the_comparison_invalid(self) -> None:
        c = compared(SPEC, look=parted("off", ITEMS[3]))
        kind, state, sentence = check_of(c, OWN)
        assert (kind, state) == ("hard", "failed")
        assert "another answer to 1 of 20 greedy prompts, and not for a near-tie" in sentence
        assert sentence.endswith(f"first in {ITEMS[3]}")
        assert (c.verdict.word, c.verdict.reason) == ("invalid", OWN)

    def test_near_ties_do_not_count(self) -> None:
        c = compared(SPEC, look=parted("off", *ITEMS[:10]), gaps={5: TIED})
        assert check_of(c, OWN)[:2] == ("hard", "passed")
        assert "10 near-ties" in check_of(c, OWN)[2]
        assert c.verdict.word == "keep"

    def test_one_wrong_prompt_in_a_hundred_is_borne(self) -> None:
        spec = spec_of(points=[{"workload": "count", "probes": 20}], blocks=5)
        plan = planned(spec, count=workload(n=100))
        first = plan.trials[0].probes[0].item
        read = [read_answers(files(spec, t, same, parted("off", first), {}), spec, t) for t in plan.trials]
        own = AnswersOfJob(spec, read).at(spec.arm("draft-4"), spec.points[0], Withheld(withheld="no")).checks[0]
        assert (own.state, own.evidence["wrong"], own.evidence["prompts"]) == ("passed", [first], 100)

    def test_a_control_arm_is_the_baseline_once_more(self) -> None:
        spec = spec_of(
            {"name": "again", "mode": "off", "control": True},
            {"name": "draft-4", "mode": "draft", "draft_model": "d", "draft_limit": 4},
            points=[{"workload": "count", "probes": 4}],
            blocks=5,
        )
        found = analysed(spec, parted("again", ITEMS[0], ITEMS[1]), speeds={"off": 1.0, "again": 1.0, "draft-4": 2.0})
        draft = next(c for c in found.comparisons if c.arm == "draft-4")
        assert check_of(draft, OWN)[:2] == ("hard", "failed")


class TestQuality:
    def test_an_arm_whose_greedy_answers_are_wrong_loses_quality_however_fast_it_is(self) -> None:
        c = compared(SPEC, parted("draft-4", *ITEMS[:12]))
        assert (c.verdict.word, c.verdict.reason) == ("disable", "quality")
        assert c.verdict.sentence.startswith("has 12 of 20 greedy prompts answered wrongly where the target is sure")
        measure = next(m for m in c.quality if m.name == GREEDY)
        assert (measure.state, measure.n, measure.baseline, measure.arm) == ("lost", 20, 1.0, 0.4)
        assert measure.high is not None
        assert measure.high < -0.02

    def test_doubt_proves_no_loss_and_no_quality_held(self) -> None:
        c = compared(SPEC, parted("draft-4", *ITEMS[:12]), look=None)
        assert next(m for m in c.quality if m.name == GREEDY).state == "not shown"

    def test_enough_equal_answers_show_quality_held(self) -> None:
        points = [{"workload": "count", "probes": 30}]
        few, many = spec_of(points=points, blocks=3), spec_of(points=points, blocks=5)
        for spec, n, state in ((few, 60, "not shown"), (many, 100, "held")):
            plan = planned(spec, count=workload(n=n))
            read = [read_answers(files(spec, t, same, same, {}), spec, t) for t in plan.trials]
            said = AnswersOfJob(spec, read).at(spec.arm("draft-4"), spec.points[0], Withheld(withheld="no prompt has a check"))
            found = {m.name: m for m in said.quality}
            assert found["task checks"].state == "not checked"
            assert (found[GREEDY].state, found[GREEDY].n, found[GREEDY].needed) == (state, n, 96)

    @pytest.mark.parametrize(("required", "word"), [("not lost", "keep"), ("held", "inconclusive")])
    def test_what_is_required_decides_what_is_not_shown(self, required: str, word: str) -> None:
        spec = spec_of(points=[{"workload": "count", "probes": 4}], blocks=5, requirements={"quality": required})
        verdict = compared(spec).verdict
        assert verdict.word == word
        assert ("greedy answers, n = 20, needs about 96 prompts" in verdict.sentence) == (word == "inconclusive")

    def test_who_requires_quality_held_hears_before_that_too_few_prompts_can_show_it(self) -> None:
        few = spec_of(points=[{"workload": "count", "probes": 4}], blocks=5, requirements={"quality": "held"})
        enough = spec_of(points=[{"workload": "count", "probes": 20}], blocks=5, requirements={"quality": "held"})
        told = [c for c in cautions(few, {"count": workload(n=200)}) if "quality" in c.message]
        assert [c.field for c in told] == ["points.0.probes"]
        assert "takes 96 different prompts at the least; 20 will be asked here" in told[0].message
        assert not [c for c in cautions(enough, {"count": workload(n=200)}) if "quality" in c.message]
        assert not [c for c in cautions(SPEC, {"count": workload(n=200)}) if "quality" in c.message]


class TestReading:
    def test_a_task_of_several_turns_is_so_many_prompts(self) -> None:
        (trial, *_) = planned(SPEC).trials
        read = files(SPEC, trial, same, None, {})
        first = read["records.jsonl"].split(b"\n")[0], read["texts.jsonl"].split(b"\n")[0]
        twice = {"records.jsonl": b"\n".join([first[0], first[0]]), "texts.jsonl": b"\n".join([first[1], first[1]])}
        found = read_answers(twice, SPEC, trial).outputs[SPEC.points[0].key]
        assert [o.item for o in found] == [trial.probes[0].item, f"{trial.probes[0].item}, turn 2"]

    def test_lines_that_cannot_be_read_are_left_out(self) -> None:
        (trial, *_) = planned(SPEC).trials
        read = files(SPEC, trial, same, same, {})
        broken = {name: b'{nonsense\n\xff\n{"point": []}\n' + b"[" * 3000 + b"\n" + content for name, content in read.items()} | {
            "continuations.jsonl": b"[]\n{}\n"
        }
        assert isinstance(read_answers(broken, SPEC, trial), TrialAnswers)
        without = read_answers({"records.jsonl": read["records.jsonl"]}, SPEC, trial)
        assert without.left_out[SPEC.points[0].key] == {"its text is not in the evidence": 4}

    def test_answers_without_ids_say_why_nothing_is_compared(self) -> None:
        c = compared(SPEC, lambda t, item: [])
        assert isinstance(c.agreement, Withheld)
        assert "it came without token ids" in c.agreement.withheld


def test_continuations_of_other_files_are_read_too() -> None:
    (trial, *_) = planned(SPEC).trials
    drawn = Continuation(item="a", seed=3, ids=[1, 2], drafted=4)
    assert read_answers({"continuations.jsonl": lines(drawn)}, SPEC, trial).continuations == [drawn]

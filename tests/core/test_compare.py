"""A whole job's analysis, from measurements with known answers."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
from speccore.compare import JobFacts, analyse_job
from speccore.measurement import ComparisonResult, Interval, JobAnalysis, Number, Source, Withheld, value_of
from speccore.outages import TrialFailure
from speccore.pairs import Results
from speccore.plan import plan_job
from speccore.protocol import JobPlan, ProbePlan, TrialPlan
from speccore.spec import ExperimentSpec

from tests.core.made import DRAFT, OFF, attempts, counters, number, planned, spec_of, wobble, workload

FACTS = JobFacts(noise_floor=0.005, hashes_verified=True, n_hashes=80)
TEN = [{"workload": "count", "probes": 2}]


def draft(limit: int, **more: Any) -> dict[str, Any]:
    return {"name": f"draft-{limit}", "mode": "draft", "draft_model": "d", "draft_limit": limit} | more


def analysed(spec: ExperimentSpec, speeds: dict[str, float], *, failures: Any = (), facts: JobFacts = FACTS, **more: Any) -> JobAnalysis:
    plan = planned(spec, count=more.pop("count", workload(n=80)))
    return analyse_job(spec, plan, attempts(spec, plan, speeds, **({"noise": wobble} | more)), list(failures), facts)


def only(analysis: JobAnalysis) -> ComparisonResult:
    (comparison,) = analysis.comparisons
    return comparison


def check(c: ComparisonResult, name: str) -> str:
    return next(k for k in c.checks if k.name == name).state


def failure(trial: str, arm: str, block: int, code: str = "engine_exited_at_start", **more: Any) -> TrialFailure:
    return TrialFailure(trial=trial, arm=arm, block=block, code=code, message="no such file", **more)


def test_a_twofold_arm_is_kept() -> None:
    analysis = analysed(spec_of(draft(4), points=TEN), {"off": 1.0, "draft-4": 2.0})
    c = only(analysis)
    assert isinstance(c.speedup, Interval)
    assert c.speedup.estimate == pytest.approx(2.0, rel=0.01)
    assert c.speedup.n_blocks == 5
    assert c.speedup.method == "t over blocks"
    assert math.exp(statistics.fmean(c.block_values.values())) == pytest.approx(c.speedup.estimate)
    assert (c.verdict.word, c.verdict.reason, c.recommended) == ("keep", "faster", True)
    assert (c.n_prompts, c.n_pairs_dropped) == (10, 0)
    assert [k.name for k in c.checks if k.kind == "hard" and k.state != "passed"] == []
    (answer,) = analysis.answers
    assert (answer["word"], answer["arm"]) == ("keep", "draft-4")
    shown = f"{c.speedup.estimate:.2f}× [{c.speedup.low:.2f}–{c.speedup.high:.2f}]"
    assert answer["sentence"] == (
        f"count at temperature 0: keep draft-4, {shown}, +9 MiB, context kept; quality not checked: no prompt has a check"
    )
    assert len(analysis.attempts_used) == 10


def test_block_values_pair_prompts_inside_their_block() -> None:
    spec = spec_of(draft(4), points=TEN, blocks=3)
    plan = planned(spec)
    # The host is slower in each later block, and each prompt has a cost of its own: both cancel.
    found = analyse_job(
        spec, plan, attempts(spec, plan, {"off": 1.0, "draft-4": 1.25}, noise=lambda t, p: t.block * (1 + len(p.item))), [], FACTS
    )
    assert only(found).block_values == pytest.approx({1: math.log(1.25), 2: math.log(1.25), 3: math.log(1.25)})


def test_numbers_name_their_formula_and_probes() -> None:
    c = only(analysed(spec_of(draft(4), points=TEN), {"off": 1.0, "draft-4": 2.0}, noise=lambda t, p: 1.0))
    expected = {
        "acceptance_rate": 42 / 84,
        "mean_acceptance_length": 1 + 42 / 21,
        "tokens_per_target_pass": 63 / 21,
        "drafted_per_cycle": 84 / 21,
        "cycle_ms": 1000 / 21,
        "plain_step_ms": 2000 / 63,
        "break_even_tokens_per_pass": (1000 / 21) / (2000 / 63),
        "memory_bill_bytes": 9 * 2**20,
        "arm_equal_work_s": 1.0,
        "baseline_equal_work_s": 2.0,
        "arm_e2e_s": 1.0,
        "baseline_e2e_s": 2.0,
        "arm_tokens": 64,
        "arm_tokens_per_s": 63 / 0.9,
        "baseline_tokens_per_s": 63 / 1.8,
    }
    for name, value in expected.items():
        found = getattr(c, name)
        assert isinstance(found, Number), name
        assert found.value == pytest.approx(value), name
        assert found.source.file == "analysis"
    assert c.acceptance_rate.source.field == "Σ accepted ÷ Σ drafted, over 10 probes of draft-4 at count/c1/ctx0/t0, blocks 1–5"  # type: ignore[union-attr]
    assert c.accepted_by_position == pytest.approx([20 / 21, 12 / 21, 6 / 21, 4 / 21])
    assert (c.context_lost_tokens, c.slots_lost) == (0, 0)


def test_missing_counters_are_withheld_never_zero() -> None:
    def change(trial: TrialPlan, p: ProbePlan) -> dict[str, Any]:
        return {} if trial.arm == "off" else {"counters": counters(emitted=63)}

    c = only(analysed(spec_of(draft(4), points=TEN), {"off": 1.0, "draft-4": 2.0}, change=change))
    for name in ("acceptance_rate", "mean_acceptance_length", "tokens_per_target_pass", "cycle_ms", "break_even_tokens_per_pass"):
        assert isinstance(getattr(c, name), Withheld), name
    assert isinstance(c.accepted_by_position, Withheld)


def test_nothing_drafted_is_no_acceptance_of_zero_percent() -> None:
    idle = counters(drafted=0, accepted=0, verify_steps=0, decode_steps=63, emitted=63, eval_ms=2000.0, accepted_by_position=[])
    spec = spec_of({"name": "ngram", "mode": "ngram-simple"}, points=TEN)
    c = only(analysed(spec, {"off": 1.0, "ngram": 0.9}, change=lambda t, p: {} if t.arm == "off" else {"counters": idle}))
    assert c.acceptance_rate == Withheld(withheld="nothing was drafted", reason_code="nothing_counted")
    assert isinstance(c.accepted_by_position, Withheld)
    assert value_of(c.tokens_per_target_pass) == 1.0
    assert (c.verdict.word, c.verdict.reason) == ("disable", "slower")


def test_one_clock_for_both_arms() -> None:
    """Where the engine's time is missing in one probe, the client's is used on both sides."""

    def change(trial: TrialPlan, p: ProbePlan) -> dict[str, Any]:
        if trial.arm == "off" and trial.block == 1:
            return {"counters": counters(decode_steps=63, emitted=63)}
        return {}

    c = only(analysed(spec_of(draft(4), points=TEN), {"off": 1.0, "draft-4": 2.0}, change=change, noise=lambda t, p: 1.0))
    assert value_of(c.plain_step_ms) == pytest.approx(1800 / 63)
    assert value_of(c.cycle_ms) == pytest.approx(900 / 21)


def test_length_of_the_work_is_the_reference_else_the_baselines_median() -> None:
    """Answers of another length are compared at equal work."""
    spec = spec_of(draft(4), points=TEN, blocks=3)

    def change(trial: TrialPlan, p: ProbePlan) -> dict[str, Any]:
        # Half as long an answer at the same pace: not faster, only shorter.
        return {} if trial.arm == "off" else {"completion_tokens": number(32), "server_tokens": number(32), "e2e_s": number(1.0)}

    for reference in (None, 640):
        works = {"count": workload(n=80, reference_tokens=reference)}
        plan = plan_job(spec, works)
        found = analyse_job(spec, plan, attempts(spec, plan, {"off": 1.0, "draft-4": 1.0}, change=change), [], FACTS, workloads=works)
        c = only(found)
        assert isinstance(c.speedup, Interval)
        assert c.speedup.estimate == pytest.approx(1.0)
        tokens = reference or 64
        assert value_of(c.baseline_equal_work_s) == pytest.approx(0.2 + (tokens - 1) / 63 * 1.8)
        assert value_of(c.arm_equal_work_s) == pytest.approx(value_of(c.baseline_equal_work_s))


def test_warmup_counts_in_nothing() -> None:
    spec = spec_of(draft(4), points=TEN, blocks=3)
    plan = planned(spec)
    made = attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=wobble)
    slow = number(9.0)
    cold = {"warmup": True, "ttft_any_s": slow, "completion_tokens": number(5), "cache_hit_tokens": number(7)}
    cold |= {"counters": counters(drafted=1000, accepted=0, verify_steps=10, decode_steps=99, emitted=1, eval_ms=9e5)}
    warmed = [a.model_copy(update={"probes": [*a.probes, a.probes[0].model_copy(update=cold)]}) for a in made]
    assert analyse_job(spec, plan, warmed, [], FACTS) == analyse_job(spec, plan, made, [], FACTS)


def test_a_prompt_that_is_asked_in_many_blocks_has_one_length() -> None:
    """Two prompts in four blocks; the baseline's lengths vary by block, and their median counts in all of them."""
    spec = spec_of(draft(4), points=TEN, blocks=4)
    lengths = {1: 40, 2: 60, 3: 64, 4: 90}

    def change(trial: TrialPlan, p: ProbePlan) -> dict[str, Any]:
        n = lengths[trial.block]
        return {"completion_tokens": number(n), "server_tokens": number(n)} if trial.arm == "off" else {}

    c = only(analysed(spec, {"off": 1.0, "draft-4": 2.0}, change=change, count=workload(n=2), noise=lambda t, p: 1.0))
    assert value_of(c.baseline_equal_work_s) == pytest.approx(0.2 + (62 - 1) / 63 * 1.8)


def test_invalid_answers_give_neither_lengths_nor_counts() -> None:
    """Most answers are broken: their lengths and counters belong to nothing."""
    spec = spec_of(draft(4), points=TEN, blocks=3)
    wild = counters(drafted=1000, accepted=1000, verify_steps=1, decode_steps=1, emitted=1000, eval_ms=1.0, accepted_by_position=[1])

    def change(trial: TrialPlan, p: ProbePlan) -> dict[str, Any]:
        broken = {"ok": False, "failure": "probe_failed", "completion_tokens": number(6400), "counters": wild}
        return broken if trial.block < 3 else {}

    c = only(analysed(spec, {"off": 1.0, "draft-4": 2.0}, change=change, count=workload(n=2), noise=lambda t, p: 1.0))
    assert set(c.block_values) == {3}
    assert value_of(c.baseline_equal_work_s) == pytest.approx(2.0)
    assert value_of(c.acceptance_rate) == pytest.approx(0.5)


def test_an_invalid_prompt_is_dropped_from_both_arms() -> None:
    spec = spec_of(draft(4), points=[{"workload": "count", "probes": 2}], blocks=4)

    def change(trial: TrialPlan, p: ProbePlan) -> dict[str, Any]:
        bad = trial.block == 2 and p.id.endswith("#1") and trial.arm == "draft-4"
        return {"ok": False, "failure": "probe_failed", "failure_message": "broken"} if bad else {}

    c = only(analysed(spec, {"off": 1.0, "draft-4": 2.0}, change=change))
    assert c.n_pairs_dropped == 1
    assert set(c.block_values) == {1, 2, 3, 4}
    assert (c.verdict.word, c.verdict.reason) == ("invalid", "probe failures")
    assert not c.recommended


def test_a_speed_that_cannot_be_told_drops_the_pair() -> None:
    def change(trial: TrialPlan, p: ProbePlan) -> dict[str, Any]:
        return {"decode_tokens_per_s": Withheld(withheld="one arrival", reason_code="one_arrival")} if trial.arm == "draft-4" else {}

    analysis = analysed(spec_of(draft(4), points=TEN), {"off": 1.0, "draft-4": 2.0}, change=change)
    c = only(analysis)
    assert c.speedup == Withheld(withheld="needs 3 blocks, has 0", reason_code="no_blocks")
    assert c.verdict.reason == "probe failures"
    assert "draft-4: one arrival" in c.verdict.sentence
    assert isinstance(c.arm_equal_work_s, Withheld)
    assert analysis.answers[0]["word"] == "invalid"


@pytest.mark.parametrize("n_blocks", [1, 2])
def test_too_few_blocks_have_no_verdict(n_blocks: int) -> None:
    c = only(analysed(spec_of(draft(4), points=TEN, blocks=n_blocks), {"off": 1.0, "draft-4": 2.0}))
    assert isinstance(c.speedup, Interval)
    assert c.speedup.low is None
    assert c.verdict.sentence == f"needs 3 blocks, has {n_blocks}"
    assert (c.verdict.word, c.p_holm) == ("inconclusive", None)


def test_a_block_without_its_baseline_gives_no_pair() -> None:
    spec = spec_of(draft(4), points=TEN)
    lost = failure("b2-off", "off", 2)
    c = only(analysed(spec, {"off": 1.0, "draft-4": 2.0}, without=["b2-off"], failures=[lost]))
    assert set(c.block_values) == {1, 3, 4, 5}
    assert check(c, "failed trials") == "failed"
    assert c.verdict.word == "keep"


def test_out_of_memory_in_two_blocks_does_not_fit() -> None:
    spec = spec_of(draft(4), draft(8), points=TEN)
    gone = [f"b{b}-draft-8" for b in range(1, 6)]
    oom = [failure(t, "draft-8", b, "engine_out_of_memory", oom=True) for b, t in enumerate(gone[:2], 1)]
    analysis = analysed(spec, {"off": 1.0, "draft-4": 2.0, "draft-8": 3.0}, without=gone, failures=oom)
    by_arm = {c.arm: c for c in analysis.comparisons}
    assert (by_arm["draft-8"].verdict.word, by_arm["draft-8"].verdict.reason) == ("disable", "does not fit")
    assert by_arm["draft-4"].verdict.word == "keep"
    assert analysis.answers[0]["arm"] == "draft-4"
    # Not the arm's fault where the baseline could not run either.
    both = [*oom, failure("b1-off", "off", 1), failure("b2-off", "off", 2)]
    again = analysed(spec, {"off": 1.0, "draft-4": 2.0, "draft-8": 3.0}, without=[*gone, "b1-off", "b2-off"], failures=both)
    assert {c.arm: c.verdict.reason for c in again.comparisons}["draft-8"] == "engine_out_of_memory"


def test_one_failed_block_of_three_leaves_too_few_and_blames_nobody() -> None:
    spec = spec_of(draft(4), points=TEN, blocks=3)
    c = only(analysed(spec, {"off": 1.0, "draft-4": 2.0}, without=["b2-draft-4"], failures=[failure("b2-draft-4", "draft-4", 2)]))
    assert (c.verdict.word, c.verdict.sentence) == ("inconclusive", "needs 3 blocks, has 2")


def test_a_job_that_was_ended_before_its_last_block_does_not_say_that_every_trial_ran() -> None:
    spec = spec_of(draft(4), points=TEN)
    for without, said in (
        (["b4-off", "b5-off", "b5-draft-4"], "no trial of the two arms failed; 3 trials of the plan were not run"),
        ([], "every trial of the two arms has an attempt that counts, at the first try"),
    ):
        c = only(analysed(spec, {"off": 1.0, "draft-4": 2.0}, without=without))
        assert next(k.sentence for k in c.checks if k.name == "failed trials") == said


def test_an_arm_that_never_ran_is_invalid_with_the_engines_reason() -> None:
    spec = spec_of(draft(4), draft(8), points=TEN)
    gone = [f"b{b}-draft-8" for b in range(1, 6)]
    failures = [failure(t, "draft-8", b) for b, t in enumerate(gone[:2], 1)]
    analysis = analysed(spec, {"off": 1.0, "draft-4": 2.0, "draft-8": 3.0}, without=gone, failures=failures)
    c = next(c for c in analysis.comparisons if c.arm == "draft-8")
    assert (c.verdict.word, c.verdict.reason) == ("invalid", "engine_exited_at_start")
    assert c.verdict.sentence == "draft-8 failed in 2 blocks in which the baseline ran: no such file"
    assert [k.name for k in c.checks if k.state == "failed" and k.kind == "hard"] == []


@pytest.mark.parametrize("arm", ["off", "draft-4"])
def test_what_dies_in_two_blocks_in_which_the_other_ran_is_not_judged_by_those_that_went_well(arm: str) -> None:
    """Three blocks are left, and fast ones: the starts that survived."""
    spec = spec_of(draft(4), points=TEN)
    gone = [failure(f"b{b}-{arm}", arm, b, "engine_died") for b in (4, 5)]
    c = only(analysed(spec, {"off": 1.0, "draft-4": 2.0}, without=[f.trial for f in gone], failures=gone))
    assert isinstance(c.speedup, Interval)
    assert c.speedup.n_blocks == 3
    other = "the baseline" if arm == "draft-4" else "the arm"
    assert (c.verdict.word, c.verdict.reason) == ("invalid", "engine_died")
    assert c.verdict.sentence == f"{arm} failed in 2 blocks in which {other} ran: no such file"
    # Once is an accident, and a second try that went well is no loss.
    for lost, without in ((gone[:1], [gone[0].trial]), (gone, [])):
        c = only(analysed(spec, {"off": 1.0, "draft-4": 2.0}, without=without, failures=lost))
        assert (c.verdict.word, check(c, "failed trials")) == ("keep", "failed")


def test_blocks_that_both_lost_are_nobodys_fault() -> None:
    spec = spec_of(draft(4), points=TEN)
    gone = [failure(f"b{b}-{arm}", arm, b, "engine_died") for b in (4, 5) for arm in ("off", "draft-4")]
    c = only(analysed(spec, {"off": 1.0, "draft-4": 2.0}, without=[f.trial for f in gone], failures=gone))
    assert c.verdict.word == "keep"


def test_a_baseline_that_never_ran_makes_everything_invalid() -> None:
    spec = spec_of(draft(4), points=TEN)
    gone = [f"b{b}-off" for b in range(1, 6)]
    c = only(analysed(spec, {"off": 1.0, "draft-4": 2.0}, without=gone, failures=[failure("b1-off", "off", 1)]))
    assert (c.verdict.word, c.verdict.reason) == ("invalid", "engine_exited_at_start")
    assert c.verdict.sentence.startswith("off failed in 1 block")


def test_a_job_without_any_attempt_withholds_everything() -> None:
    spec = spec_of(draft(4), points=TEN)
    analysis = analyse_job(spec, planned(spec), [], [], JobFacts())
    c = only(analysis)
    assert (c.verdict.word, c.verdict.reason) == ("inconclusive", "too few blocks")
    numbers = [v for v in (getattr(c, name) for name in ComparisonResult.model_fields) if isinstance(v, Number)]
    assert numbers == []
    assert analysis.attempts_used == []


def test_not_engaged_outranks_time() -> None:
    spec = spec_of(draft(4), points=TEN)
    plan = planned(spec)
    made = attempts(spec, plan, {"off": 1.0, "draft-4": 1.0}, change=lambda t, p: {"counters": OFF})
    made = [a if a.mode == "off" else a.model_copy(update={"engaged": False, "engaged_why": "vocabularies differ"}) for a in made]
    c = only(analyse_job(spec, plan, made, [], FACTS))
    assert c.verdict.word == "not engaged"
    assert c.verdict.sentence == "speculation did not happen: in 5 of 5 trials (vocabularies differ)"


def test_a_helper_that_drafts_nothing_at_one_point_is_not_engaged_there() -> None:
    spec = spec_of(draft(4), points=[*TEN, {"workload": "prose", "probes": 2}])
    plan = planned(spec, count=workload(n=80), prose=workload("prose", n=80))
    idle = counters(drafted=0, accepted=0, verify_steps=0, decode_steps=63, emitted=63, eval_ms=2000.0, accepted_by_position=[])

    def change(t: TrialPlan, p: ProbePlan) -> dict[str, Any]:
        return {"counters": idle} if t.arm != "off" and p.point.startswith("prose") else {}

    found = analyse_job(spec, plan, attempts(spec, plan, {"off": 1.0, "draft-4": 1.1}, noise=wobble, change=change), [], FACTS)
    assert [(c.workload, c.verdict.word) for c in found.comparisons] == [("count", "keep"), ("prose", "not engaged")]
    assert found.comparisons[1].verdict.sentence == "speculation did not happen: the helper model drafted 0 tokens"


def test_a_build_that_changes_between_arms_is_invalid() -> None:
    spec = spec_of(draft(4), points=TEN)
    plan = planned(spec)
    made = attempts(spec, plan, {"off": 1.0, "draft-4": 2.0})
    made = [a if a.mode == "off" else a.model_copy(update={"pair_fields": a.pair_fields | {"runtime_hash": "s"}}) for a in made]
    assert only(analyse_job(spec, plan, made, [], FACTS)).verdict.reason == "same comparison key"


def test_a_damaged_hash_makes_every_comparison_invalid() -> None:
    facts = JobFacts(hashes_verified=False, hash_problem="server.log of b1-off was damaged")
    c = only(analysed(spec_of(draft(4), points=TEN), {"off": 1.0, "draft-4": 2.0}, facts=facts))
    assert (c.verdict.word, c.verdict.reason, c.verdict.sentence) == ("invalid", "evidence hashes", "server.log of b1-off was damaged")


def test_requirements_are_held_to_what_the_engine_reports() -> None:
    spec = spec_of(draft(4), points=TEN, requirements={"context": 4097})
    c = only(analysed(spec, {"off": 1.0, "draft-4": 2.0}))
    assert (c.verdict.word, c.verdict.reason) == ("disable", "context")


def test_failed_answers_cost_the_verdict() -> None:
    spec = spec_of(draft(4), points=[{"workload": "count", "probes": 20}])

    def change(trial: TrialPlan, p: ProbePlan) -> dict[str, Any]:
        return {"check_passed": trial.arm == "off" or not p.id.endswith(("1", "3", "5"))}

    c = only(analysed(spec, {"off": 1.0, "draft-4": 2.0}, change=change, count=workload(n=100)))
    assert (c.verdict.word, c.verdict.reason) == ("disable", "quality")
    held = only(analysed(spec, {"off": 1.0, "draft-4": 2.0}, change=lambda t, p: {"check_passed": True}, count=workload(n=100)))
    assert held.verdict.word == "keep"
    assert "quality" not in held.verdict.sentence


def test_a_shorter_limit_that_does_better_is_named() -> None:
    spec = spec_of(draft(2), draft(8), draft(16, p_min=0.5), points=TEN)
    analysis = analysed(spec, {"off": 1.0, "draft-2": 2.0, "draft-8": 1.5, "draft-16": 1.2})
    words = {c.arm: c.verdict.word for c in analysis.comparisons}
    assert words == {"draft-2": "keep", "draft-8": "shorten", "draft-16": "keep"}  # draft-16 differs in more than its limit
    longer = next(c for c in analysis.comparisons if c.arm == "draft-8")
    assert longer.verdict.sentence.startswith("draft-2 (limit 2) is 1.33×")
    assert [c.arm for c in analysis.comparisons if c.recommended] == ["draft-2"]
    assert [c.arm for c in analysis.comparisons] == ["draft-2", "draft-8", "draft-16"]


def test_of_tied_arms_the_smaller_bill_wins_then_the_shorter_limit() -> None:
    spec = spec_of(draft(4), draft(8), {"name": "mtp", "mode": "mtp", "draft_limit": 9}, points=TEN)
    speeds = {"off": 1.0, "draft-4": 2.0, "draft-8": 2.02, "mtp": 2.01}
    plan = planned(spec)
    made = attempts(spec, plan, speeds, noise=wobble)

    def recommended(bills: dict[str, float]) -> list[str]:
        billed = [a.model_copy(update={"peak_memory_bytes": number((100 + bills.get(a.arm, 0)) * 2**20)}) for a in made]
        return [c.arm for c in analyse_job(spec, plan, billed, [], FACTS).comparisons if c.recommended]

    assert recommended({"draft-4": 9, "draft-8": 9.4, "mtp": 30}) == ["draft-4"]
    assert recommended({"draft-4": 29, "draft-8": 9, "mtp": 30}) == ["draft-8"]
    assert recommended({"draft-4": 29, "draft-8": 30, "mtp": 5}) == ["mtp"]


def test_an_arm_shown_worse_is_no_tie_however_small() -> None:
    spec = spec_of(draft(2), draft(8), points=TEN)
    plan = planned(spec)

    def recommended(slower: float) -> list[str]:
        made = attempts(spec, plan, {"off": 1.0, "draft-2": slower, "draft-8": 2.0}, noise=wobble)
        small = [a.model_copy(update={"peak_memory_bytes": number(101 * 2**20)}) if a.arm == "draft-2" else a for a in made]
        return [c.arm for c in analyse_job(spec, plan, small, [], FACTS).comparisons if c.recommended]

    assert recommended(1.8) == ["draft-8"]
    assert recommended(1.97) == ["draft-2"]  # not shown worse by the margin


def test_the_memory_bill_is_the_median_of_the_blocks_differences() -> None:
    spec = spec_of(draft(4), points=TEN, blocks=3)
    plan = planned(spec)
    peaks = {("off", 1): 100, ("draft-4", 1): 109, ("off", 2): 200, ("draft-4", 2): 207, ("off", 3): 100, ("draft-4", 3): 400}
    made = attempts(spec, plan, {"off": 1.0, "draft-4": 2.0})
    made = [a.model_copy(update={"peak_memory_bytes": number(peaks[a.arm, a.block])}) for a in made]
    assert value_of(only(analyse_job(spec, plan, made, [], FACTS)).memory_bill_bytes) == 9


def test_memory_that_was_measured_in_two_ways_has_no_difference() -> None:
    spec = spec_of(draft(4), points=TEN, blocks=3)
    plan = planned(spec)
    resident = Number(value=9, source=Source(file="samples.jsonl", line=1, field="rss_bytes + device_bytes, peak while probing"))
    made = [
        a if a.arm == "off" else a.model_copy(update={"peak_memory_bytes": resident})
        for a in attempts(spec, plan, {"off": 1.0, "draft-4": 2.0})
    ]
    bill = only(analyse_job(spec, plan, made, [], FACTS)).memory_bill_bytes
    assert isinstance(bill, Withheld)
    assert "rss_bytes" in bill.withheld


def test_different_work_gets_different_answers() -> None:
    points = [{"workload": "count", "probes": 2}, {"workload": "free-text", "probes": 2, "sampling": {"temperature": 0.8}}]
    spec = spec_of(draft(4), points=points)
    plan = planned(spec)

    def noise(trial: TrialPlan, p: ProbePlan) -> float:
        return wobble(trial, p) * (2.4 if trial.arm == "draft-4" and p.point.startswith("free-text") else 1)

    analysis = analyse_job(spec, plan, attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=noise), [], FACTS)
    assert [(a["point"].split("/")[0], a["word"]) for a in analysis.answers] == [("count", "keep"), ("free-text", "disable")]
    assert "disable speculation; the best arm, draft-4, 0.8" in analysis.answers[1]["sentence"]


def test_stateful_arms_are_compared_point_by_point() -> None:
    points = [{"workload": "count"}, {"workload": "free-text"}]
    spec = spec_of({"name": "mod", "mode": "ngram-mod"}, points=points, blocks=3)
    analysis = analysed(spec, {"off": 1.0, "mod": 1.5})
    assert [(c.point.split("/")[0], c.verdict.word) for c in analysis.comparisons] == [("count", "keep"), ("free-text", "keep")]
    assert len(analysis.attempts_used) == 3 + 6


def test_a_host_that_drifts_inside_blocks_is_corrected_and_says_so() -> None:
    spec = spec_of(draft(2), draft(4), draft(8), points=TEN, blocks=8)
    plan = planned(spec)

    def noise(trial: TrialPlan, p: ProbePlan) -> float:
        return 1.06**trial.position * (1 + (wobble(trial, p) - 1) / 10)

    found = analyse_job(
        spec, plan, attempts(spec, plan, dict.fromkeys(["draft-2", "draft-4", "draft-8"], 1.5) | {"off": 1.0}, noise=noise), [], FACTS
    )
    for c in found.comparisons:
        assert isinstance(c.speedup, Interval)
        assert c.speedup.method == "regression on position"
        assert c.speedup.estimate == pytest.approx(1.5, rel=0.003)
        assert check(c, "drift") == "failed"
        # the p of the estimate that is shown, as the interval is: here far from 1
        assert c.p_holm is not None
        assert c.p_holm < 1e-6


def test_a_trial_that_ran_again_stood_at_the_end_of_its_block() -> None:
    spec = spec_of(draft(4), draft(8), points=TEN, blocks=1)
    plan = planned(spec)
    baseline = next(t for t in plan.trials if t.arm == "off")
    again = [failure(baseline.id, "off", 1, "engine_died")]
    found = analyse_job(spec, plan, attempts(spec, plan, {"off": 1.0, "draft-4": 2.0, "draft-8": 2.0}), again, FACTS)
    for c in found.comparisons:
        evidence = next(k for k in c.checks if k.name == "order balance").evidence
        assert evidence == {"before": 1, "after": 0}
        assert check(c, "failed trials") == "failed"


def test_two_trials_that_ran_again_kept_their_order() -> None:
    spec = spec_of(draft(4), draft(8), points=TEN, blocks=1)
    plan = planned(spec)
    in_order = sorted((t for t in plan.trials if t.arm in ("off", "draft-4")), key=lambda t: t.position)
    results = Results(plan, attempts(spec, plan, {"off": 1.0, "draft-4": 2.0, "draft-8": 2.0}), run_again={t.id for t in in_order})
    assert [results.position(t) for t in in_order] == [4, 5]


def test_a_control_measures_the_host_and_answers_nothing() -> None:
    control = {"name": "off-again", "mode": "off", "control": True}
    spec = spec_of(draft(4), control, points=TEN)
    analysis = analysed(spec, {"off": 1.0, "off-again": 1.0, "draft-4": 0.9}, change=lambda t, p: {"ids_sha256": p.item})
    by_arm = {c.arm: c for c in analysis.comparisons}
    assert by_arm["off-again"].verdict.reason == "not worth it"
    assert by_arm["off-again"].p_holm is None
    assert isinstance(by_arm["off-again"].acceptance_rate, Withheld)
    assert analysis.answers[0]["arm"] == "draft-4"
    assert next(k for k in analysis.checks if k.name == "baseline agrees with itself").state == "passed"


def test_checks_that_could_not_run_are_not_called_passed() -> None:
    analysis = analysed(spec_of(draft(4), points=TEN), {"off": 1.0, "draft-4": 2.0}, facts=JobFacts(shares_cores=True))
    states = {k.name: k.state for k in [*analysis.checks, *analysis.comparisons[0].checks]}
    expected = {
        "evidence hashes": "not checked",
        "baseline agrees with itself": "not checked",
        "A/A known": "failed",
        "engine has its cores": "failed",
        "warm-up settled": "not checked",
        "throttling": "not checked",
        "another process on the device": "not checked",
        "memory placed as asked": "not checked",
        "clock spread": "not checked",
    }
    assert {name: states[name] for name in expected} == expected
    assert not any(k.passed for k in analysis.checks if k.state == "not checked")


def test_attempts_without_a_place_in_the_plan_are_refused() -> None:
    spec = spec_of(draft(4), points=TEN, blocks=3)
    plan = planned(spec)
    made = attempts(spec, plan, {"off": 1.0, "draft-4": 2.0})
    with pytest.raises(ValueError, match=r"trial '.*' has two attempts that count"):
        analyse_job(spec, plan, [*made, made[0]], [], FACTS)
    with pytest.raises(ValueError, match="which the plan does not have"):
        analyse_job(spec, JobPlan(seed=1, trials=[], workloads={}), made, [], FACTS)


def test_the_analysis_survives_json_and_is_repeatable() -> None:
    spec = spec_of(draft(2), draft(8), points=TEN)
    speeds = {"off": 1.0, "draft-2": 1.7, "draft-8": 1.2}
    first, second = analysed(spec, speeds), analysed(spec, speeds)
    assert first == second
    assert JobAnalysis.model_validate_json(first.model_dump_json()) == first


def test_partial_counters_name_how_many_probes_they_are_of() -> None:
    def change(trial: TrialPlan, p: ProbePlan) -> dict[str, Any]:
        return {} if trial.arm == "off" else {"counters": DRAFT if trial.block > 1 else counters(emitted=63)}

    c = only(analysed(spec_of(draft(4), points=TEN), {"off": 1.0, "draft-4": 2.0}, change=change))
    assert isinstance(c.acceptance_rate, Number)
    assert c.acceptance_rate.value == pytest.approx(0.5)
    assert "over 8 of 10 probes of draft-4" in c.acceptance_rate.source.field

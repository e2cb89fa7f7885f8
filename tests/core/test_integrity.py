"""Each check of the integrity panel at its boundary, and what it says."""

from __future__ import annotations

from typing import Any

import pytest
from speccore import integrity, job_checks, pace_checks, stats
from speccore.compare import JobFacts, analyse_job
from speccore.measurement import Check, Interval, ProbeMeasurement, Withheld
from speccore.noise_floor import KnownFloor
from speccore.pairs import Results, pair_blocks
from speccore.plan import plan_job
from speccore.protocol import ProbePlan, TrialPlan

from tests.core.made import DRAFT, attempts, counters, number, planned, probe, spec_of, workload

POINT = "count/c1/ctx0/t0"


def of(check: Check) -> tuple[str, str]:
    assert check.sentence
    return check.kind, check.state


def one(seconds: float = 2.0, **more: Any) -> ProbeMeasurement:
    return probe(ProbePlan(id="p#1", point=POINT, item="i", seed=1), seconds, **more)


def test_same_key_names_what_differs() -> None:
    same = {"runtime_hash": "aa", "boot_id": "b", "target_hash": "t", "command": "[]"}
    assert of(integrity.same_key({"b1-off": same, "b1-arm": dict(same)})) == ("hard", "passed")
    for name in same:  # equal for want of evidence shows nothing
        less = {k: v for k, v in same.items() if k != name}
        assert of(integrity.same_key({"b1-off": less, "b1-arm": less})) == ("soft", "not checked")
    check = integrity.same_key({"b1-off": same, "b1-arm": same | {"runtime_hash": "bb"}, "b2-arm": same})
    assert of(check) == ("hard", "failed")
    assert check.sentence == "trials differ in more than speculation: engine build: aa in b1-off against bb in b1-arm"
    assert check.evidence["fields"] == ["runtime_hash"]
    assert of(integrity.same_key({"b1-off": same, "b1-arm": {"runtime_hash": "aa"}})) == ("hard", "failed")
    assert of(integrity.same_key({})) == ("soft", "not checked")


def test_a_restart_between_blocks_leaves_each_ratio_whole_and_one_inside_a_block_does_not() -> None:
    same = {"runtime_hash": "aa", "boot_id": "one", "target_hash": "t", "command": "[]"}
    later = same | {"boot_id": "two"}
    blocks = {"b1-off": 1, "b1-arm": 1, "b2-off": 2, "b2-arm": 2}
    check = integrity.same_key({"b1-off": same, "b1-arm": same, "b2-off": later, "b2-arm": later}, blocks)
    assert of(check) == ("hard", "passed")
    assert check.sentence.endswith("; different between blocks and not inside any: start of the machine")
    torn = integrity.same_key({"b1-off": same, "b1-arm": later, "b2-off": later, "b2-arm": later}, blocks)
    assert of(torn) == ("hard", "failed")
    other_build = later | {"runtime_hash": "bb"}
    assert of(integrity.same_key({"b1-off": same, "b1-arm": same, "b2-off": other_build, "b2-arm": other_build}, blocks)) == (
        "hard",
        "failed",
    )
    unknown = {k: v for k, v in same.items() if k != "command"}
    check = integrity.same_key({"b1-off": unknown, "b1-arm": unknown, "b2-off": unknown | {"boot_id": "two"}}, blocks)
    assert of(check) == ("soft", "not checked")


def test_counts_of_client_and_server() -> None:
    good, other = one(), one(server_tokens=number(65))
    disagreeing = one(ok=False, failure="counts_disagree", failure_message="drafted: 3 by stream; 4 by log")
    unknown = one(server_tokens=number(None))
    assert of(integrity.counts_agree({"a": good})) == ("hard", "passed")
    assert of(integrity.counts_agree({"a": good, "b": other})) == ("hard", "failed")
    assert "client 64, server 65" in integrity.counts_agree({"b": other}).sentence
    assert "drafted: 3 by stream" in integrity.counts_agree({"a": good, "b": disagreeing}).sentence
    assert of(integrity.counts_agree({"a": unknown})) == ("soft", "not checked")


def test_one_cached_token_is_too_many() -> None:
    assert of(integrity.no_cache_hits({"a": 0, "b": 0})) == ("hard", "passed")
    assert of(integrity.no_cache_hits({"a": 0, "b": 1})) == ("hard", "failed")
    assert of(integrity.no_cache_hits({"a": None})) == ("soft", "not checked")
    assert "in 1 probe" in integrity.no_cache_hits({"a": 0, "b": None}).sentence


def test_client_lag_over_one_percent() -> None:
    assert of(integrity.client_lag(1, 100)) == ("hard", "passed")
    assert of(integrity.client_lag(2, 100)) == ("hard", "failed")
    assert "measure again while the host is idle" in integrity.client_lag(2, 100).sentence
    assert of(integrity.client_lag(0, 0)) == ("soft", "not checked")


@pytest.mark.parametrize(
    ("arm", "expected"),
    [
        (100, ("hard", "passed")),
        (109.9, ("hard", "passed")),
        (110, ("soft", "failed")),
        (90, ("soft", "failed")),
        (150, ("soft", "failed")),
        (150.1, ("hard", "failed")),
        (49.9, ("hard", "failed")),
    ],
)
def test_output_lengths(arm: float, expected: tuple[str, str]) -> None:
    assert of(integrity.length_check(100, arm)) == expected


def test_output_lengths_need_matched_prompts() -> None:
    assert of(integrity.output_lengths([], [])) == ("soft", "not checked")
    assert of(integrity.output_lengths([one(tokens=64)], [one(tokens=128)])) == ("hard", "failed")


@pytest.mark.parametrize(
    ("mode", "temperature", "first", "expected"),
    [
        ("draft", 0.0, 5, ("hard", "passed")),
        ("draft", 0.0, 4, ("hard", "failed")),
        ("mtp", 0.2, 4, ("hard", "failed")),
        ("draft", 0.21, 4, ("soft", "failed")),
        ("ngram-simple", 0.0, 4, ("soft", "failed")),
    ],
)
def test_drafter_alive(mode: str, temperature: float, first: int, expected: tuple[str, str]) -> None:
    probes = [
        one(counters=counters(verify_steps=60, accepted_by_position=[first, first // 2])),  # later positions don't count
        one(counters=counters(verify_steps=40, accepted_by_position=[0])),
    ]
    assert of(integrity.drafter_alive(mode, temperature, probes)) == expected


def test_a_drafter_that_drafted_nothing_is_not_called_dead() -> None:
    nothing = one(counters=counters(verify_steps=0, accepted_by_position=[]))
    assert of(integrity.drafter_alive("draft", 0, [nothing])) == ("soft", "not checked")
    assert of(integrity.drafter_alive("draft", 0, [one(counters=counters(verify_steps=9))])) == ("soft", "not checked")
    assert of(integrity.drafter_alive("draft", 0, [one(counters=DRAFT)])) == ("hard", "passed")


def failing(left: set[str], right: set[str], *, blocks: int = 10, probes: int = 4) -> Check:
    """The check when the named probes (block/number) fail in the baseline or in the arm, of 40 in each."""
    spec = spec_of(points=[{"workload": "count", "probes": probes}], blocks=blocks)
    plan = planned(spec, count=workload(n=100))

    def change(trial: Any, p: ProbePlan) -> dict[str, Any]:
        bad = f"{trial.block}/{p.id.rsplit('#')[1]}" in (left if trial.arm == "off" else right)
        return {"ok": False, "failure": "probe_failed", "failure_message": "broken"} if bad else {}

    results = Results(plan, attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, change=change))
    lengths = {p.item: 64.0 for t in plan.trials for p in t.probes}
    return integrity.probe_failures(pair_blocks(results, POINT, "off", "draft-4", lengths))


def test_probe_failures() -> None:
    assert of(failing(set(), set())) == ("hard", "passed")
    one_each = failing({"1/1"}, {"1/1"})
    assert of(one_each) == ("hard", "passed")  # 2.5 % in both, one pair of 40 dropped
    assert one_each.sentence == "2 of 80 probes failed, 1 of 40 pairs dropped"
    only_arm = failing(set(), {"1/1"})
    assert of(only_arm) == ("hard", "failed")
    assert only_arm.sentence == "1 probe of 40 failed in the arm (2 %, and none in the other)"
    assert of(failing({"1/1"}, set())) == ("hard", "failed")
    assert of(failing({"1/1", "2/1"}, {"1/1", "2/1"})) == ("hard", "passed")  # 5 % exactly
    assert of(failing({"1/1", "2/1", "3/1"}, {"1/1"})) == ("hard", "failed")  # 7.5 % in one
    dropped = failing({"1/1", "2/1"}, {"3/1", "4/1"})  # 5 % in each, but four pairs of 40
    assert of(dropped) == ("hard", "failed")
    assert dropped.sentence.startswith("4 pairs of 40 dropped (10 %), first block 1: count-")
    assert dropped.sentence.endswith("(off: broken)")
    assert of(integrity.probe_failures([])) == ("soft", "not checked")


def test_one_failure_of_ten_is_ten_percent() -> None:
    assert of(failing({"1/1"}, {"1/1"}, blocks=5, probes=2)) == ("hard", "failed")


def test_drift_is_told_with_its_p() -> None:
    x = [-3, 2, 1, -1, 2, 3]
    flagged = integrity.host_drift(stats.drift([0.2 - 0.05 * d + 0.001 * i for i, d in enumerate(x)], x, 0.03))
    assert of(flagged) == ("soft", "failed")
    assert "regression" in flagged.sentence
    assert of(integrity.host_drift(stats.drift([0.2, 0.21, 0.2, 0.19, 0.2, 0.21], x, 0.03))) == ("soft", "passed")
    assert of(integrity.host_drift(Withheld(withheld="needs 4 blocks, has 3"))) == ("soft", "not checked")


def test_order_balance_of_the_blocks_that_count() -> None:
    assert of(integrity.order_balance([1, -1, 2])) == ("soft", "passed")
    assert of(integrity.order_balance([1, 1, -1, 2])) == ("soft", "failed")
    assert of(integrity.order_balance([])) == ("soft", "not checked")
    assert integrity.order_balance([1, -1]).sentence == "the arm ran before the baseline in 1 block and after it in 1"


def test_few_prompts_speak_for_themselves_only() -> None:
    assert of(integrity.few_prompts(8)) == ("soft", "passed")
    assert "only: 1 distinct one, a claim" in integrity.few_prompts(1).sentence
    check = integrity.few_prompts(7)
    assert of(check) == ("soft", "failed")
    assert check.sentence.startswith("these prompts only: 7")


def test_holm_warns_only_where_an_interval_claims_something() -> None:
    claims, nothing = Interval(estimate=1.2, low=1.1, high=1.3, n_blocks=5), Interval(estimate=1.0, low=0.9, high=1.1, n_blocks=5)
    assert of(integrity.holm(claims, 0.049)) == ("soft", "passed")
    assert of(integrity.holm(claims, 0.05)) == ("soft", "failed")
    assert of(integrity.holm(nothing, 0.9)) == ("soft", "passed")
    assert of(integrity.holm(claims, None)) == ("soft", "not checked")
    # An interval of 99 % claims what holds at 1 %, and so is held to it.
    assert of(integrity.holm(claims, 0.02, 1 - 0.99)) == ("soft", "failed")


def test_checks_of_the_job() -> None:
    assert of(job_checks.evidence_hashes(True, 8, "")) == ("hard", "passed")
    assert of(job_checks.evidence_hashes(False, 8, "server.log of b1-off differs")) == ("hard", "failed")
    assert of(job_checks.evidence_hashes(None, 8, "")) == ("soft", "not checked")
    assert of(job_checks.noise_floor_known(None)) == ("soft", "failed")
    assert of(job_checks.noise_floor_known(0.02)) == ("soft", "passed")
    standing = job_checks.noise_floor_known(None, not_restarted=True)
    assert standing.sentence.endswith("is unknown: where unknown it is taken as 0; servers that stand can't tell it")
    one_block = job_checks.noise_floor_known(None, {"one": KnownFloor(floor=None, n_blocks=1)})
    assert "the preset noise-floor with 1 block on this host" in one_block.sentence
    assert of(job_checks.shares_cores(True)) == ("soft", "failed")
    assert of(job_checks.shares_cores(False)) == ("soft", "passed")
    assert of(pace_checks.fixed_warmup(1)) == ("soft", "not checked")
    assert pace_checks.fixed_warmup(1).sentence == "one fixed warm-up of 1 request, settling not checked"


def test_a_baseline_is_compared_with_itself_where_it_answered_twice() -> None:
    assert of(job_checks.baseline_repeats({"a": ["x", "x"], "b": ["y"]})) == ("hard", "passed")
    assert of(job_checks.baseline_repeats({"a": ["x"]})) == ("soft", "not checked")
    differing = job_checks.baseline_repeats({"a": ["x", "z"], "b": ["y", "y"]})
    assert of(differing) == ("soft", "not checked")
    assert "1 of 2 greedy answers" in differing.sentence


def test_task_checks_are_lost_held_or_not_shown() -> None:
    def told(low: float, high: float) -> Check:
        return integrity.task_checks(stats.PassDifference(n=40, baseline=0.9, arm=0.8, low=low, high=high, needed=300))

    assert of(told(-0.3, -0.021)) == ("soft", "failed")
    assert of(told(-0.019, 0.3)) == ("soft", "passed")
    assert of(told(-0.3, -0.019)) == ("soft", "not checked")
    assert told(-0.3, 0.1).sentence.endswith("n = 40, needs about 300 prompts")
    assert integrity.task_checks(Withheld(withheld="no prompt has a check")).sentence == "quality not checked: no prompt has a check"


def test_failed_trials_and_broken_evidence_are_told() -> None:
    assert of(integrity.failed_trials({})) == ("soft", "passed")
    ended = integrity.failed_trials({}, 3)
    assert (of(ended), ended.sentence) == (("soft", "passed"), "no trial of the two arms failed; 3 trials of the plan were not run")
    assert integrity.failed_trials({"b1-arm": "died"}).sentence == "1 trial failed at least once, first b1-arm: died"
    assert of(integrity.evidence_whole({"b1-off": []})) == ("soft", "passed")
    broken = integrity.evidence_whole({"b1-off": [], "b2-off": ["samples.jsonl is missing"]})
    assert of(broken) == ("soft", "failed")
    assert "b2-off: samples.jsonl is missing" in broken.sentence


def lag_of(*, queued_alone: int, queued_together: int, n_late: int | None = None, n_events: int = 2000) -> dict[str, Check]:
    """By point: the check of client lag in trials of a point with one request at a time and one with four."""
    points = [{"workload": "count", "probes": 2}, {"workload": "count", "concurrency": 4}]
    spec = spec_of(points=points, engine={"slots": 4}, blocks=3)
    plan = plan_job(spec, {"count": workload(n=60, n_warmup=8)})

    def change(trial: TrialPlan, p: ProbePlan) -> dict[str, Any]:
        return {"n_events": 64, "n_queued_events": queued_together if "/c4/" in p.point else queued_alone}

    late = 2 * queued_alone + 24 * queued_together if n_late is None else n_late
    ran = attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, change=change, n_late_events=late, n_events=n_events)
    found = analyse_job(spec, plan, ran, [], JobFacts()).comparisons
    return {c.point: next(k for k in c.checks if k.name == "client lag") for c in found}


def test_a_client_that_lags_under_load_was_in_time_for_requests_one_by_one() -> None:
    found = lag_of(queued_alone=0, queued_together=2)
    assert (found["count/c1/ctx0/t0"].state, found["count/c4/ctx0/t0"].state) == ("passed", "failed")
    assert found["count/c4/ctx0/t0"].evidence["n_late"] == 6 * 24 * 2
    assert found["count/c4/ctx0/t0"].evidence["n_events"] == 6 * 24 * 64
    assert "0 of 768 events" in found["count/c1/ctx0/t0"].sentence


def test_late_events_of_an_earlier_version_count_for_every_point() -> None:
    found = lag_of(queued_alone=0, queued_together=0, n_late=100)
    assert {c.state for c in found.values()} == {"failed"}


def test_without_the_kernels_stamps_no_point_knows() -> None:
    assert {c.state for c in lag_of(queued_alone=0, queued_together=0, n_events=0).values()} == {"not checked"}

"""What a job will do: trials, prompts, seeds; and which trials still need an attempt."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from speccore.errors import EngineDied, EngineExitedAtStart, EngineOutOfMemory, ErrorBody, SpecError
from speccore.plan import TrialOutcome, give_up, next_trials, plan_job, probe_seed
from speccore.workload import Item, Workload

from tests.core.made import planned, spec_of, workload

THREE_POINTS = [
    {"workload": "count", "probes": 2},
    {"workload": "python-code", "sampling": {"temperature": 0.1}},
    {"workload": "free-text", "sampling": {"temperature": 0.8}},
]


def draft(limit: int) -> dict[str, Any]:
    return {"name": f"draft-{limit}", "mode": "draft", "draft_model": "d", "draft_limit": limit}


def test_every_arm_once_in_each_block_with_the_same_requests() -> None:
    spec = spec_of(draft(3), draft(8), {"name": "ngram", "mode": "ngram-simple"}, points=THREE_POINTS, blocks=5)
    plan = planned(spec)
    assert [t.index for t in plan.trials] == list(range(20))
    for block in range(1, 6):
        trials = [t for t in plan.trials if t.block == block]
        assert sorted(t.arm for t in trials) == ["draft-3", "draft-8", "ngram", "off"]
        assert sorted(t.position for t in trials) == [1, 2, 3, 4]
        assert len({(tuple(t.probes), tuple(t.warmup), tuple(t.points)) for t in trials}) == 1
    assert plan.trials[0].id == f"b1-{plan.trials[0].arm}"
    assert plan == planned(spec)
    assert plan != planned(spec.model_copy(update={"seed": 2}))


def test_arms_and_points_are_balanced_over_blocks() -> None:
    plan = planned(spec_of(draft(3), draft(8), points=THREE_POINTS, blocks=7))
    places = Counter((t.arm, t.position) for t in plan.trials)
    assert max(places.values()) - min(places.values()) <= 1
    for arm in ("draft-3", "draft-8"):
        sides = []
        for block in range(1, 8):
            at = {t.arm: t.position for t in plan.trials if t.block == block}
            sides.append(at[arm] < at["off"])
        assert abs(sum(sides) - sum(not s for s in sides)) <= 1
    order = Counter((point, t.points.index(point)) for t in plan.trials if t.arm == "off" for point in t.points)
    assert len(order) == 9
    assert max(order.values()) - min(order.values()) <= 1


def test_prompts_are_not_repeated_while_the_workload_lasts() -> None:
    plan = planned(spec_of(points=[{"workload": "count", "probes": 4}], blocks=5), count=workload(n=20))
    asked = [p.item for t in plan.trials if t.arm == "off" for p in t.probes]
    assert sorted(asked) == sorted(i.id for i in workload(n=20).items)


def test_a_short_workload_comes_round_again_but_never_twice_in_a_trial() -> None:
    plan = planned(spec_of(points=[{"workload": "count", "probes": 3}], blocks=4), count=workload(n=4))
    asked = [[p.item for p in t.probes] for t in plan.trials if t.arm == "off"]
    assert all(len(set(items)) == 3 for items in asked)
    counts = Counter(item for items in asked for item in items)
    assert set(counts.values()) == {3}


def test_points_of_one_workload_share_its_prompts_out() -> None:
    points = [{"workload": "count", "probes": 3}, {"workload": "count", "probes": 3, "sampling": {"temperature": 0.8}}]
    plan = planned(spec_of(points=points, blocks=3), count=workload(n=7))
    for trial in plan.trials:
        assert len({p.item for p in trial.probes}) == 6


def test_too_few_prompts_are_refused_with_name_and_count() -> None:
    with pytest.raises(SpecError, match=r"workload 'count' has 4 items; 5 probe requests of one trial need as many") as refused:
        planned(spec_of(points=[{"workload": "count", "probes": 5}]), count=workload(n=4))
    assert refused.value.body().details == {"field": "points.0.probes", "workload": "count@1", "n_items": 4, "needed": 5}
    with pytest.raises(SpecError, match=r"workload 'count' has 1 warm-up items; 2 warm-up requests"):
        planned(spec_of(warmup={"requests": 2}), count=workload(n_warmup=1))


def alike(first: str, second: str) -> Workload:
    items = [Item(id="a", prompt=first), Item(id="b", prompt=second)]
    return Workload(name="count", version=1, title="t", items=items, warmup=[Item(id="w", prompt="warm")])


def test_prompts_that_begin_alike_count_as_one() -> None:
    two = [{"workload": "count", "probes": 2}]
    same = "x" * 64
    with pytest.raises(SpecError, match=r"2 items \(1 of them differ in their first 64 bytes\)"):
        planned(spec_of(points=two), count=alike(same + "1", same + "2"))
    planned(spec_of(points=two), count=alike("x" * 63 + "1", "x" * 63 + "2"))
    # A token may be one byte of a longer character, so 64 tokens may end within 64 characters.
    with pytest.raises(SpecError, match="1 of them differ"):
        planned(spec_of(points=two), count=alike("é" * 32 + "1", "é" * 32 + "2"))


def test_a_warm_up_prompt_is_no_probe_of_the_same_trial() -> None:
    shared = Workload(
        name="count",
        version=1,
        title="t",
        items=[Item(id="a", prompt="same"), Item(id="b", prompt="other")],
        warmup=[Item(id="w", prompt="same")],
    )
    plan = planned(spec_of(points=[{"workload": "count", "probes": 1}], blocks=4), count=shared)
    assert {p.item for t in plan.trials for p in t.probes} == {"b"}


def test_seeds_are_equal_in_a_block_and_new_in_the_next() -> None:
    plan = planned(spec_of(points=[{"workload": "count", "probes": 2}], blocks=2), count=workload(n=2))
    seeds = {(t.block, t.arm): {p.item: p.seed for p in t.probes} for t in plan.trials}
    assert seeds[1, "off"] == seeds[1, "draft-4"]
    assert all(seeds[1, "off"][item] != seeds[2, "off"][item] for item in seeds[1, "off"])
    assert all(0 <= seed < 2**31 for block in seeds.values() for seed in block.values())
    assert probe_seed(1, "count@1", 1, "a") == probe_seed(1, "count@1", 1, "a")
    others = [(2, "count@1", 1, "a"), (1, "count@2", 1, "a"), (1, "count@1", 2, "a"), (1, "count@1", 1, "b")]
    assert len({probe_seed(1, "count@1", 1, "a"), *(probe_seed(*o) for o in others)}) == 5


def test_a_stateful_drafter_gets_a_trial_for_each_point() -> None:
    spec = spec_of({"name": "mod", "mode": "ngram-mod"}, draft(4), points=THREE_POINTS, blocks=3, warmup={"requests": 2})
    plan = planned(spec)
    block = [t for t in plan.trials if t.block == 2]
    mod = [t for t in block if t.arm == "mod"]
    off = next(t for t in block if t.arm == "off")
    assert sorted(t.id for t in mod) == ["b2-mod-p1", "b2-mod-p2", "b2-mod-p3"]
    assert [t.points for t in mod] == [[p] for p in off.points]
    assert len({t.position for t in mod}) == 1
    assert [p for t in mod for p in t.probes] == off.probes
    assert all(len(t.warmup) == 2 and {w.point for w in t.warmup} == set(t.points) for t in mod)
    assert len({t.id for t in plan.trials}) == len(plan.trials) == 3 * 5


def test_warm_up_goes_through_the_points_in_turn() -> None:
    plan = planned(spec_of(points=THREE_POINTS, warmup={"requests": 4}))
    for trial in plan.trials:
        assert [w.point for w in trial.warmup] == [*trial.points, trial.points[0]]
        assert len({w.item for w in trial.warmup}) == 4


def test_names_that_are_no_file_names_still_give_distinct_trials() -> None:
    arms = [draft(4) | {"name": n} for n in ("a/b", "a b", "a-b", "x-p1")] + [{"name": "x", "mode": "ngram-mod"}]
    plan = planned(spec_of(*arms, points=THREE_POINTS, blocks=1))
    ids = [t.id for t in plan.trials]
    assert len(set(ids)) == len(ids)
    assert all("/" not in i and " " not in i for i in ids)


@pytest.mark.parametrize(
    ("concurrency", "probes", "n"), [(1, 2, 2), (2, 2, 24), (4, 2, 24), (6, 2, 24), (7, 2, 28), (16, 2, 64), (4, 40, 40), (1, 40, 40)]
)
def test_several_at_once_need_a_queue_that_lasts(concurrency: int, probes: int, n: int) -> None:
    point = {"workload": "count", "concurrency": concurrency, "probes": probes}
    plan = planned(spec_of(points=[point], engine={"slots": 16}), count=workload(n=64, n_warmup=16))
    for trial in plan.trials:
        assert len(trial.probes) == n
        assert len({p.item for p in trial.probes}) == n
        assert len({p.seed for p in trial.probes}) == n


def test_requests_one_at_a_time_need_no_more_warm_up_than_asked_for() -> None:
    points = [*THREE_POINTS, {"workload": "free-text", "concurrency": 2}]
    plan = planned(spec_of(points=points, engine={"slots": 2}), **{"free-text": workload("free-text", n=60)})
    for trial in plan.trials:
        n = Counter(w.point.split("/ctx")[0] for w in trial.warmup)
        first = trial.points[0].split("/ctx")[0]
        assert n == Counter({"free-text/c2": 2}) + Counter([first] if first != "free-text/c2" else [])
    assert {len(t.warmup) for t in planned(spec_of(points=THREE_POINTS)).trials} == {1}


def test_warm_up_fills_what_will_run_together() -> None:
    points = [{"workload": "count"}, {"workload": "count", "concurrency": 4}, {"workload": "free-text", "concurrency": 3}]
    plan = planned(spec_of(points=points, engine={"slots": 4}, warmup={"requests": 2}), count=workload(n=40, n_warmup=8))
    for trial in plan.trials:
        n = Counter(w.point.split("/ctx")[0] for w in trial.warmup)
        assert (n["count/c4"], n["free-text/c3"]) == (4, 3)
        assert n["count/c1"] <= 1  # two requests go to the first two points in turn
        assert len({(w.point.split("/")[0], w.item) for w in trial.warmup}) == len(trial.warmup)
        assert [w.id for w in trial.warmup] == [f"warmup#{i}" for i in range(1, len(trial.warmup) + 1)]
    assert len({tuple(t.warmup) for t in plan.trials if t.block == 1}) == 1


def test_warm_up_takes_what_a_short_workload_has() -> None:
    point = {"workload": "count", "concurrency": 6}
    plan = planned(spec_of(points=[point], engine={"slots": 6}), count=workload(n=30, n_warmup=4))
    assert all(len(t.warmup) == 4 for t in plan.trials)


def test_a_stateful_drafter_meets_each_load_alone() -> None:
    points = [{"workload": "count", "concurrency": c} for c in (1, 2, 4)]
    spec = spec_of({"name": "mod", "mode": "ngram-mod"}, points=points, engine={"slots": 4}, blocks=2)
    plan = planned(spec, count=workload(n=60, n_warmup=8))
    block = [t for t in plan.trials if t.block == 1]
    off = next(t for t in block if t.arm == "off")
    mod = [t for t in block if t.arm == "mod"]
    assert [p for t in mod for p in t.probes] == off.probes
    assert {t.points[0]: len(t.warmup) for t in mod} == {"count/c1/ctx0/t0": 1, "count/c2/ctx0/t0": 2, "count/c4/ctx0/t0": 4}


def test_prompts_that_do_not_last_for_a_load_are_told_with_the_load() -> None:
    points = [{"workload": "count"}, {"workload": "count", "concurrency": 8}]
    with pytest.raises(SpecError) as found:
        planned(spec_of(points=points, engine={"slots": 8}), count=workload(n=28, n_warmup=8))
    assert found.value.details["field"] == "points.1.concurrency"
    assert "'count' has 28 items; 34 probe requests of one trial (32 with 8 at once) need as many" in str(found.value)
    assert found.value.body().remedy.startswith("Lower the concurrency, split the points into several experiments, or use a workload")


@pytest.mark.parametrize(
    ("mode", "message"), [("ngram-simple", "2,404,000 requests, more than"), ("ngram-mod", "234,100 starts of the engine, more than")]
)
def test_more_than_a_job_can_hold_is_refused_before_it_is_planned(mode: str, message: str) -> None:
    arms = [{"name": f"a{i}", "mode": mode, "draft_limit": i} for i in range(1, 40)]
    points = [{"workload": "count", "probes": 10, "sampling": {"temperature": i / 20}} for i in range(60)]
    with pytest.raises(SpecError, match=message):
        planned(spec_of(*arms, points=points, blocks=100), count=workload("count", 700))


def test_an_unknown_workload_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SpecError, match=r"no workload 'nothing'; known: count, free-text"):
        plan_job(spec_of(points=[{"workload": "nothing"}]), {"count": workload(), "free-text": workload("free-text")})


# --- what is still to run ---

LASTING = EngineExitedAtStart("no such model").body()
PASSING = EngineDied("signal 9").body()


def outcome(trial: str, error: ErrorBody | None = None, n: int = 1) -> TrialOutcome:
    return TrialOutcome(trial=trial, n=n, error=error)


def todo(outcomes: list[TrialOutcome], blocks: int = 3) -> list[tuple[str, int]]:
    spec = spec_of(blocks=blocks)
    return [(t.id, n) for t, n in next_trials(spec, planned(spec), outcomes)]


def test_trials_run_in_order_until_done() -> None:
    spec = spec_of(blocks=3)
    ids = [t.id for t in planned(spec).trials]
    assert todo([]) == [(i, 1) for i in ids]
    assert todo([outcome(ids[0])]) == [(i, 1) for i in ids[1:]]
    assert todo([outcome(i) for i in ids]) == []


def test_a_failure_that_may_pass_is_tried_once_more_at_the_end_of_its_block() -> None:
    ids = [t.id for t in planned(spec_of(blocks=3)).trials]
    assert todo([outcome(ids[0], PASSING)])[:3] == [(ids[1], 1), (ids[0], 2), (ids[2], 1)]
    twice = [outcome(ids[0], PASSING), outcome(ids[1]), outcome(ids[0], PASSING, 2)]
    assert todo(twice) == [(i, 1) for i in ids[2:]]
    mended = [outcome(ids[0], PASSING), outcome(ids[1]), outcome(ids[0], None, 2)]
    assert todo(mended) == [(i, 1) for i in ids[2:]]


def test_a_failure_that_stays_is_not_tried_again() -> None:
    ids = [t.id for t in planned(spec_of(blocks=3)).trials]
    assert todo([outcome(ids[0], LASTING)]) == [(i, 1) for i in ids[1:]]


def test_an_arm_is_given_up_after_failing_in_two_blocks() -> None:
    spec = spec_of(draft(4), draft(8), blocks=4)
    plan = planned(spec)
    oom = EngineOutOfMemory("no memory").body()
    once = [outcome("b1-draft-8", oom)]
    assert give_up(spec, plan, once).arms == {}
    twice = [*once, outcome("b2-draft-8", oom)]
    assert give_up(spec, plan, twice).arms == {"draft-8": oom}
    assert give_up(spec, plan, twice).job is None
    assert {t.arm for t, _ in next_trials(spec, plan, twice)} == {"off", "draft-4"}
    # The first of two tries is not yet a failure for good.
    assert give_up(spec, plan, [outcome("b1-draft-8", PASSING), outcome("b2-draft-8", PASSING)]).arms == {}


def test_a_trial_that_went_well_in_the_end_is_no_failure() -> None:
    spec = spec_of(blocks=3)
    outcomes = [outcome(f"b{b}-draft-4", error) for b in (1, 2) for error in (LASTING, None)]
    assert give_up(spec, planned(spec), outcomes).arms == {}


def test_two_trials_of_one_block_are_one_block() -> None:
    spec = spec_of({"name": "mod", "mode": "ngram-mod"}, points=THREE_POINTS, blocks=2)
    plan = planned(spec)
    same_block = [outcome("b1-mod-p1", LASTING), outcome("b1-mod-p2", LASTING)]
    assert give_up(spec, plan, same_block).arms == {}
    assert "mod" in give_up(spec, plan, [*same_block, outcome("b2-mod-p1", LASTING)]).arms


def test_a_baseline_that_is_given_up_ends_the_job() -> None:
    spec = spec_of(blocks=4)
    plan = planned(spec)
    outcomes = [outcome("b1-off", LASTING), outcome("b2-off", LASTING)]
    assert give_up(spec, plan, outcomes).job == LASTING
    assert next_trials(spec, plan, outcomes) == []

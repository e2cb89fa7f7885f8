"""How warm-up until settled, warm points and points with a rate are dealt, and what stands against them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from speccore.cautions import cautions
from speccore.dealing import arrivals_seed, warmup_shares
from speccore.errors import SpecError
from speccore.spec import ExperimentSpec, Warmup, parse_spec

from tests.core.made import planned, spec_of, workload

SETTLED = {"mode": "settled"}
TWO = [{"workload": "count", "probes": 2}, {"workload": "count", "probes": 2, "sampling": {"temperature": 0.8}}]


def test_until_settled_each_point_gets_ten_prompts_of_its_own() -> None:
    plan = planned(spec_of(points=TWO, warmup=SETTLED, blocks=2), count=workload(n_warmup=40))
    for trial in plan.trials:
        assert Counter(w.point for w in trial.warmup) == dict.fromkeys(trial.points, 10)
        assert len({w.item for w in trial.warmup}) == 20
        # Point by point, so that one has settled before the next begins.
        assert [w.point for w in trial.warmup] == sorted((w.point for w in trial.warmup), key=trial.points.index)
        assert [w.id for w in trial.warmup] == [f"warmup#{n}" for n in range(1, 21)]
    block = [t for t in plan.trials if t.block == 1]
    assert block[0].warmup == block[1].warmup


def test_a_short_workload_gives_what_it_has_down_to_six() -> None:
    has = {n: len(planned(spec_of(warmup=SETTLED), count=workload(n_warmup=n)).trials[0].warmup) for n in (6, 8, 10, 30)}
    assert has == {6: 6, 8: 8, 10: 10, 30: 10}
    with pytest.raises(
        SpecError, match=r"'count' has 5 distinct warm-up items; to see whether the speed has settled takes 6 at each point"
    ) as no:
        planned(spec_of(warmup=SETTLED), count=workload(n_warmup=5))
    assert no.value.body().details["field"] == "warmup.mode"
    assert "fixed" in no.value.body().remedy
    with pytest.raises(SpecError, match="2 points ask from it"):
        planned(spec_of(points=TWO, warmup=SETTLED), count=workload(n_warmup=11))


def test_with_several_at_once_the_windows_are_full() -> None:
    point = {"workload": "count", "concurrency": 8}
    spec = spec_of(points=[point], engine={"slots": 8}, warmup=SETTLED)
    assert len(planned(spec, count=workload(n_warmup=40)).trials[0].warmup) == 24
    assert warmup_shares(spec, {"count": workload(n_warmup=17)}) == {spec.points[0].key: 17}


def test_a_drafter_with_a_trial_for_each_point_warms_up_at_its_point_only() -> None:
    spec = spec_of({"name": "mod", "mode": "ngram-mod"}, points=TWO, warmup=SETTLED, blocks=1)
    for trial in planned(spec, count=workload(n_warmup=20)).trials:
        assert {w.point for w in trial.warmup} == set(trial.points)
        assert len(trial.warmup) == 10 * len(trial.points)


def test_a_warm_points_prompts_are_asked_once_before() -> None:
    points = [{"workload": "count", "probes": 3, "warm": True}, {"workload": "count", "probes": 3}]
    plan = planned(spec_of(points=points, blocks=2))
    for trial in plan.trials:
        ahead = [w for w in trial.warmup if w.ahead]
        warm = [p for p in trial.probes if p.point.endswith("/warm")]
        assert [w.item for w in ahead] == [p.item for p in warm]
        assert {w.point for w in ahead} == {p.point for p in warm}
        assert trial.warmup[-3:] == ahead
        # Another seed: a repeat is no copy where answers are drawn.
        assert not {w.seed for w in ahead} & {p.seed for p in warm}
        # The cold point beside it repeats nothing.
        cold = [p.item for p in trial.probes if not p.point.endswith("/warm")]
        assert len({*cold, *(p.item for p in warm), *(w.item for w in trial.warmup if not w.ahead)}) == 7


def test_a_rate_needs_enough_requests_and_one_at_a_time() -> None:
    point = {"workload": "count", "rate_per_s": 2.5, "probes": 4}
    plan = planned(spec_of(points=[point]))
    assert {len(t.probes) for t in plan.trials} == {24}
    assert plan.trials[0].points == ["count/c1/ctx0/t0/r2.5"]
    with pytest.raises(SpecError, match=r"24 probe requests of one trial \(24 by the clock\) need as many") as no:
        planned(spec_of(points=[point]), count=workload(n=20))
    assert no.value.body().details["field"] == "points.0.rate_per_s"
    data: dict[str, Any] = spec_of(points=[point], engine={"slots": 4}).model_dump(mode="json")
    data["points"][0]["concurrency"] = 4
    problems = parse_spec(data)[1]
    assert [p.field for p in problems] == ["points.0.rate_per_s"]
    assert "set concurrency to 1" in problems[0].message


def test_arrivals_are_drawn_anew_in_each_block() -> None:
    seeds = {arrivals_seed(seed, point, block) for seed in (1, 2) for point in ("a", "b") for block in (1, 2)}
    assert len(seeds) == 8
    assert arrivals_seed(1, "a", 1) == arrivals_seed(1, "a", 1)


def told(spec: ExperimentSpec, n_warmup: int) -> dict[str, str]:
    """Cautions by field, those of other matters left out."""
    found = cautions(spec, {"count": workload(n_warmup=n_warmup)})
    return {c.field: c.message for c in found if c.field.split(".")[-1] in ("most", "concurrency", "warm", "rate_per_s")}


def test_what_a_colleague_would_say_of_it() -> None:
    assert told(spec_of(warmup=SETTLED), 40) == {}
    assert "at most 7 of the 10 warm-up requests" in told(spec_of(warmup=SETTLED), 7)["warmup.most"]
    eight = spec_of(points=[{"workload": "count", "concurrency": 8}], engine={"slots": 8}, warmup=SETTLED)
    assert told(eight, 16) == {}
    assert "8 at once are warmed up with 6 at once" in told(eight, 12)["points.0.concurrency"]
    warm = [{"workload": "count", "warm": True}]
    assert "what a drafter remembers" in told(spec_of(points=warm), 4)["points.0.warm"]
    assert told(spec_of(points=warm, engine={"prefix_cache": True}), 4) == {}
    clock = [{"workload": "count", "rate_per_s": 2}]
    assert "wait for each other" in told(spec_of(points=clock), 4)["points.0.rate_per_s"]
    assert told(spec_of(points=clock, engine={"slots": 4}), 4) == {}


def test_what_is_rarely_set_of_a_point_is_said_in_words() -> None:
    rare = {"workload": "count", "rate_per_s": 2.5, "warm": True, "thinking": False}
    assert spec_of(points=[rare]).points[0].manner == ["2.5 a second by the clock", "each prompt asked before", "thinking off"]
    assert spec_of(points=[{"workload": "count", "concurrency": 4}], engine={"slots": 4}).points[0].manner == ["4 at once"]
    assert spec_of().points[0].manner == []


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({}, "settled"),
        ({"requests": 3}, "fixed"),  # a number is meant to be sent
        ({"most": 8}, "settled"),
        ({"mode": "settled", "requests": 3}, "settled"),
        ({"mode": "fixed"}, "fixed"),
    ],
)
def test_warm_up_goes_on_until_settled_unless_a_number_is_given(given: dict[str, Any], mode: str) -> None:
    assert Warmup.model_validate(given).mode == mode
    assert Warmup.model_validate(Warmup.model_validate(given).model_dump()).mode == mode

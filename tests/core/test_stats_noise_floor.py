"""A host's noise floor: which contrasts count, what one is made of, how long it holds, and what it promises."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from speccore import stats
from speccore.measurement import Withheld
from speccore.noise_floor import Contrast, HostFloor, Scope, contrast, host_floor, of_job, point_class
from speccore.spec import Point

NOW = datetime(2026, 5, 31, 12, tzinfo=UTC)
SCOPE = Scope(host="h1", driver="570.1", runtime="ab" * 32, point_class="c1/ctx0", n_blocks=5)
ESTIMATES = [0.01, -0.02, 0.03, -0.01, 0.02, -0.03, 0.01, 0.0, -0.02, 0.01]


def contrasts(estimates: list[float] = ESTIMATES, se: float = 0.005) -> list[Contrast]:
    return [Contrast(f"job{i}", NOW - timedelta(days=2 * i), SCOPE, e, se) for i, e in enumerate(estimates)]


def floor(given: list[Contrast], now: datetime = NOW) -> HostFloor:
    found = host_floor(given, SCOPE, now)
    assert isinstance(found, HostFloor)
    return found


def test_floor_is_the_formula_over_what_counts_with_its_evidence() -> None:
    found = floor(contrasts())
    assert found.floor == pytest.approx(math.exp(2 * math.sqrt(np.var(ESTIMATES, ddof=1) - 0.005**2)) - 1)
    assert {c.job for c in found.contrasts} == {f"job{i}" for i in range(10)}
    # With one more old contrast gone there are 9.
    assert found.valid_until == NOW - timedelta(days=18) + timedelta(days=30)
    assert isinstance(host_floor(contrasts(), SCOPE, found.valid_until), HostFloor)
    assert isinstance(host_floor(contrasts(), SCOPE, found.valid_until + timedelta(seconds=1)), Withheld)


def test_a_job_of_fewer_blocks_than_planned_has_the_floor_of_its_plan_where_it_has_none_of_its_own() -> None:
    planned, own = floor(contrasts()), floor(contrasts([2 * e for e in ESTIMATES]))
    none = Withheld(withheld="needs 10 A/A contrasts, has 0", reason_code="too_few_contrasts")

    def known(n_blocks: int, **by_blocks: HostFloor) -> tuple[float | None, int]:
        found = of_job(lambda n: by_blocks.get(f"of_{n}", none), n_blocks, 5)
        return found.floor, found.n_blocks

    assert known(3, of_5=planned) == (planned.floor, 5)
    assert known(3, of_5=planned, of_3=own) == (own.floor, 3)
    assert known(5, of_3=own) == (None, 5)
    assert known(3) == (None, 3)


def test_a_spare_contrast_keeps_the_floor_valid_for_longer() -> None:
    spare = Contrast("job10", NOW, SCOPE, 0.0, 0.005)
    assert floor([*contrasts(), spare]).valid_until == NOW - timedelta(days=16) + timedelta(days=30)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"host": "h2"}, "of another host"),
        ({"driver": "580.0"}, "with another driver"),
        ({"runtime": "cd" * 32}, "with another engine build"),
        ({"point_class": "c4/ctx0"}, "at another concurrency, rate or occupied context"),
        ({"n_blocks": 3}, "of another number of blocks than 5"),
    ],
)
def test_a_contrast_of_another_scope_does_not_count(change: dict[str, object], words: str) -> None:
    other = [replace(c, scope=replace(SCOPE, **change)) for c in contrasts()[:1]]  # type: ignore[arg-type]
    found = host_floor([*other, *contrasts()[1:]], SCOPE, NOW)
    assert found == Withheld(withheld=f"needs 10 A/A contrasts, has 9 (left out: 1 {words})", reason_code="too_few_contrasts")


def test_an_old_contrast_does_not_count() -> None:
    found = host_floor(contrasts(), SCOPE, NOW + timedelta(days=13))
    assert isinstance(found, Withheld)
    assert found.withheld == "needs 10 A/A contrasts, has 9 (left out: 1 older than 30 days)"
    assert host_floor([], SCOPE, NOW) == Withheld(withheld="needs 10 A/A contrasts, has 0", reason_code="too_few_contrasts")


def test_a_job_counts_once_with_its_latest_contrast() -> None:
    again = Contrast("job3", NOW, SCOPE, 0.5, 0.005)
    older = Contrast("job4", NOW - timedelta(days=29), SCOPE, 0.9, 0.005)
    found = floor([*contrasts(), again, older])
    assert len(found.contrasts) == 10
    assert {c.job: c.estimate for c in found.contrasts} | {"job3": 0.5, "job4": 0.02} == {c.job: c.estimate for c in found.contrasts}


def test_points_of_a_job_are_averaged_by_block_since_they_share_their_starts() -> None:
    made = contrast("j", NOW, SCOPE, [{1: 0.02, 2: 0.00, 3: 0.04, 4: 9.0}, {1: 0.00, 2: 0.02, 3: 0.02}])
    assert isinstance(made, Contrast)
    assert made.estimate == pytest.approx(np.mean([0.01, 0.01, 0.03]))
    assert made.standard_error == pytest.approx(stats.standard_error([0.01, 0.01, 0.03]))
    few = contrast("j", NOW, SCOPE, [{1: 0.02, 2: 0.0}])
    assert few == Withheld(withheld="a contrast needs 3 blocks, j has 2", reason_code="too_few_blocks")
    assert isinstance(contrast("j", NOW, SCOPE, []), Withheld)


def test_points_that_load_a_host_alike_are_one_class() -> None:
    alike = [Point(workload="count"), Point(workload="prose", max_tokens=64, probes=9)]
    assert {point_class(p) for p in alike} == {"c1/ctx0"}
    assert point_class(Point.model_construct(workload="count", concurrency=4, occupied_context=512)) == "c4/ctx512"
    assert point_class(Point.model_construct(workload="count", rate_per_s=2.5)) == "c1/ctx0/r2.5"  # latency under another load


def test_a_biased_host_keeps_nothing_that_is_only_its_bias() -> None:
    """Each job of the host has a bias of 2 % (sd): of later A/A jobs fewer than one in forty are over the floor."""
    rng = np.random.default_rng(6)

    def jobs(n: int) -> list[Contrast]:
        found = []
        for i in range(n):
            values = rng.normal(0, 0.02) + rng.normal(0, 0.005, 5)
            c = contrast(f"job{i}", NOW, SCOPE, [dict(enumerate(values))])
            assert isinstance(c, Contrast)
            found.append(c)
        return found

    f = floor(jobs(60)).floor
    assert f == pytest.approx(math.exp(0.04) - 1, abs=0.01)
    later = [stats.ratio_interval(list(rng.normal(0, 0.02) + rng.normal(0, 0.005, 5))) for _ in range(2000)]
    kept = sum(i.low > 1 + max(0.03, f) for i in later)  # type: ignore[union-attr, operator]
    assert kept / 2000 < 0.025

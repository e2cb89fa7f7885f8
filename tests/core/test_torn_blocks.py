"""When a block that was interrupted must be run whole once more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from speccore.plan import DoneTrial, torn_blocks
from speccore.protocol import JobPlan

from tests.core.made import planned, spec_of

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
MACHINE = {"boot_id": "boot-1", "driver": "570.1", "inventory_hash": "abc"}


def plan() -> JobPlan:
    return planned(spec_of(blocks=3))


def done(trial: str, ago: timedelta = timedelta(minutes=1), **changes: Any) -> DoneTrial:
    ended = NOW - ago
    fields = {**MACHINE, "started_at": ended - timedelta(seconds=30), "ended_at": ended, **changes}
    return DoneTrial(trial=trial, block=int(trial[1]), **fields)


def torn(*of: DoneTrial, **changes: Any) -> dict[int, str]:
    return torn_blocks(plan(), of, now=NOW, **MACHINE | changes)


def test_a_block_that_goes_on_soon_on_the_same_machine_is_whole() -> None:
    assert torn() == {}
    assert torn(done("b1-off")) == {}
    assert torn(done("b1-off", timedelta(minutes=10))) == {}


def test_a_gap_of_more_than_ten_minutes_after_its_last_trial() -> None:
    assert torn(done("b1-off", timedelta(minutes=10, seconds=1))) == {1: "10 minutes passed after b1-off, more than 10"}


@pytest.mark.parametrize(
    ("field", "said"), [("boot_id", "started anew"), ("driver", "the driver changed"), ("inventory_hash", "inventory")]
)
def test_another_machine_than_before(field: str, said: str) -> None:
    (reason,) = torn(done("b2-off"), **{field: "other"}).values()
    assert said in reason
    assert said in torn(done("b2-off", **{field: "older"}))[2]


def test_every_reason_is_named() -> None:
    assert torn(done("b1-off"), boot_id="boot-2", inventory_hash="def")[1].count(" and ") == 1


def test_a_finished_block_is_never_torn() -> None:
    finished = [done(t.id, timedelta(days=1), boot_id="older") for t in plan().trials if t.block == 1]
    assert torn(*finished) == {}
    assert list(torn(*finished, done("b2-off", boot_id="older"))) == [2]


def test_the_gap_counts_from_the_last_trial_of_the_block() -> None:
    spec = spec_of({"name": "a", "mode": "ngram-simple"}, {"name": "b", "mode": "draft", "draft_model": "d", "draft_limit": 2}, blocks=1)
    of = [done("b1-off", timedelta(minutes=14)), done("b1-a", timedelta(minutes=8))]
    assert torn_blocks(planned(spec), of, now=NOW, **MACHINE) == {}


def test_an_arm_that_was_given_up_leaves_no_block_open() -> None:
    of = [done("b1-off", timedelta(hours=1))]
    assert list(torn(*of)) == [1]
    left = {t.id for t in plan().trials if t.block > 1}
    assert torn_blocks(plan(), of, now=NOW, left=left, **MACHINE) == {}


def test_a_failed_attempt_that_is_tried_again_is_no_gap() -> None:
    """A slow failure keeps the machine busy with the block; else the block would tear with every try, without end."""
    of = [done("b1-off", timedelta(minutes=20)), done("b1-draft-4", timedelta(minutes=1))]
    left = {t.id for t in plan().trials} - {"b1-off"}
    assert torn_blocks(plan(), of, now=NOW, left=left, **MACHINE) == {}

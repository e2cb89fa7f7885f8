"""Every pair of states, against the moves as they are meant."""

from __future__ import annotations

import pytest
from speccore.jobstate import FINAL, HELD, JobState, may_move, sources_of

#: One row for each state; the columns are in the order of the rows. x: may move.
TABLE = """
waiting    . x . . . . . x x
queued     x . x . . . . x x
claimed    . . . x x x . x x
running    . . . . x x . x x
stalled    . . . x . x . x x
completed  . . . . . . x x .
processed  . . . . . . . . .
failed     . . . . . . . . .
cancelled  . . . . . . . . .
"""
STATES = ["waiting", "queued", "claimed", "running", "stalled", "completed", "processed", "failed", "cancelled"]
ROWS = {line.split()[0]: line.split()[1:] for line in TABLE.strip().splitlines()}


def test_the_table_names_every_state() -> None:
    assert list(ROWS) == STATES == [s.value for s in JobState]


@pytest.mark.parametrize("source", STATES)
@pytest.mark.parametrize("target", STATES)
def test_move(source: str, target: str) -> None:
    allowed = ROWS[source][STATES.index(target)] == "x"
    assert may_move(JobState(source), JobState(target)) is allowed
    assert (JobState(source) in sources_of(JobState(target))) is allowed


def test_final_states_are_left_by_no_move_and_held_ones_can_stall_or_end() -> None:
    assert {s.value for s in FINAL} == {"processed", "failed", "cancelled"}
    assert {s.value for s in HELD} == {"claimed", "running", "stalled"}
    assert all(may_move(s, end) for s in HELD for end in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED))

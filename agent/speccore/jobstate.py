"""The states of a job and the one table of moves between them.

``completed`` is the agent's word (it has nothing more to do); ``processed`` is the server's (everything parsed and compared).
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    WAITING = "waiting"  # no host can take it now; the reason stands beside it
    QUEUED = "queued"  # its host, devices and plan are fixed; the host's next poll gets it
    CLAIMED = "claimed"  # an agent holds the lease
    RUNNING = "running"  # the agent works on a trial
    STALLED = "stalled"  # the agent is silent
    COMPLETED = "completed"  # the agent's word
    PROCESSED = "processed"  # the server's word
    FAILED = "failed"
    CANCELLED = "cancelled"


MOVES: dict[JobState, frozenset[JobState]] = {
    JobState.WAITING: frozenset({JobState.QUEUED, JobState.FAILED, JobState.CANCELLED}),
    JobState.QUEUED: frozenset({JobState.CLAIMED, JobState.WAITING, JobState.FAILED, JobState.CANCELLED}),
    JobState.CLAIMED: frozenset({JobState.RUNNING, JobState.COMPLETED, JobState.STALLED, JobState.FAILED, JobState.CANCELLED}),
    JobState.RUNNING: frozenset({JobState.COMPLETED, JobState.STALLED, JobState.FAILED, JobState.CANCELLED}),
    JobState.STALLED: frozenset({JobState.RUNNING, JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED}),
    JobState.COMPLETED: frozenset({JobState.PROCESSED, JobState.FAILED}),
    JobState.PROCESSED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}

FINAL: frozenset[JobState] = frozenset(s for s, to in MOVES.items() if not to)
#: States in which an agent holds a lease.
HELD: frozenset[JobState] = frozenset({JobState.CLAIMED, JobState.RUNNING, JobState.STALLED})


def may_move(src: JobState, dst: JobState) -> bool:
    """Whether the table allows the move. A move to the same state is no move."""
    return dst in MOVES[src]


def sources_of(dst: JobState) -> frozenset[JobState]:
    """The states from which ``dst`` may be entered."""
    return frozenset(s for s, to in MOVES.items() if dst in to)

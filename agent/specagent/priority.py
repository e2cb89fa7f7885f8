"""Threads that measure are served before others that want their core, where the system allows it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

#: The lowest of the real-time priorities is before every ordinary program. Niceness would not do: it counts inside a session only.
_FIRST = 1


def may_go_first() -> bool:
    """Whether this program may ask for it: root, or who was granted it (``LimitRTPRIO=1`` of a systemd unit, say)."""
    with before_others() as first:
        return first


@contextlib.contextmanager
def before_others() -> Iterator[bool]:
    """For this thread; what it reads late, the kernel joins. It computes little, so the engine loses nothing. Yields whether it is so.

    Programs that it starts meanwhile are ordinary ones.
    """
    usual = None
    with contextlib.suppress(OSError, AttributeError):  # not allowed, or a system without it
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(_FIRST))
        usual = before
    try:
        yield usual is not None
    finally:
        if usual is not None:
            _restore(*usual)


def _restore(policy: int, param: os.sched_param) -> None:
    """Who was granted the priority and is not root may go back to the usual one, but not take back the flag for children."""
    try:
        os.sched_setscheduler(0, policy, param)
    except PermissionError:
        os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, param)

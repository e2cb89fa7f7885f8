"""Threads that measure are served before others that want their core, where the system allows it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

#: Ordinary programs have 0, and lower is served first.
_NICE = -15
#: How long another thread of this program may go on computing while the measuring one waits for the interpreter, in seconds.
_SWITCH_S = 0.0005


@contextlib.contextmanager
def before_others() -> Iterator[None]:
    """For this thread. What it reads late, the kernel joins. It computes little, so the engine loses nothing.

    Only root may, or who was granted it; a thread's own number stands for the thread on Linux only. Elsewhere nothing changes.
    """
    thread = threading.get_native_id()
    try:
        usual = os.getpriority(os.PRIO_PROCESS, thread) if sys.platform == "linux" else None
        if usual is not None:
            os.setpriority(os.PRIO_PROCESS, thread, min(usual, _NICE))
    except OSError:
        usual = None
    try:
        yield
    finally:
        if usual is not None:
            os.setpriority(os.PRIO_PROCESS, thread, usual)


@contextlib.contextmanager
def quick_turns() -> Iterator[None]:
    """Threads of this program take turns at the interpreter more often than usual, so that the measuring one waits for none."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, _SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(usual)

"""The measuring thread is served before others while it measures, where the system allows that, and is as before afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from specagent.load import Closed, Request

from tests.agent.loads import answer, requests, run
from tests.replay import ReplayServer


def nice_of_this_thread() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def may_be_served_first() -> bool:
    """Tried in a process of its own."""
    tried = "import os; os.setpriority(os.PRIO_PROCESS, 0, -15)"
    return sys.platform == "linux" and subprocess.run([sys.executable, "-c", tried], capture_output=True, check=False).returncode == 0


def measured() -> tuple[int, int, int]:
    """How nice the thread is before, while and after it measures."""
    seen: list[int] = []

    def asked() -> Iterator[Request]:
        for request in requests(2):
            seen.append(nice_of_this_thread())
            yield request

    before = nice_of_this_thread()
    with ReplayServer([answer(20), answer(20)]) as server:
        done = run(server, asked(), Closed(1, 2))
    assert [e.end for e in done.exchanges] == ["closed", "closed"]
    return before, min(seen), nice_of_this_thread()


def test_it_goes_before_others_only_while_it_measures() -> None:
    with ThreadPoolExecutor(1) as own:  # a thread of its own, so that the test's stays as it is
        before, meanwhile, after = own.submit(measured).result(timeout=30)
    assert meanwhile == (-15 if may_be_served_first() else before)
    assert after == before
    assert nice_of_this_thread() == before

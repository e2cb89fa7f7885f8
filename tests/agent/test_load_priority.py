"""The measuring thread is served before others while it measures, where the system allows that, and is as before afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from specagent import priority
from specagent.load import Closed, Request

from tests.agent.loads import answer, requests, run
from tests.replay import ReplayServer


def may_be_served_first() -> bool:
    """Tried in a process of its own."""
    tried = "import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))"
    return subprocess.run([sys.executable, "-c", tried], capture_output=True, check=False).returncode == 0


def policy() -> int:
    return os.sched_getscheduler(0)  # of the calling thread


def measured() -> tuple[int, set[int], int]:
    """The policy by which the thread is served before, while and after it measures."""
    seen: set[int] = set()

    def asked() -> Iterator[Request]:
        for request in requests(2):
            seen.add(policy())
            yield request

    before = policy()
    with ReplayServer([answer(20), answer(20)]) as server:
        done = run(server, asked(), Closed(1, 2))
    assert [e.end for e in done.exchanges] == ["closed", "closed"]
    return before, seen, policy()


def test_it_goes_before_others_only_while_it_measures() -> None:
    with ThreadPoolExecutor(1) as own:  # a thread of its own, so that the test's stays as it is
        before, meanwhile, after = own.submit(measured).result(timeout=30)
    assert meanwhile == {os.SCHED_RR | os.SCHED_RESET_ON_FORK if may_be_served_first() else before}
    assert after == before
    assert policy() == before


GRANTED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from specagent.priority import before_others
usual = os.sched_getscheduler(0)
with before_others() as first:
    assert first is (os.sched_getscheduler(0) != usual)
    if os.geteuid() == 0:
        os.setgid(65534), os.setuid(65534)  # from here on as one who is not root
again = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK  # only root may take the flag back
assert again == usual, (again, usual)
"""


def test_who_was_granted_it_and_is_not_root_is_served_as_usual_afterwards(tmp_path: Path) -> None:
    copied = tmp_path / "specagent"  # by itself, so that nothing else is imported
    copied.mkdir()
    shutil.copy(Path(priority.__file__), copied)
    done = subprocess.run([sys.executable, "-S", "-c", GRANTED, str(tmp_path)], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr

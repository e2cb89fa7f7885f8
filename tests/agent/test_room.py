"""A disk that is full, on a real small tmpfs: a clear state, nothing half-written, and it goes on by itself when there is room."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from specagent import client, evidence, local, room
from specagent.filecache import FileCache
from specagent.inventory import Host
from specagent.loop import Loop
from specagent.spool import Spool
from speccore.protocol import JobOffer, PollRequest
from speccore.workload import Workload

from tests.agent.fake_server import FakeServer
from tests.agent.test_kills import wait_until

SIZE_MIB = 160


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(folder)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, leave: int = 0) -> Path:
    """Writes until nothing (or ``leave`` bytes) is free."""
    filler = disk / "filler"
    page = b"x" * os.statvfs(disk).f_frsize
    with filler.open("ab", buffering=0) as f, contextlib.suppress(OSError):
        while os.statvfs(disk).f_bavail * len(page) > leave:
            free = os.statvfs(disk).f_bavail * len(page) - leave
            f.write(page * min(free // len(page), 4096))
    return filler


class Agent:
    """An agent whose state lies on the small disk. ``acts`` are run once, when a heartbeat or a phase is what they wait for."""

    def __init__(self, server: FakeServer, host: Host, disk: Path) -> None:
        self.server, self.disk = server, disk
        self.spool = Spool(disk / "spool")
        host.engine_records = disk / "engines"
        http = client.Client("https://specweb.test", "agent-token", transport=server.transport, sleep=lambda seconds: None)
        self.loop = Loop(http, self.spool, lambda: host, once=True)
        self.result: list[tuple[int, str]] = []
        self.thread = threading.Thread(target=lambda: self.result.append(self.loop.run()), daemon=True)

    def when(self, phase: str, act: Callable[[], object]) -> None:
        """``act`` runs in the runner's own thread, just when it says that it enters the phase."""
        tell, acted = self.loop._tell, []

        def telling(running: object) -> None:
            tell(running)
            if running.phase == phase and not acted:
                acted.append(act())

        self.loop._tell = telling

    def polls(self, phase: str) -> list[PollRequest]:
        return [p for p in self.server.polls if p.running and p.running.phase == phase]

    def finish(self) -> None:
        self.thread.join(timeout=60)
        assert self.result == [(0, "")]


@pytest.fixture
def agent(fake_server: FakeServer, host: Host, disk: Path, workload: Workload, spec_with: Callable) -> Iterator[Agent]:
    made = local.make_offer(spec_with(), host, {workload.name: workload})
    fake_server.offers.append(made.model_copy(update={"lease": 1, "lease_token": "secret"}))
    agent = Agent(fake_server, host, disk)
    yield agent
    (disk / "filler").unlink(missing_ok=True)
    agent.loop.quit()
    if agent.thread.ident:
        agent.thread.join(timeout=20)


def leftovers(disk: Path) -> list[str]:
    return [str(p.relative_to(disk)) for p in disk.rglob("*") if p.is_file() and (".part" in str(p) or "work/" in str(p))]


def all_is_delivered(agent: Agent, offer: JobOffer) -> None:
    reports = list(agent.server.reports.values())
    assert sorted(r.trial for r in reports if r.outcome == "ok") == sorted(t.id for t in offer.plan.trials)
    assert [r.error for r in reports if r.outcome != "ok"] == []
    assert [f.outcome for f in agent.server.finished] == ["completed"]
    assert leftovers(agent.disk) == []
    assert agent.spool.waiting() == []


def test_too_little_room_for_an_attempt_is_waited_for_and_told_with_its_remedy(agent: Agent) -> None:
    (offer,) = agent.server.offers
    filler = fill(agent.disk, leave=40 << 20)
    agent.thread.start()
    wait_until(lambda: len(agent.polls("waiting for room")) >= 2, "it tells that it waits")
    poll = agent.polls("waiting for room")[-1]
    assert poll.problem is not None
    assert (poll.problem.code, poll.problem.retry) == ("disk_full", True)
    assert "goes on by itself" in poll.problem.remedy
    assert f"{agent.spool.work} has 40 MiB free, and the next attempt needs 64 MiB" in poll.running.note
    assert agent.server.reports == {}
    filler.unlink()
    agent.finish()
    all_is_delivered(agent, offer)
    assert agent.server.polls[-1].problem is None


@pytest.mark.parametrize("phase", ["starting", "warm-up", "probing", "stopping", "ended"])
def test_a_disk_that_fills_up_while_it_measures(agent: Agent, phase: str) -> None:
    """Whatever was being written then: the log, the record, the evidence, the spool."""
    (offer,) = agent.server.offers
    agent.when(phase, lambda: fill(agent.disk))
    agent.thread.start()
    wait_until(lambda: len(agent.polls("waiting for room")) >= 1, "it tells that it waits", 30)
    assert agent.polls("waiting for room")[-1].problem.code == "disk_full"
    (agent.disk / "filler").unlink()
    agent.finish()
    all_is_delivered(agent, offer)


def test_what_waits_is_delivered_while_there_is_no_room(agent: Agent) -> None:
    """An outage fills the disk; when the server is back, delivery frees the room that the job waits for."""
    import httpx

    (offer,) = agent.server.offers
    away = []

    def no_uploads(request: httpx.Request) -> httpx.Response | None:
        return httpx.Response(503, text="busy") if away and "/blobs/" in request.url.path else None

    agent.server.faults.append(no_uploads)
    away.append(True)
    agent.thread.start()
    wait_until(lambda: len(agent.spool.waiting()) == 1, "the first attempt is in the spool")
    fill(agent.disk)
    wait_until(lambda: len(agent.polls("waiting for room")) >= 1, "it tells that it waits", 30)
    away.clear()
    wait_until(lambda: len(agent.server.reports) >= 1, "what waits is delivered all the same")
    (agent.disk / "filler").unlink()
    agent.finish()
    all_is_delivered(agent, offer)


def test_a_cancel_is_heard_while_it_waits_for_room(agent: Agent) -> None:
    (offer,) = agent.server.offers
    fill(agent.disk, leave=1 << 20)
    agent.thread.start()
    wait_until(lambda: len(agent.polls("waiting for room")) >= 1, "it tells that it waits")
    agent.server.cancel.append(offer.job_id)
    wait_until(lambda: len(agent.server.finished) == 1, "it ends", 5)
    assert agent.server.finished[0].outcome == "cancelled"


def test_files_are_whole_or_not_there(disk: Path) -> None:
    path = disk / "a.json"
    evidence.write_whole(path, b"old")
    fill(disk)
    with pytest.raises(OSError, match="No space"):
        evidence.write_whole(path, b"new" * 100_000)
    assert path.read_bytes() == b"old"
    assert [p.name for p in disk.iterdir() if p.name != "filler"] == ["a.json"]


def test_the_cache_of_hashes_is_only_a_cache(disk: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.write_bytes(b"x")
    cache = FileCache(disk / "files.json")
    cache.sha256(model)
    fill(disk)
    cache.save()
    assert list(disk.glob("files*")) == []
    (disk / "filler").unlink()
    cache.save()
    assert FileCache(disk / "files.json").get(model, "sha256")


def test_the_estimate_follows_the_last_attempt(disk: Path) -> None:
    said: list[object] = []
    stop = threading.Event()
    measured = room.Room(disk, stop, said.append, lambda: None)
    measured.wait()
    measured.attempt_took(100 << 20)
    stop.set()
    with pytest.raises(room.Stopped):
        measured.wait()
    assert "needs 200 MiB" in said[0].message
    assert said[-1] is None

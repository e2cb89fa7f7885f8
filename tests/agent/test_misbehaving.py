"""Engines that misbehave, by fakes so named: never measured as good, never in the way, nothing of them left."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from specagent import ready
from specagent.inventory import Host
from specagent.launch import Engine
from speccore import records

from tests.agent import fake_engines
from tests.agent.fake_engines import fake_engine
from tests.agent.test_kills import runs, wait_until

ALONE = {"arms": [{"name": "off", "mode": "off"}, {"name": "ngram", "mode": "ngram-simple"}]}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    yield
    wait_until(lambda: all(p.pid in before for p in psutil.Process().children(recursive=True)), "nothing is left", 3)


def test_children_that_outlive_it_are_ended_with_it(job: Callable, host: Host, tmp_path: Path) -> None:
    ran = job(on=fake_engine("that-forks", fake_engines.FORKS_CHILDREN, tmp_path, host))
    assert ran.run().outcome == "completed"
    children = [int(pid) for pid in (tmp_path / "children").read_text().split()]
    assert len(children) == 2 * len(ran.sink.done)
    assert not any(map(runs, children))
    for _, folder in ran.sink.done:
        assert records.AttemptSummary.model_validate_json((folder / records.ATTEMPT).read_text()).leftover_pids == []
    assert list((host.engine_records or tmp_path).iterdir()) == []


def test_a_gigabyte_of_log_neither_blocks_it_nor_fills_the_disk(job: Callable, host: Host, spec_with: Callable, tmp_path: Path) -> None:
    ran = job(spec_with(**ALONE), fake_engine("that-logs", fake_engines.LOGS_A_GIGABYTE, tmp_path, host))
    assert ran.run().outcome == "completed"
    for report, folder in ran.sink.done:
        assert report.outcome == "ok"
        log = (folder / records.LOG).read_bytes()
        assert len(log) <= 65 << 20
        lines = log.splitlines()
        assert lines[0] == b"fake: first line"
        (gap,) = (line for line in lines if line.startswith(b"[specweb-agent: "))
        n_left_out = int(gap.split()[1])
        assert len(log) - len(gap) - 1 + n_left_out > 1 << 30
        assert all(line.startswith((b"fake: chatter", b"fake: first")) for line in lines[: lines.index(gap)])
        assert b"fake: last line before the engine" in lines
        assert any(b"print_timing" in line or b"server is listening" in line for line in lines)  # the engine's own end is there
        assert [ref.bytes for ref in report.evidence if ref.kind == "log"] == [len(log)]


def test_a_log_that_is_not_too_long_is_kept_to_the_byte(tmp_path: Path) -> None:
    program = "import os\nfor i in range(300000): os.write(1, b'line %d\\n' % i)"
    engine = start_script(program, tmp_path)
    assert engine.ended(timeout_s=60) is not None
    engine.stop()
    assert (tmp_path / "log").read_bytes() == b"".join(b"line %d\n" % i for i in range(300000))


def start_script(program: str, folder: Path) -> Engine:
    import sys

    return Engine([sys.executable, "-c", program], {}, folder, folder / "log")


def test_healthy_before_its_model_is_loaded_is_waited_for(job: Callable, host: Host, spec_with: Callable, tmp_path: Path) -> None:
    """It is ready when /props answers; that its first requests fail all the same ends the attempt, and nothing is measured as good."""
    ran = job(spec_with(**ALONE), fake_engine("healthy-too-early", fake_engines.HEALTHY_TOO_EARLY, tmp_path, host))
    ran.run()
    for report, folder in ran.sink.done:
        assert (report.outcome, report.error.code) == ("failed", "engine_not_healthy")
        assert "warm-up request warmup#1 failed" in report.error.message
        assert records.Launch.model_validate_json((folder / records.LAUNCH).read_text()).healthy_after_s > 1.0
    assert [r.n for r, _ in ran.sink.done if r.trial == ran.sink.done[0][0].trial] == [1, 2]


def test_healthy_with_another_model_is_told_when_the_model_is_there(job: Callable, host: Host, spec_with: Callable, tmp_path: Path) -> None:
    ran = job(spec_with(**ALONE), fake_engine("of-another-model", fake_engines.HEALTHY_WITH_ANOTHER_MODEL, tmp_path, host))
    ran.run()
    assert {r.error.code for r, _ in ran.sink.done} == {"engine_loaded_other"}
    assert all("/other.gguf" in r.error.message for r, _ in ran.sink.done)


class Squatter(http.server.BaseHTTPRequestHandler):
    """Another program on the promised port, which calls itself healthy."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(params=[False, True], ids=["alone", "sharing the port"])
def taken_port(request: pytest.FixtureRequest) -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Squatter, bind_and_activate=False)
    if request.param:  # as llama-server itself does, so that both can listen
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.server_bind()
    server.server_activate()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def test_a_port_that_another_program_took_is_noticed_and_another_one_tried(
    job: Callable, monkeypatch: pytest.MonkeyPatch, taken_port: int
) -> None:
    promised = [taken_port]
    real_free_port = ready.free_port
    monkeypatch.setattr(ready, "free_port", lambda: promised.pop() if promised else real_free_port())
    ran = job()
    assert ran.run().outcome == "completed"
    first, *others = (r for r, _ in ran.sink.done)
    assert (first.outcome, first.error.code, first.error.retry) == ("failed", "port_unavailable", True)
    assert [(r.trial, r.n) for r in others if r.trial == first.trial] == [(first.trial, 2)]
    assert all(r.outcome == "ok" for r in others)


@contextlib.contextmanager
def cancelling(ran: object, phase: str) -> Iterator[list[float]]:
    """Stops the job as soon as it says that it is in this phase; gives the moment."""
    asked: list[float] = []
    was = ran.tell

    def tell(running: object) -> None:
        was(running)
        if running.phase == phase and not asked:
            asked.append(0.0)
            timer = threading.Timer(0.5, lambda: (asked.__setitem__(0, time.monotonic()), ran.stop.set()))
            timer.start()

    ran.tell = tell
    yield asked


#: Of the five seconds, two belong to the poll that brings the word.
STOPS_WITHIN_S = 3.0


@pytest.mark.parametrize(
    ("program", "phase"),
    [
        (fake_engines.IGNORES_TERM, "starting"),
        (fake_engines.HANGS, "starting"),
        (fake_engines.HANGS, "warm-up"),
        (fake_engines.HANGS_AFTER_WARM_UP, "probing"),
        (fake_engines.STOPS_SLOWLY, "stopping"),
    ],
    ids=["loading for ever", "starting", "warm-up", "probing", "stopping"],
)
def test_a_cancel_is_quick_in_each_phase(job: Callable, host: Host, spec_with: Callable, tmp_path: Path, program: str, phase: str) -> None:
    engine = {"context": 512, "start_timeout_s": 600, "probe_timeout_s": 600}
    ran = job(spec_with(engine=engine, **ALONE), fake_engine("that-hangs", program, tmp_path, host))
    with cancelling(ran, phase) as asked:
        finished = ran.run()
    assert time.monotonic() - asked[0] < STOPS_WITHIN_S
    assert finished.outcome == "cancelled"
    assert len(ran.sink.done) <= 1

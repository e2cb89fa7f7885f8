"""How well the client knows what it measured: over TLS, when it is held up, with many streams."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from specagent import load
from specagent.health import bottleneck, health_of_records
from specagent.load import Closed, Request, Target
from specagent.receive import UserReceiver
from speccore.engines import openai_stream
from speccore.records import ClientHealth

from tests.agent.loads import answer, requests, run
from tests.replay import ReplayServer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(folder / "both.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(made, check=True, capture_output=True)
    with (folder / "both.pem").open("a") as both:
        both.write((folder / "cert.pem").read_text())
    return folder


TLS_SERVER = """
import json, socket, ssl, sys, time
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain(sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0)); print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    try:
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.recv(65536)
            tls.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\n\\r\\n")
            for i in range(4):
                time.sleep(0.05)
                choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop" if i == 3 else None}
                tls.sendall(b"data: " + json.dumps({"choices": [choice], "usage": {"completion_tokens": i + 1}}).encode() + b"\\n\\n")
    except ssl.SSLError:
        pass
"""


@contextmanager
def tls_server(certificate: Path) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", TLS_SERVER, certificate / "both.pem"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def test_over_tls_arrivals_are_those_of_the_read(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    with tls_server(certificate) as port:
        result = load.run_load(Target("localhost", port, "/", tls=True), requests(2), Closed(1), timeout_s=10)
    for record, _ in load.records_of(result, openai_stream):
        assert (record.failure, record.stamps) == ("", "user")
        gaps = [b.at_s - a.at_s for a, b in itertools.pairwise(record.events)]
        assert statistics.median(gaps) == pytest.approx(0.05, abs=0.02)
    assert result.health.stamps == "user"
    assert result.health.lag_ms_p99 is None  # not 0: nobody can tell
    assert result.health.round_ms_p99 is not None


def test_a_certificate_that_nobody_knows_is_refused(certificate: Path) -> None:
    with tls_server(certificate) as port:
        result = load.run_load(Target("localhost", port, "/", tls=True), requests(1), Closed(1), timeout_s=10)
    ((record, _),) = load.records_of(result, openai_stream)
    assert "certificate verify failed" in record.failure_message


def test_a_client_that_reads_late_says_so_and_keeps_the_arrivals(tmp_path: Path) -> None:
    """Another thread holds the interpreter for 20 ms at a time."""
    over = threading.Event()

    def hog() -> None:
        while not over.is_set():
            sum(range(400_000))

    interval, thread = sys.getswitchinterval(), threading.Thread(target=hog)
    sys.setswitchinterval(0.02)
    thread.start()
    try:
        with rate_server(tmp_path, "--rate", "100") as (port, answers):
            result = load.run_load(Target("127.0.0.1", port, "/v1/chat/completions"), [rated(60)], Closed(1), timeout_s=20)
    finally:
        sys.setswitchinterval(interval)
        over.set()
        thread.join()
    ((record, _),) = load.records_of(result, openai_stream)
    health = health_of_records([record], measured=result.health)
    assert health.n_events == len(record.events)
    assert health.n_late > 10
    assert health.lag_ms_max is not None
    assert health.lag_ms_max > 5
    bearing = [e for e in record.events if e.tokens]
    errors = [1000 * (result.began_at + e.at_s - at) for e, at in zip(bearing, answers[0]["stamps"], strict=True) if not e.queued]
    assert len(errors) > 15
    assert statistics.median(errors) < 0.5  # against the sender's own stamps, however late it was read


def test_at_64_streams_arrivals_are_exact_and_few_are_marked(tmp_path: Path) -> None:
    with rate_server(tmp_path, "--rate", "50") as (port, answers):
        result = load.run_load(
            Target("127.0.0.1", port, "/v1/chat/completions"), [rated(40, i) for i in range(64)], Closed(64), timeout_s=30
        )
    records = [r for r, _ in load.records_of(result, openai_stream)]
    assert {r.failure for r in records} == {""}
    assert {sum(e.tokens for e in r.events) for r in records} == {40}
    health = health_of_records(records, measured=result.health)
    assert health.stamps == "kernel"
    assert health.lag_ms_max is not None
    assert health.n_queued <= 0.01 * health.n_events or health.lag_ms_max > 20  # held up for more than an event's distance
    assert health.cpu_share is not None
    assert bottleneck(health) == "" or health.cpu_share > 0.9
    errors = []
    for record, answered in zip(sorted(records, key=lambda r: r.sent_at_s), sorted(answers, key=lambda a: a["asked_at"]), strict=True):
        bearing = [e for e in record.events if e.tokens]
        errors += [1000 * (result.began_at + e.at_s - at) for e, at in zip(bearing, answered["stamps"], strict=True) if not e.queued]
    assert statistics.median(errors) < 0.2
    assert sorted(errors)[int(0.95 * len(errors))] < 1  # the rest: the sender itself was held up before its write


def rated(n: int, i: int = 0) -> Request:
    more = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    return Request({"model": "replay-model", "messages": [{"role": "user", "content": f"{i}"}], "max_tokens": n} | more, probe=str(i))


@contextmanager
def rate_server(folder: Path, *options: str) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Its port, and its answers with the moment of each write: filled after the block."""
    file, answers = folder / "stamps.json", list[dict[str, Any]]()
    argv = [sys.executable, "-m", "tests.replay.rate", "--stamps", str(file), *options]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        try:
            yield json.loads(process.stdout.readline())["port"], answers
            process.stdin.close()
            process.wait(20)
        finally:
            process.kill()
    answers += json.loads(file.read_text())


@pytest.mark.parametrize(
    ("health", "said"),
    [
        (ClientHealth(n_events=1000, n_queued=10, stamps="kernel"), ""),
        (ClientHealth(n_events=1000, n_queued=11, stamps="kernel"), "1.1 % of the events so late"),
        (ClientHealth(n_events=1000, n_late=900, lag_ms_p99=30.0, stamps="kernel"), ""),  # late, and exact all the same
        (ClientHealth(n_events=9, cpu_share=0.95, stamps="kernel"), "95 % of a core"),
        (ClientHealth(n_events=9, round_ms_p99=3.0, stamps="user"), "up to 3.0 ms"),
        (ClientHealth(n_events=9, round_ms_p99=3.0, stamps="kernel"), ""),
        (ClientHealth(), ""),
    ],
)
def test_a_client_that_was_the_bottleneck_says_so(health: ClientHealth, said: str) -> None:
    assert said in bottleneck(health)
    assert (bottleneck(health) == "") is (said == "")


def test_another_receiver_can_be_asked_for() -> None:
    with ReplayServer(answer(50)) as server:
        result = run(server, requests(1), Closed(1), receiver=UserReceiver)
    ((record, _),) = load.records_of(result, openai_stream)
    assert (record.stamps, record.failure) == ("user", "")
    assert all(e.read_at_s == e.at_s for e in record.events)

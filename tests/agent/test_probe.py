"""The probe against a scripted socket: arrivals, framing, and every way in which an answer can go wrong."""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import dataclass, field

import pytest
from specagent.asking import Address
from specagent.probe import Probed, run_probe
from specagent.receive import Segment
from specagent.sse import parse_response, sse_events
from speccore import engines
from speccore.protocol import ProbePlan
from speccore.spec import Point

SLACK_S = 0.06  # a shared machine may wake us late; segments of one script lie further apart
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def event(text: str, ids: list[int], n: int, **more: object) -> bytes:
    data = {"index": 0, "content": text, "tokens": ids, "stop": False, "tokens_predicted": n, "tokens_evaluated": 5} | more
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def final(n: int) -> bytes:
    timings = {"cache_n": 0, "prompt_n": 5, "prompt_ms": 1.0, "predicted_n": n, "predicted_ms": 10.0 * n}
    more = {"stop": True, "stop_type": "limit", "generation_settings": {"speculative.types": "none"}, "timings": timings}
    return event("", [], n, **more)


@dataclass
class ScriptedServer:
    """Answers one request with segments at their milliseconds, each one write, then closes (or holds the connection)."""

    segments: list[tuple[int, bytes]]
    hold: bool = False
    written_at: list[float] = field(default_factory=list)

    def __enter__(self) -> ScriptedServer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(timeout=10)
        self._listener.close()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            request = b""
            while b"\r\n\r\n" not in request:
                data = connection.recv(65536)
                if not data:
                    return
                request += data
            head, _, body = request.partition(b"\r\n\r\n")
            length = int(next(line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")))
            while len(body) < length:
                body += connection.recv(65536)
            self.request = json.loads(body)
            began = time.monotonic()
            for at_ms, data in self.segments:
                time.sleep(max(0.0, began + at_ms / 1000 - time.monotonic()))
                self.written_at.append(time.monotonic())
                connection.sendall(data)
            if self.hold:
                self._done.wait(20)


def ask(server: ScriptedServer, *, timeout_s: float = 10.0, stop: threading.Event | None = None) -> Probed:
    return run_probe(
        engines.engine("llama-server"),
        Address("127.0.0.1", server.port),
        ProbePlan(id="p#1", point="w/c1/ctx0/t0", item="i", seed=7),
        Point(workload="w", max_tokens=16),
        "One two",
        t0=0.0,
        timeout_s=timeout_s,
        stop=stop or threading.Event(),
    )


def arrivals(probed: Probed) -> list[float]:
    return [e.at_s for e in probed.record.events]


def assert_arrived_with(probed: Probed, server: ScriptedServer, segment_of_event: list[int]) -> None:
    """Event i must bear the arrival of the segment that completed it: after its writing, before the next one's."""
    assert len(arrivals(probed)) == len(segment_of_event)
    for at, segment in zip(arrivals(probed), segment_of_event):
        assert 0 <= at - server.written_at[segment] < SLACK_S


def test_one_token_an_event() -> None:
    head = SSE_HEAD + b"\r\n"
    segments = [(0, head), *((100 + 80 * i, event(f"t{i} ", [i], i + 1)) for i in range(4)), (420, final(4))]
    with ScriptedServer(segments) as server:
        probed = ask(server)
    assert probed.record.failure == ""
    assert probed.record.status == 200
    assert_arrived_with(probed, server, [1, 2, 3, 4, 5])
    assert [e.tokens for e in probed.record.events] == [1, 1, 1, 1, 0]
    assert probed.text.texts[:4] == ["t0 ", "t1 ", "t2 ", "t3 "]
    assert probed.text.ids[:4] == [[0], [1], [2], [3]]
    assert probed.text.request == server.request
    assert probed.record.final["tokens_predicted"] == 4
    assert probed.record.connected_at_s <= probed.record.sent_at_s <= server.written_at[0]


def test_a_burst_has_one_arrival() -> None:
    burst = b"".join(event(f"t{i}", [i], i + 1) for i in range(5))
    with ScriptedServer([(0, SSE_HEAD + b"\r\n"), (100, burst), (250, event("t5", [5], 6) + final(6))]) as server:
        probed = ask(server)
    assert_arrived_with(probed, server, [1] * 5 + [2, 2])
    assert len(set(arrivals(probed))) == 2


@pytest.mark.parametrize("cut", [1, 20, 60, -2, -1])
def test_an_event_arrives_when_its_end_arrives(cut: int) -> None:
    whole = event("hello", [1], 1)
    with ScriptedServer([(0, SSE_HEAD + b"\r\n" + whole[:cut]), (100, whole[cut:]), (200, final(1))]) as server:
        probed = ask(server)
    assert probed.record.failure == ""
    assert_arrived_with(probed, server, [1, 2])


def test_a_character_split_over_segments_stays_whole() -> None:
    whole = event("naïve 🦙", [1, 2], 2)
    inside_llama = whole.index("🦙".encode()) + 2
    with ScriptedServer([(0, SSE_HEAD + b"\r\n" + whole[:inside_llama]), (100, whole[inside_llama:] + final(2))]) as server:
        probed = ask(server)
    assert probed.text.texts[0] == "naïve 🦙"
    assert_arrived_with(probed, server, [1, 1])


def test_chunks_that_cut_events_anywhere() -> None:
    stream = event("a", [1], 1) + event("b", [2], 2) + final(2)
    head = SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    first, second = stream[:31], stream[31:]
    sent = [(0, head), (100, b"%x\r\n%s\r\n" % (len(first), first)), (200, b"%x\r\n%s\r\n0\r\n\r\n" % (len(second), second))]
    with ScriptedServer(sent) as server:
        probed = ask(server)
    assert probed.record.failure == ""
    assert_arrived_with(probed, server, [2, 2, 2])
    assert probed.text.texts[:2] == ["a", "b"]


def test_comments_and_missing_spaces_are_no_events() -> None:
    bare = event("a", [1], 1).replace(b"data: ", b"data:")
    with ScriptedServer([(0, SSE_HEAD + b"\r\n: hello\n\n"), (100, bare), (180, b":\n\n"), (260, final(1))]) as server:
        probed = ask(server)
    assert probed.record.failure == ""
    assert_arrived_with(probed, server, [1, 3])


def test_closed_in_the_middle() -> None:
    with ScriptedServer([(0, SSE_HEAD + b"\r\n" + event("a", [1], 1)), (60, event("b", [2], 2))]) as server:
        probed = ask(server)
    assert probed.record.failure == "probe_failed"
    assert [e.tokens for e in probed.record.events] == [1, 1]  # what came is kept


def test_a_chunked_answer_that_breaks_off() -> None:
    data = event("a", [1], 1) + final(1)
    with ScriptedServer([(0, SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n" % (len(data), data))]) as server:
        probed = ask(server)
    assert probed.record.failure == "probe_failed"
    assert "broke off" in probed.record.failure_message


def test_an_error_inside_a_200() -> None:
    error = b'data: {"error":{"code":500,"message":"engine died","type":"server_error"}}\n\n'
    with ScriptedServer([(0, SSE_HEAD + b"\r\n" + event("a", [1], 1)), (60, error)]) as server:
        probed = ask(server)
    assert probed.record.failure
    assert "engine died" in probed.record.failure_message


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            b'HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\r\n{"error":{"message":"Loading model"}}',
            "Loading model",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>proxy</html>", "text/html"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no answer"),
        (b"", "no answer"),
        (SSE_HEAD + b'\r\ndata: {"content": \n\n', ""),
    ],
)
def test_what_is_no_answer(answer: bytes, said: str) -> None:
    with ScriptedServer([(10, answer)]) as server:
        probed = ask(server)
    assert probed.record.failure == "probe_failed"
    assert said in probed.record.failure_message
    assert probed.record.failure_message


def test_nobody_listens() -> None:
    with ScriptedServer([]) as server:
        socket.create_connection(("127.0.0.1", server.port)).close()
    probed = ask(server)
    assert probed.record.failure == "probe_failed"
    assert "no connection" in probed.record.failure_message


def test_silence_ends_at_the_limit_and_says_how_long() -> None:
    with ScriptedServer([(0, SSE_HEAD + b"\r\n" + event("a", [1], 1))], hold=True) as server:
        began = time.monotonic()
        probed = ask(server, timeout_s=0.8)
        took = time.monotonic() - began
    assert probed.end == "timeout"
    assert probed.record.failure == "probe_stalled"
    assert 0.8 <= took < 10
    assert len(probed.record.events) == 1


def test_a_stop_ends_a_silent_probe_soon() -> None:
    stop = threading.Event()
    with ScriptedServer([(0, SSE_HEAD + b"\r\n")], hold=True) as server:
        threading.Timer(0.2, stop.set).start()
        began = time.monotonic()
        probed = ask(server, timeout_s=30, stop=stop)
        took = time.monotonic() - began
    assert probed.end == "stopped"
    assert took < 15


def test_a_stop_before_the_request_asks_nothing() -> None:
    stop = threading.Event()
    stop.set()
    with ScriptedServer([(0, SSE_HEAD + b"\r\n")]) as server:
        socket.create_connection(("127.0.0.1", server.port)).close()
        probed = ask(server, stop=stop)
    assert (probed.end, probed.record.failure, probed.record.status) == ("stopped", "probe_failed", 0)


def test_framing_does_not_depend_on_where_segments_are_cut() -> None:
    stream = SSE_HEAD + b"\r\n" + event("ä", [1], 1) + b": ping\r\n\r\n" + event("🦙b", [2, 3], 3).replace(b"\n", b"\r\n") + final(3)
    whole = sse_events(parse_response([Segment(1.0, 1.0, False, stream)]).parts)
    assert len(whole) == 3
    for cut in range(1, len(stream)):
        cut_up = sse_events(parse_response([Segment(1.0, 1.0, False, stream[:cut]), Segment(2.0, 2.0, False, stream[cut:])]).parts)
        assert [data for _, data in cut_up] == [data for _, data in whole]

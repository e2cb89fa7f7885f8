"""Requests at a concurrency or a rate: who is in flight when, what is measured from where, and how a run ends."""

from __future__ import annotations

import itertools
import random
import select
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from specagent import load
from specagent.asking import Exchange
from specagent.health import overload
from specagent.load import Closed, Open, Request, Target
from speccore.engines import openai_stream

from tests.agent.loads import answer, event, requests, run
from tests.replay import ReplayServer, Script

ROOT = Path(__file__).parents[2]


def in_flight(result: load.LoadResult, at: float) -> int:
    return sum(e.sent_at <= at < e.closed_at for e in result.exchanges)


# --- closed loop ---


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_so_many_are_in_flight_and_no_more(concurrency: int) -> None:
    with ReplayServer(answer(80)) as server:
        result = run(server, requests(3 * concurrency), Closed(concurrency))
        server.wait(3 * concurrency)
    assert len(result.exchanges) == 3 * concurrency
    records = [record for record, _ in load.records_of(result, openai_stream)]
    assert {r.failure for r in records} == {""}
    assert {sum(e.tokens for e in r.events) for r in records} == {5}
    assert sorted(r.probe for r in records) == sorted(f"p#{i}" for i in range(3 * concurrency))
    assert max(in_flight(result, e.sent_at) for e in result.exchanges) == concurrency
    assert result.window is not None
    begin, end = result.window
    seen = [in_flight(result, begin + (end - begin) * i / 50) for i in range(50)]
    assert statistics.mean(seen) > 0.8 * concurrency
    assert result.health.observed_concurrency == pytest.approx(statistics.mean(seen), abs=0.15 * concurrency)


def test_the_window_is_from_the_first_moment_that_all_decode_until_the_last_request_is_sent() -> None:
    scripts = [answer(100), answer(200), answer(100), answer(100)]
    with ReplayServer(scripts) as server:
        result = run(server, requests(4), Closed(2))
    assert result.window is not None
    first_tokens = sorted(next(s.at_s for s in e.segments if b"data:" in s.data) for e in result.exchanges)
    assert result.window[0] == first_tokens[1]
    assert result.window[1] == max(e.sent_at for e in result.exchanges)


def test_without_a_queue_there_is_no_window() -> None:
    with ReplayServer(answer(50)) as server:
        result = run(server, requests(3), Closed(3))
    assert result.window is None
    assert result.health.observed_concurrency is None


def test_it_ends_with_the_number_or_the_time() -> None:
    def endless() -> Iterator[Request]:
        return (Request({"i": i}) for i in itertools.count())

    with ReplayServer(answer(40)) as server:
        assert len(run(server, endless(), Closed(2, n=5)).exchanges) == 5  # type: ignore[arg-type]
        began = time.monotonic()
        timed = run(server, endless(), Closed(2, duration_s=0.4))  # type: ignore[arg-type]
    assert 0.4 <= time.monotonic() - began < 3
    assert 2 < len(timed.exchanges) < 30
    assert {e.end for e in timed.exchanges} == {"closed"}  # what was begun is finished


@pytest.mark.parametrize("concurrency", [0, 257])
def test_one_client_drives_1_to_256(concurrency: int) -> None:
    with pytest.raises(ValueError, match=f"concurrency is {concurrency}"):
        Closed(concurrency)


# --- open loop ---


def test_requests_by_the_clock_whatever_the_answers_do() -> None:
    with ReplayServer(answer(300)) as server:
        result = run(server, requests(10), Open(50.0, n=10, process="constant"))
    due = [e.scheduled_at for e in result.exchanges]
    assert [b - a for a, b in itertools.pairwise(due)] == pytest.approx([0.02] * 9)  # type: ignore[operator]
    late = [e.sent_at - e.scheduled_at for e in result.exchanges]  # type: ignore[operator]
    assert min(late) >= 0
    assert statistics.median(late) < 0.01
    assert max(in_flight(result, e.sent_at) for e in result.exchanges) == 10
    records = [r for r, _ in load.records_of(result, openai_stream)]
    assert [r.scheduled_at_s for r in records] == pytest.approx([0.02 * i for i in range(10)], abs=0.001)


def test_a_poisson_process_is_the_seeds_and_has_its_rate() -> None:
    first = list(itertools.islice(Open(20.0, seed=3).times(), 4000))
    assert first == list(itertools.islice(Open(20.0, seed=3).times(), 4000))
    assert first != list(itertools.islice(Open(20.0, seed=4).times(), 4000))
    gaps = [b - a for a, b in itertools.pairwise(first)]
    assert statistics.mean(gaps) == pytest.approx(1 / 20, rel=0.06)
    assert statistics.stdev(gaps) == pytest.approx(1 / 20, rel=0.08)  # as its mean: that is what makes it Poisson
    assert all(t < 2 for t in Open(20.0, duration_s=2.0).times())
    with pytest.raises(ValueError, match="rate_per_s is 0"):
        Open(0.0)


def exchange(scheduled: float, took: float) -> Exchange:
    return Exchange(Request({}), "/", b"", scheduled, scheduled, scheduled, scheduled + took, [], "kernel", "closed")


def test_overload_is_told_by_what_keeps_growing() -> None:
    steady = [exchange(i / 10, 1.0) for i in range(60)]
    assert overload(steady) == ""
    assert overload([exchange(i / 10, 3.0) for i in range(60)]) == ""  # the first three seconds fill the server
    chance = random.Random(5)
    for _ in range(200):  # as many in flight as chance will have it
        at = itertools.accumulate(chance.expovariate(10) for _ in range(100))
        assert overload([exchange(t, chance.expovariate(1)) for t in at]) == ""
    growing = overload([exchange(i / 10, 1.0 + i / 10) for i in range(60)])
    assert growing.startswith("requests came faster than they were answered: ")
    assert overload([exchange(0.0, 1.0)] * 5) == ""  # nothing to compare


def test_a_server_with_one_place_is_overloaded() -> None:
    with one_at_a_time(0.05) as port:
        result = load.run_load(Target("127.0.0.1", port, "/"), requests(40), Open(60.0, n=40, process="constant"), timeout_s=20)
    assert "faster than they were answered" in result.overloaded
    latencies = [e.closed_at - e.scheduled_at for e in result.exchanges]  # type: ignore[operator]
    assert statistics.mean(latencies[-5:]) > 3 * statistics.mean(latencies[:5])


@contextmanager
def one_at_a_time(took_s: float) -> Iterator[int]:
    """Answers one connection after the other; the others wait to be accepted."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                if select.select([listener], [], [], 0.05)[0]:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65536)
                        time.sleep(took_s)
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + event("x", 1, "stop"))

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        over.set()
        thread.join()


# --- ends ---


def test_one_that_stalls_holds_nobody_up() -> None:
    stalls = Script([(10, event("x", 1))], framing="chunked", end="hold", whole=False)
    with ReplayServer(lambda path, body: stalls if body["i"] == 0 else answer(100)) as server:
        result = run(server, requests(4), Closed(2), stall_s=0.4)
    records = {r.probe: r for r, _ in load.records_of(result, openai_stream)}
    assert records["p#0"].failure == "probe_stalled"
    assert "the last byte came" in records["p#0"].failure_message
    assert [e.tokens for e in records["p#0"].events] == [1]  # what came is kept
    assert {records[f"p#{i}"].failure for i in (1, 2, 3)} == {""}
    assert {e.end for e in result.exchanges} == {"stalled", "closed"}


def test_a_stream_that_never_ends_ends_at_the_limit() -> None:
    drips = Script([(20 * i, event("x", i + 1)) for i in range(200)], framing="chunked")
    with ReplayServer(drips) as server:
        began = time.monotonic()
        result = run(server, requests(1), Closed(1), timeout_s=0.6, stall_s=0.3)
    assert 0.6 <= time.monotonic() - began < 2
    assert result.exchanges[0].end == "timeout"


def test_an_answer_without_end_is_given_up_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends on and on would fill the memory, and what came would be looked through for minutes."""
    monkeypatch.setattr(load, "MOST_BYTES", 4 << 20)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def flood() -> None:
            client, _ = server.accept()
            with client:
                client.recv(1 << 16)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ")
                try:
                    while True:
                        client.sendall(b"x" * (1 << 16))
                except OSError:
                    pass

        threading.Thread(target=flood, daemon=True).start()
        done = load.run_load(Target(*server.getsockname()), requests(1), Closed(1, 1), timeout_s=60)
    (exchange,) = done.exchanges
    assert (exchange.end, exchange.error) == ("too long", "more than 4 MiB came for one request")
    assert sum(len(s.data) for s in exchange.segments) < 100 << 18
    ((record, _),) = load.records_of(done, openai_stream)
    assert (record.failure, record.failure_message) == ("probe_failed", "more than 4 MiB came for one request")


def test_a_stop_ends_all_and_begins_none() -> None:
    stop = threading.Event()
    with ReplayServer(Script([(5, event("x", 1))], framing="chunked", end="hold", whole=False)) as server:
        threading.Timer(0.3, stop.set).start()
        began = time.monotonic()
        result = run(server, requests(50), Closed(4), stop=stop)
    assert time.monotonic() - began < 2
    assert [e.end for e in result.exchanges] == ["stopped"] * 4


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_server_that_keeps_the_connection_open_is_not_waited_for(framing: Any) -> None:
    script = answer(50, end="hold")
    kept = Script(script.segments, framing=framing, end="hold")
    with ReplayServer(kept) as server:
        began = time.monotonic()
        result = run(server, requests(1), Closed(1))
    assert time.monotonic() - began < 2
    ((record, _),) = load.records_of(result, openai_stream)
    assert (result.exchanges[0].end, record.failure) == ("closed", "")


def test_a_connection_that_is_reset_keeps_what_came() -> None:
    with ReplayServer(Script([(5, event("x", 1)), (60, event("y", 2))], framing="chunked", end="reset", whole=False)) as server:
        result = run(server, requests(1), Closed(1))
    ((record, _),) = load.records_of(result, openai_stream)
    assert record.failure == "probe_failed"
    assert "reset" in record.failure_message.lower() or "ended early" in record.failure_message
    assert [e.tokens for e in record.events] == [1, 1]


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    result = load.run_load(Target("127.0.0.1", port), requests(3), Closed(2), timeout_s=5)
    assert [e.end for e in result.exchanges] == ["refused"] * 3
    ((record, _), *_) = load.records_of(result, openai_stream)
    assert record.failure_message == "no connection: Connection refused"
    assert result.health.lag_ms_p50 is None  # nothing was measured


def test_a_long_prompt_is_sent_in_parts_and_stamped_at_its_end() -> None:
    long = Request({"prompt": "x" * 20_000_000}, probe="long")
    with ReplayServer(answer(50)) as server:
        result = run(server, [long], Closed(1))
        (played,) = server.wait()
    ((record, _),) = load.records_of(result, openai_stream)
    assert played.body == long.body
    assert record.failure == ""
    assert played.asked_at - result.exchanges[0].sent_at < 0.5  # the server read all of it by then, and no megabytes came after
    assert result.exchanges[0].sent_at < played.asked_at


def test_what_is_sent_is_what_was_asked_for() -> None:
    with ReplayServer(answer(20)) as server:
        target = Target("127.0.0.1", server.port, "/v1/chat/completions", headers={"Authorization": "Bearer secret"})
        result = load.run_load(target, [Request({"a": "ü"}, "/other")], Closed(1), timeout_s=5)
        (played,) = server.wait()
    assert (played.path, played.body, played.headers["authorization"]) == ("/other", {"a": "ü"}, "Bearer secret")
    assert (played.headers["accept"], played.headers["connection"]) == ("text/event-stream", "close")
    ((record, _),) = load.records_of(result, openai_stream)
    assert record.path == "/other"
    assert record.connected_at_s <= record.sent_at_s <= record.events[0].at_s  # type: ignore[operator]

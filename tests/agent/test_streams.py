"""What servers stream, over real sockets and cut in every way: each case's right values, and no number from garbage."""

from __future__ import annotations

import bisect
import itertools
import re
from functools import cache
from typing import Any

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specagent import load
from specagent.asking import Request
from specagent.receive import Segment
from specagent.sse import parse_response, sse_events
from speccore.cycles import cycles
from speccore.measure import probe_times
from speccore.measurement import Withheld, value_of
from speccore.records import StreamRecord, TextRecord

from tests.agent.streamed import CASES, LLAMA, cut, dialect_of, recorded, wire
from tests.replay import ReplayServer, Script

#: What the cases call a fault: (our code, what its message says).
FAULTS = {
    "early_close": ("probe_failed", "ended early"),
    "server_error": ("probe_failed", "the engine reported an error"),
    "http_503": ("probe_failed", "HTTP 503"),
    "not_a_stream": ("probe_failed", "no event stream but text/html"),
    "bad_event": ("probe_failed", "not JSON"),
    "count_mismatch": ("counts_disagree", "tokens: "),
}
#: Why a pace is withheld, in the cases' words and in our codes.
REASONS = {
    "tokens of the first chunk are not known": "no_client_count",
    "the server reported no token count": "no_client_count",
    "one arrival": "one_arrival",
}


@cache
def played(name: str, framing: str) -> tuple[StreamRecord, TextRecord, list[float]]:
    """The case over a real socket: its record, its texts, and when each of its segments was written."""
    case = CASES[name]
    with ReplayServer(Script.of_case(case, framing=framing)) as server:
        target = load.Target("127.0.0.1", server.port, case["path"])
        result = load.run_load(target, [Request({"n": 1}, probe="p")], load.Closed(1), timeout_s=10)
        (exchange,) = server.wait()
    ((record, text),) = load.records_of(result, dialect_of(case))
    return record, text, [at - result.began_at for at in exchange.segments_at]


def by_the_script(name: str, framing: str) -> StreamRecord:
    """The record with the script's time of the segment that brought each event, in place of the arrival.

    That segment is the last one written before the arrival; a stamp before the write, or after the next one, would show.
    """
    record, _, written = played(name, framing)
    script_ms = [s[0] for s in CASES[name]["segments"]]
    events = []
    for event in record.events:
        segment = bisect.bisect_right(written, event.at_s) - 1
        assert segment >= 0, "it arrived before it was written"
        assert not event.queued
        events.append(event.model_copy(update={"at_s": script_ms[segment] / 1000}))
    return record.model_copy(update={"events": events, "sent_at_s": 0.0})


@pytest.mark.parametrize("framing", ["close", "chunked", "length"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_case_over_a_real_socket(name: str, framing: str) -> None:
    expect = CASES[name]["expect"]
    record, text, _ = played(name, framing)
    assert record.stamps == "kernel"
    counts = LLAMA.probe_counts(record, 1, off=False, metrics=None, log=None)
    failure, message = record.failure, record.failure_message
    if not failure and counts.disagreements:
        failure, message = "counts_disagree", "; ".join(counts.disagreements)
    assert (failure == "") is expect["valid"], message
    if "reason_code" in expect:
        code, said = FAULTS[expect["reason_code"]]
        assert failure == code
        assert said in message
    assert expect.get("message_contains", "") in message
    if "tokens" in expect:
        tokens = value_of(counts.completion_tokens)
        assert (value_of(counts.server_tokens) if tokens is None else tokens) == expect["tokens"]
    if "text" in expect:
        assert "".join(text.texts) == expect["text"]
    if "finish_reason" in expect:
        assert counts.finish_reason == expect["finish_reason"]
    if "cycles" in expect:
        steps = [(c.drafted, c.accepted, c.emitted, pytest.approx(c.ms)) for c in cycles(record) or []]
        assert steps == [(c["drafted"], c["accepted"], c["committed"], c["ms"]) for c in expect["cycles"]]


@pytest.mark.parametrize("framing", ["close", "chunked"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_times_of_a_case(name: str, framing: str) -> None:
    expect, times = CASES[name]["expect"], probe_times(by_the_script(name, framing), 1)
    durations = {"ttft_any_ms": times.ttft_any_s, "ttft_content_ms": times.ttft_content_s, "last_token_ms": times.e2e_s}
    for key in durations.keys() & expect.keys():
        wanted = None if expect[key] is None else pytest.approx(expect[key] / 1000)
        assert value_of(durations[key]) == wanted, key
    if expect.get("first_chunk_tokens") is not None:
        assert times.n_first == expect["first_chunk_tokens"]
    if "decode_tokens_per_s" not in expect:
        return
    rate = times.decode_tokens_per_s
    assert value_of(rate) == (None if expect["decode_tokens_per_s"] is None else pytest.approx(expect["decode_tokens_per_s"]))
    if isinstance(rate, Withheld) and "reason" in expect:
        assert rate.reason_code == REASONS[expect["reason"]]
        assert rate.withheld.startswith(expect["reason"])


# --- any cut of the bytes gives the same records ---


def without_times(record: StreamRecord, text: TextRecord) -> tuple[dict[str, Any], dict[str, Any]]:
    events = [e.model_copy(update={"at_s": 0.0, "read_at_s": None}) for e in record.events]
    return record.model_copy(update={"events": events}).model_dump(), text.model_dump()


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted(CASES)),
    framing=st.sampled_from(["close", "chunked", "length"]),
    places=st.lists(st.integers(1, 1 << 20), max_size=40),
)
def test_any_split_gives_the_same_record(name: str, framing: str, places: list[int]) -> None:
    data, dialect = wire(name, framing), dialect_of(CASES[name])
    whole = recorded([Segment(0.0, 0.0, False, data)], dialect)
    assert without_times(*recorded(cut(data, places), dialect)) == without_times(*whole)


@settings(max_examples=200, deadline=None)
@given(framing=st.sampled_from(["close", "chunked"]), places=st.lists(st.integers(1, 1 << 20), max_size=40))
def test_an_event_arrives_with_the_segment_that_completes_it(framing: str, places: list[int]) -> None:
    data = wire("utf8-split-across-segments", framing)
    segments = cut(data, places)
    record, _ = recorded(segments)
    came = list(itertools.accumulate(len(segment.data) for segment in segments))
    blanks = [m.end() for m in re.finditer(rb"\n\n", data)]
    assert len(record.events) == len(blanks) - 1  # [DONE] is the last
    for event, blank in zip(record.events, blanks):
        assert event.at_s == bisect.bisect_left(came, blank)
        assert event.read_at_s == event.at_s + 0.5


def test_each_byte_by_itself() -> None:
    for framing in ("close", "chunked", "length"):
        data = wire("reasoning-then-content", framing)
        record, text = recorded([Segment(float(i), float(i), False, data[i : i + 1]) for i in range(len(data))])
        assert (record.failure, [e.tokens for e in record.events], "".join(text.texts)) == ("", [1, 2, 1, 0], "hm so42")


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@settings(max_examples=60, deadline=None)
@given(places=st.lists(st.integers(1, 1 << 20), max_size=20))
def test_every_line_end_that_the_standard_knows(newline: bytes, places: list[int]) -> None:
    body = 'event: x\ndata: {"a":\ndata: "é"}\nid: 3\n\n: ping\n\ndata\n\ndata:b\n\ndata: cut off'.encode().replace(b"\n", newline)
    parts = [((s.at_s), s.data) for s in cut(body, places)]
    assert [data for _, data in sse_events(parts)] == ['{"a":\n"é"}', "", "b"]  # type: ignore[arg-type]


@st.composite
def chunked_bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A body and its chunked coding, with upper and lower case sizes, extensions and trailers."""
    chunks = draw(st.lists(st.binary(min_size=1, max_size=60), max_size=8))
    coded = b""
    for chunk in chunks:
        size = (b"%x" if draw(st.booleans()) else b"%X") % len(chunk)
        coded += b"0" * draw(st.integers(0, 2)) + size + draw(st.sampled_from([b"", b";a=b", b';q="x" '])) + b"\r\n" + chunk + b"\r\n"
    return b"".join(chunks), coded + b"0\r\n" + draw(st.sampled_from([b"", b"X-Trailer: 1\r\n"])) + b"\r\n"


@settings(max_examples=300, deadline=None)
@given(both=chunked_bodies(), places=st.lists(st.integers(1, 1 << 20), max_size=20), keep=st.integers(0, 1 << 20))
def test_chunked_coding_is_read_as_h11_reads_it(both: tuple[bytes, bytes], places: list[int], keep: int) -> None:
    body, coded = both
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    sent = head + coded
    assert b"".join(d for _, d in parse_response(cut(sent, places)).parts) == body == by_h11(sent)[0]
    broken = sent[: len(head) + keep % len(coded)]  # ends somewhere
    ours = parse_response(cut(broken, places))
    theirs, is_whole = by_h11(broken)
    assert b"".join(d for _, d in ours.parts) == theirs
    if is_whole:
        assert ours.problem == ""
    elif b"0\r\n" not in broken[-20:]:  # with the last chunk's size the body is whole; we don't wait for trailers
        assert ours.problem


def by_h11(sent: bytes) -> tuple[bytes, bool]:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(sent)
    body = b""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return body, True
        elif event is h11.NEED_DATA:
            return body, False


def test_an_interim_response_is_not_the_answer() -> None:
    record, _ = recorded([Segment(0.0, 0.0, False, b"HTTP/1.1 100 Continue\r\n\r\n" + wire("one-token-an-event", "chunked"))])
    assert (record.status, record.failure, len(record.events)) == (200, "", 12)

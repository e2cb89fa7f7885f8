"""The replay server itself: its segments, its stamps, its ends. What is judged by it must be able to trust it."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replay import ReplayServer, Script

SO_TIMESTAMPING, RX_SOFTWARE, SOFTWARE = 37, 1 << 3, 1 << 4
CASES = {c["name"]: c for c in json.loads((Path(__file__).parents[1] / "logs" / "streams.json").read_text())}


@pytest.fixture(scope="module", autouse=True)
def _the_kernel_stamps() -> Iterator[None]:
    """Linux begins to stamp a moment after the first socket asked for it, and ends when none asks: one asks all the time."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RX_SOFTWARE | SOFTWARE)
        asking.bind(("127.0.0.1", 0))
        asking.settimeout(5)
        for _ in range(200):
            asking.sendto(b"?", asking.getsockname())
            if asking.recvmsg(16, 256)[1]:
                break
            time.sleep(0.01)
        yield


def connect(port: int, body: bytes = b'{"n": 1}') -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    client.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RX_SOFTWARE | SOFTWARE)
    client.sendall(b"POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: a\r\nX-Own: yes\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    return client


def reads(client: socket.socket) -> list[tuple[float, bytes]]:
    """(the kernel's arrival by the monotonic clock, bytes) of each read up to the end of the connection."""
    got = []
    while True:
        data, controls, _, _ = client.recvmsg(1 << 16, 256)
        if not data:
            return got
        seconds, nanoseconds = struct.unpack_from("qq", controls[0][2])
        offset = time.time() - time.monotonic()
        got.append((seconds + nanoseconds / 1e9 - offset, data))


def n_segments(client: socket.socket) -> int:
    """Segments with data that the kernel has got, however late they were read (``tcpi_data_segs_in`` of linux/tcp.h)."""
    return int(struct.unpack_from("=I", client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 156), 152)[0])


def joined(got: list[tuple[float, bytes]]) -> bytes:
    return b"".join(data for _, data in got)


def body_of(got: list[tuple[float, bytes]]) -> bytes:
    return joined(got).partition(b"\r\n\r\n")[2]


def test_each_segment_is_a_write_of_its_own_at_its_time() -> None:
    segments = [(60.0, b"a" * 10), (120.0, b"b" * 3000), (180.0, b"c")]
    with ReplayServer(Script(segments)) as server, connect(server.port) as client:
        got = reads(client)
        (played,) = server.wait()
        assert n_segments(client) == 4  # the head and three
    assert body_of(got) == b"a" * 10 + b"b" * 3000 + b"c"
    assert joined(got).startswith(b"HTTP/1.1 200 ")
    assert len(played.segments_at) == 3
    assert all(-0.001 < late < 500 for late in played.lateness_ms)  # never early; a busy machine may be late
    if len(got) == 4:  # else the machine was so busy that the kernel joined segments under one stamp
        for (arrived_at, _), wrote_at in zip(got, played.wrote_at):
            assert -0.0005 < arrived_at - wrote_at < 0.05  # the stamp is the one of this very write


def test_the_request_is_kept() -> None:
    with ReplayServer(Script([(0, b"x")])) as server:
        with connect(server.port, b'{"prompt": "One"}') as client:
            reads(client)
        with connect(server.port, b"\xff") as client:
            reads(client)
        first, second = server.wait(2)
    assert first.path == "/v1/chat/completions?x=1"
    assert first.headers["x-own"] == "yes"
    assert first.body == {"prompt": "One"}
    assert second.body == b"\xff"


def test_chunks_are_http_chunks_in_one_write_each() -> None:
    with ReplayServer(Script([(30, b"hello"), (80, b"world!")], framing="chunked")) as server, connect(server.port) as client:
        got = reads(client)
        assert n_segments(client) == 3
    assert body_of(got) == b"5\r\nhello\r\n6\r\nworld!\r\n0\r\n\r\n"
    assert b"Transfer-Encoding: chunked" in joined(got)


def test_a_head_can_travel_with_the_first_segment() -> None:
    script = Script([(40, b"first"), (90, b"second")], head_at_ms=None)
    with ReplayServer(script) as server, connect(server.port) as client:
        got = reads(client)
        (played,) = server.wait()
        assert n_segments(client) == len(played.segments_at) == 2
    assert body_of(got) == b"firstsecond"


def test_raw_segments_are_all_that_is_sent() -> None:
    with ReplayServer(Script([(0, b"SSH-2.0\r\n")], framing="raw")) as server, connect(server.port) as client:
        assert joined(reads(client)) == b"SSH-2.0\r\n"


def test_a_promised_length_that_does_not_come() -> None:
    with ReplayServer(Script([(0, b"half")], framing="length", length=8)) as server, connect(server.port) as client:
        got = reads(client)
    assert b"Content-Length: 8" in joined(got)
    assert body_of(got) == b"half"


def test_reset_is_a_reset() -> None:
    with ReplayServer(Script([(10, b"a")], end="reset")) as server, connect(server.port) as client:
        time.sleep(0.1)
        with pytest.raises(ConnectionResetError):
            reads(client)


def test_hold_is_silence_until_the_server_ends() -> None:
    with ReplayServer(Script([(0, b"a")], end="hold")) as server:
        client = connect(server.port)
        server.wait()
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            reads(client)
    client.settimeout(5)
    assert reads(client) == []  # a clean end
    client.close()


def test_a_client_that_leaves_is_noted() -> None:
    with ReplayServer(Script([(0, b"a"), (100, b"b"), (200, b"c"), (300, b"d")])) as server:
        with connect(server.port) as client:
            client.recv(10)
        (played,) = server.wait()
    assert played.broken
    assert len(played.wrote_at) < 5


def test_scripts_in_turn_or_chosen() -> None:
    with ReplayServer([Script([(0, b"one")]), Script([(0, b"two")])]) as server:
        bodies = []
        for _ in range(3):
            with connect(server.port) as client:
                bodies.append(body_of(reads(client)))
    assert bodies == [b"one", b"two", b"two"]
    with ReplayServer(lambda path, body: Script([(0, path.encode() + b"%d" % body["n"])])) as server, connect(server.port) as client:
        assert body_of(reads(client)) == b"/v1/chat/completions?x=11"


def test_a_recorded_case_is_played_byte_by_byte() -> None:
    case = CASES["utf8-split-across-segments"]
    with ReplayServer(Script.of_case(case)) as server, connect(server.port) as client:
        got = reads(client)
        assert n_segments(client) == 1 + len(case["segments"])
    assert body_of(got) == b"".join(bytes.fromhex(d) if kind == "hex" else d.encode() for _, d, kind in case["segments"])
    with ReplayServer(Script.of_case(CASES["http-503-with-a-body"], framing="chunked")) as server, connect(server.port) as client:
        assert joined(reads(client)).startswith(b"HTTP/1.1 503 ")

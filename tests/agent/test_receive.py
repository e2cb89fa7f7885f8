"""The kernel's stamps against the sender's: exact however late one reads, and marked where they can't be."""

from __future__ import annotations

import fcntl
import socket
import statistics
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from specagent.receive import EXACT_S, KernelReceiver, Segment, UserReceiver, receiver

EVENT = b'data: {"n": %d, "more": "' + b"x" * 180 + b'"}\n\n'


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """(sender, reader) over loopback; the reader doesn't block."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as reader:
        sender, _ = listener.accept()
        with sender:
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reader.setblocking(False)
            yield sender, reader


def send(sender: socket.socket, n: int, gap_s: float = 0.0) -> list[float]:
    """When each event was handed to the kernel."""
    sent_at = []
    for i in range(n):
        sent_at.append(time.monotonic())
        sender.sendall(EVENT % i)
        if gap_s:
            time.sleep(gap_s)
    return sent_at


def read_all(reading: KernelReceiver | UserReceiver, n_bytes: int) -> list[Segment]:
    until = time.monotonic() + 5
    while sum(len(s.data) for s in reading.segments()) < n_bytes and time.monotonic() < until:
        assert reading.read()
    return list(reading.segments())


def errors_ms(sent_at: list[float], segments: list[Segment]) -> list[float]:
    return [1000 * (s.at_s - at) for at, s in zip(sent_at, segments, strict=True)]


def test_an_event_that_waited_unread_keeps_its_own_arrival() -> None:
    with pair() as (sender, reader):
        reading = receiver(reader)
        assert isinstance(reading, KernelReceiver)
        errors = []
        for i in range(10):
            sent_at = send(sender, 1)
            time.sleep(0.02)
            read_all(reading, (i + 1) * len(EVENT % 0))
            segment = reading.segments()[-1]
            errors += errors_ms(sent_at, [segment])
            assert segment.read_at_s - segment.at_s > 0.015
            assert not segment.queued
    assert reading.stamps == "kernel"
    assert min(errors) >= 0
    assert statistics.median(errors) < 0.2


def bursts(sender: socket.socket, reading: KernelReceiver, writes: list[bytes], n: int) -> Iterator[tuple[list[float], list[Segment]]]:
    """``n`` times: when each was written, two milliseconds apart, and what came of them, read only after all. A burst that the
    kernel acknowledges before it is read (it does after 40 ms, if the sender was held up) shows nothing, and is written again."""
    taken, n_tries = 0, 0
    while n:
        n_tries += 1
        assert n_tries < 500, "the kernel acknowledges each burst before it is read"
        sent_at = []
        for data in writes:
            sent_at.append(time.monotonic())
            sender.sendall(data)
            time.sleep(0.002)
        n_bytes, n_before = sum(map(len, writes)), len(reading.segments())
        held_back = struct.unpack("i", fcntl.ioctl(sender, termios.TIOCOUTQ, b"\0" * 4))[0] == n_bytes
        taken += n_bytes
        came = read_all(reading, taken)[n_before:]
        if held_back:
            n -= 1
            yield sent_at, came


def as_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize("framed", [bytes, as_chunk])
@pytest.mark.parametrize("size", [0, 300, 1000])
def test_a_burst_that_waited_is_read_event_by_event_with_each_ones_arrival(size: int, framed: Callable[[bytes], bytes]) -> None:
    """Five events two milliseconds apart, read after the last: joined, the first would be 8 ms off. None is doubtful, nor the last."""
    event = framed(EVENT[:-4] % 1 + b"y" * size + b'"}\n\n')
    with pair() as (sender, reader):
        for sent_at, came in bursts(sender, KernelReceiver(reader), [event] * 5, 10):
            assert [s.data for s in came] == [event] * 5
            assert [s.queued for s in came] == [False] * 5
            late_ms = errors_ms(sent_at, came)
            assert min(late_ms) >= 0
            assert statistics.median(late_ms) < 1


def test_the_end_of_an_answer_makes_its_last_event_no_bound() -> None:
    """The last event shares its segment, and so its stamp, with ``[DONE]`` and the end of the chunked coding."""
    event, end = as_chunk(EVENT % 1), as_chunk(EVENT % 2) + as_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    with pair() as (sender, reader):
        for _, came in bursts(sender, KernelReceiver(reader), [event, event, end], 5):
            assert b"".join(s.data for s in came) == event + event + end
            assert not any(s.queued for s in came)
            assert came[2].at_s == came[-1].at_s > came[1].at_s


def test_events_of_one_segment_arrived_together_and_are_no_bound() -> None:
    with pair() as (sender, reader):
        reading = KernelReceiver(reader)
        at = time.monotonic()
        sender.sendall(b"".join(EVENT % i for i in range(5)))
        time.sleep(0.02)
        (segment,) = read_all(reading, 5 * len(EVENT % 0))
    assert segment.data.count(b"\n\n") == 5
    assert not segment.queued
    assert 0 <= segment.at_s - at < 0.01


def test_what_the_kernel_joined_is_marked_and_never_too_early() -> None:
    """A reader that acknowledges at once lets the kernel join what comes next: then only the last arrival is a figure."""
    with pair() as (sender, reader):
        reading = KernelReceiver(reader)
        reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        sent_at = send(sender, 6, 0.005)
        came = read_all(reading, 6 * len(EVENT % 0))
    assert len(came) == 6
    errors = errors_ms(sent_at, came)
    assert sum(s.queued for s in came) >= 3
    assert not came[-1].queued
    for error, segment in zip(errors, came, strict=True):
        assert error >= 0  # an upper bound
        assert segment.queued or error < 1000 * EXACT_S + 0.5


def test_joined_events_that_are_bounded_within_a_millisecond_are_figures() -> None:
    with pair() as (sender, reader):
        reading = KernelReceiver(reader)
        for i in range(20):
            reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            reading.read()  # nothing is there: what comes now came after this
            looked_at = time.monotonic()
            send(sender, 3)
            for segment in read_all(reading, 3 * (i + 1) * len(EVENT % 0))[-3:]:
                assert not segment.queued or segment.at_s - looked_at > EXACT_S / 2


def test_a_part_of_an_event_bears_the_arrival_of_its_own_end() -> None:
    with pair() as (sender, reader):
        reading = KernelReceiver(reader)
        whole = EVENT % 1
        sender.sendall(whole[:30])
        time.sleep(0.004)
        at = time.monotonic()
        sender.sendall(whole[30:])
        time.sleep(0.01)
        segment = read_all(reading, len(whole))[-1]
    assert segment.data.endswith(b"\n\n")
    assert 0 <= segment.at_s - at < 0.003


def test_a_backlog_is_read_at_once_and_only_its_end_is_a_figure() -> None:
    with pair() as (sender, reader):
        reading = KernelReceiver(reader)
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        n = 2000
        feeder = threading.Thread(target=send, args=(sender, n, 0.00002))
        feeder.start()
        feeder.join()
        came = read_all(reading, sum(len(EVENT % i) for i in range(n)))
    assert b"".join(s.data for s in came) == b"".join(EVENT % i for i in range(n))
    assert len(came) < n / 10
    assert came[0].queued
    assert not came[-1].queued


def test_a_sender_that_waits_for_acknowledgements_is_not_held_up() -> None:
    """Nagle: the sender keeps a small segment back until the one before is acknowledged. Delayed, that would take 40 ms."""
    with pair() as (sender, reader):
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        reading = KernelReceiver(reader)
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                reading.read()
                time.sleep(0.0002)

        thread = threading.Thread(target=read)
        thread.start()
        sent_at = send(sender, 40, 0.005)
        time.sleep(0.1)
        done.set()
        thread.join()
    events = [s for s in reading.segments() for _ in range(s.data.count(b"\n\n"))]
    lags = [s.at_s - at for at, s in zip(sent_at, events, strict=True)]
    assert statistics.median(lags) < 0.002
    assert max(lags) < 0.03


def test_the_end_of_a_connection_and_how_it_came() -> None:
    with pair() as (sender, reader):
        reading = KernelReceiver(reader)
        sender.sendall(EVENT % 1)
        sender.shutdown(socket.SHUT_WR)
        time.sleep(0.01)
        assert reading.read()
        assert not reading.read()
    assert reading.error == ""
    assert [s.data for s in reading.segments()] == [EVENT % 1]
    with pair() as (sender, reader):
        reading = KernelReceiver(reader)
        sender.sendall(EVENT % 1)
        time.sleep(0.01)
        assert reading.read()
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        sender.close()
        time.sleep(0.01)
        assert not reading.read()
    assert "reset" in reading.error.lower()


class NoStamps(socket.socket):
    """A kernel without stamps: it refuses to be asked for them."""

    def setsockopt(self, level: int, option: int, *value: object) -> None:  # type: ignore[override]
        if (level, option) == (socket.SOL_SOCKET, 37):
            raise OSError(92, "Protocol not available")
        super().setsockopt(level, option, *value)  # type: ignore[arg-type]


def test_without_stamps_the_clock_at_the_read_has_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, NoStamps() as reader:
        reader.connect(listener.getsockname())
        sender, _ = listener.accept()
        reader.setblocking(False)
        reading = receiver(reader)
        with sender:
            sender.sendall(EVENT % 1)
            time.sleep(0.02)
            before = time.monotonic()
            (segment,) = read_all(reading, len(EVENT % 1))  # type: ignore[arg-type]
    assert isinstance(reading, UserReceiver)
    assert reading.stamps == "user"
    assert segment.at_s == segment.read_at_s >= before


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_a_clock_that_is_set_meanwhile_moves_no_arrival_out_of_its_bounds(seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stamps are the wall clock's. Set between the arrival and the read it leaves the last look and the read as bounds."""
    with pair() as (sender, reader):
        reading = KernelReceiver(reader)
        reading.read()
        looked_at = time.monotonic()
        sender.sendall(EVENT % 1)
        time.sleep(0.005)
        really = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: really() + seconds * 1_000_000_000)
        (segment,) = read_all(reading, len(EVENT % 1))
    assert looked_at - 0.1 < segment.at_s <= segment.read_at_s


def test_arrivals_never_run_backwards() -> None:
    with pair() as (sender, reader):
        reading = KernelReceiver(reader)
        feeder = threading.Thread(target=send, args=(sender, 400, 0.00005))
        feeder.start()
        came = read_all(reading, sum(len(EVENT % i) for i in range(400)))
        feeder.join()
    assert [s.at_s for s in came] == sorted(s.at_s for s in came)

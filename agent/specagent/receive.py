"""Reads a socket and says when its bytes arrived: by the kernel's own stamps where there are any, else by the clock at the read.

The kernel stamps each segment as it arrives, so that reading late costs nothing. One thing spoils it: a segment that
arrives while another waits unread may be joined to it, and the two then bear the later one's stamp. Linux joins only
what the sender has been told of (on loopback both sides share the buffer until the acknowledgement), so acknowledgements
are held back until the reading, and a batch is read event by event, each with its own stamp. What was joined none the
less is marked, unless the time between the reads bounds it well enough.
"""

from __future__ import annotations

import functools
import re
import socket
import ssl
import struct
import sys
import time
from typing import Literal, NamedTuple, Protocol

#: An arrival that is known to within this is a figure.
EXACT_S = 0.001
Stamps = Literal["kernel", "user"]


class Segment(NamedTuple):
    """Bytes with the arrival of the last of them, in seconds of the monotonic clock."""

    at_s: float
    read_at_s: float
    queued: bool  # at_s is an upper bound: the kernel had joined these bytes to later ones
    data: bytes


class Receiver(Protocol):
    """Reads one connection that does not block."""

    error: str  # what ended the connection, if it was no orderly end

    def read(self) -> bool:
        """Takes what has arrived. False: the connection has ended."""

    def segments(self) -> list[Segment]:
        """All that came, in order."""

    @property
    def stamps(self) -> Stamps: ...


class UserReceiver:
    """The clock at the read: for TLS, and where the kernel has no stamps."""

    stamps: Stamps = "user"

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._came: list[Segment] = []
        self.error = ""

    def read(self) -> bool:
        is_tls = isinstance(self._sock, ssl.SSLSocket)
        while True:
            try:
                data = self._sock.recv(_RECV_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return True
            except (OSError, ssl.SSLError) as error:
                self.error = error.strerror or str(error)
                return False
            if not data:
                return False
            now = time.monotonic()
            self._came.append(Segment(now, now, False, data))
            if not is_tls:  # what TLS has decrypted already wakes nobody
                return True

    def segments(self) -> list[Segment]:
        return self._came


_RECV_BYTES = 1 << 16
#: Linux: SO_TIMESTAMPING with software stamps on receive. Python has no names for them.
_SO_TIMESTAMPING, _RX_SOFTWARE, _SOFTWARE = 37, 1 << 3, 1 << 4
_STAMP = struct.Struct("@ll")
_CONTROL_BYTES = socket.CMSG_SPACE(3 * _STAMP.size) if hasattr(socket, "CMSG_SPACE") else 0
#: Of ``struct tcp_info`` (linux/tcp.h): bytes received so far at 128, segments with data so far at 152.
_INFO, _INFO_AT, _INFO_BYTES = struct.Struct("=Q16xI"), 128, 156
#: A segment that arrives while the promised window is larger than the free buffer is acknowledged when it is read, not
#: before. So the window is promised with a large buffer and used with a small one (which still holds a hundred events and
#: more, as much as was promised), and promised again before what is left of it gets smaller than the buffer.
_PROMISED_BYTES, _BUFFER_BYTES, _PROMISE_EVERY_BYTES = 1 << 18, 3 << 14, 1 << 12
#: A flood that is looked at often enough needs no reading event by event: all of it came since the last look.
_FEW_BYTES = 1 << 13
#: A batch beyond this is read at once: the reader is behind, and reading event by event would put it further behind.
_MOST_APART_BYTES = 1 << 16
#: The line end after an event is that of its HTTP chunk, and came with it.
_EVENT_END = re.compile(rb"(?:\n\r?\n|\r\r)(?:\r\n)?")


class KernelReceiver:
    """The kernel's stamps. Raises OSError where it has none; :func:`receiver` then falls back."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._came: list[Segment] = []
        self._taken = 0  # bytes
        self._n_segments = 0
        self._looked_at = time.monotonic()
        self._unstamped = False
        self.error = ""
        if _keep_stamping() is None:
            raise OSError("the kernel stamps nothing that it receives")
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _RX_SOFTWARE | _SOFTWARE)
        if len(self._info()) < _INFO_BYTES:
            raise OSError("the kernel doesn't count segments")
        self._is_local = sock.getpeername()[0] in ("127.0.0.1", "::1")
        if self._is_local:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        self._since_promise = 0  # bytes

    @property
    def stamps(self) -> Stamps:
        return "user" if self._unstamped else "kernel"

    def segments(self) -> list[Segment]:
        if not self._unstamped:
            return self._came
        return [Segment(s.read_at_s, s.read_at_s, False, s.data) for s in self._came]

    def read(self) -> bool:
        """Reads no more than was there when it looked, so that the count of segments belongs to the bytes."""
        sock = self._sock
        looked_at = time.monotonic()
        try:
            received, n_segments = _INFO.unpack_from(self._info(), _INFO_AT)
            pending = received - self._taken  # the end of the stream counts as one more
            if pending <= 0:
                self._n_segments, self._looked_at = n_segments, looked_at
                return sock.recv(1, socket.MSG_PEEK) != b""
            self._since_promise += pending
            promise = self._is_local and self._since_promise >= _PROMISE_EVERY_BYTES
            if promise:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PROMISED_BYTES)
                self._since_promise = 0
            n_new = n_segments - self._n_segments
            several = n_new > 1
            if several and (pending <= _FEW_BYTES or looked_at - self._looked_at > EXACT_S):
                self._read_apart(pending, n_new)
            else:
                data, control, _, _ = sock.recvmsg(pending, _CONTROL_BYTES)
                if not data:
                    return False
                self._taken += len(data)
                self._keep([(self._stamp_ns(control), time.monotonic(), data)], n_joined=1 if several else 0)
            self._n_segments, self._looked_at = n_segments, looked_at
            if self._is_local:  # acknowledge now (a sender may wait for it before it sends on), and hold the next one back
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                if promise:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        except BlockingIOError:
            return True
        except OSError as error:
            self.error = error.strerror or str(error)
            return False
        return True

    def _info(self) -> bytes:
        return self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)

    def _read_apart(self, pending: int, n_segments: int) -> None:
        """Several segments wait: each event is read by itself, so that it comes with its own stamp. As many stamps as
        segments: none was joined, and events with the same stamp came together."""
        waiting = self._sock.recv(pending, socket.MSG_PEEK)
        if not waiting:  # the end, and a segment that was sent twice
            return
        ends = [m.end() for m in _EVENT_END.finditer(waiting)]
        if not ends or ends[-1] < len(waiting):
            ends.append(len(waiting))
        if is_backlog := pending > _MOST_APART_BYTES:  # all but the last event share one read
            ends = ends[-2:]
        pieces: list[tuple[int, float, bytes]] = []
        start = 0
        try:
            for end in ends:
                data, control, _, _ = self._sock.recvmsg(end - start, _CONTROL_BYTES)
                pieces.append((self._stamp_ns(control), time.monotonic(), data))
                self._taken += len(data)
                start = end
        finally:
            all_apart = len({stamp_ns for stamp_ns, _, _ in pieces}) >= n_segments
            self._keep(pieces, n_joined=1 if is_backlog else 0, all_apart=all_apart)

    def _stamp_ns(self, control: list[tuple[int, int, bytes]]) -> int:
        """The stamp of the last byte read, in nanoseconds of the wall clock."""
        for _, kind, data in control:
            if kind == _SO_TIMESTAMPING:
                seconds, nanoseconds = _STAMP.unpack_from(data)
                return int(seconds * 1_000_000_000 + nanoseconds)
        self._unstamped = True
        return time.time_ns()

    def _keep(self, pieces: list[tuple[int, float, bytes]], *, n_joined: int = 0, all_apart: bool = False) -> None:
        """Stamps go from the wall clock, which may be set, to the monotonic one by comparing the two at each batch.

        A piece with the stamp of the next may have come earlier: after the stamp before, and after the last look, when it
        was not there yet. If that leaves too much open it is marked. The first ``n_joined`` hold several events for one stamp.
        """
        wall_ns, now = time.time_ns(), time.monotonic()
        after_s = max(self._looked_at, self._came[-1].at_s if self._came else 0.0)
        for i, (stamp_ns, read_at_s, data) in enumerate(pieces):
            at_s = min(max(now - (wall_ns - stamp_ns) * 1e-9, after_s), read_at_s)  # also if the clock was set meanwhile
            shared = i < n_joined or (not all_apart and i + 1 < len(pieces) and pieces[i + 1][0] == stamp_ns)
            self._came.append(Segment(at_s, read_at_s, shared and at_s - after_s > EXACT_S, data))
            if not shared:
                after_s = at_s


@functools.cache
def _keep_stamping() -> socket.socket | None:
    """A socket that keeps the kernel stamping for as long as the process lives, returned once it does; None if it doesn't.

    The kernel stamps only while somebody asks for it, and begins some time after the first has asked.
    """
    keeper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    keeper.bind(("127.0.0.1", 0))
    keeper.settimeout(0.1)
    try:
        keeper.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _RX_SOFTWARE | _SOFTWARE)
    except OSError:
        keeper.close()
        return None
    until = time.monotonic() + 1
    while time.monotonic() < until:
        keeper.sendto(b"?", keeper.getsockname())
        if any(kind == _SO_TIMESTAMPING for _, kind, _ in keeper.recvmsg(1, _CONTROL_BYTES)[1]):
            return keeper
        time.sleep(0.001)
    keeper.close()
    return None


def receiver(sock: socket.socket) -> Receiver:
    """The best receiver for this connection. One of TLS shows no segments."""
    if sys.platform == "linux" and not isinstance(sock, ssl.SSLSocket):
        try:
            return KernelReceiver(sock)
        except OSError:
            pass  # an old kernel, or a sandbox that forbids it
    return UserReceiver(sock)

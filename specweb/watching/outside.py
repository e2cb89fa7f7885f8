"""One HTTP POST to an address that people chose: never into a private network, never farther than that address.

A name is resolved once, every address it has is checked, and the connection goes to the address that was checked, so that a
name which answers otherwise a moment later (DNS rebinding) leads nowhere. No redirect is followed, no proxy asked.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

CONNECT_S = 5.0
WHOLE_S = 20.0
MOST_ANSWER = 64 * 1024
LONGEST_URL = 500
#: Of ports below 1024, those that speak HTTPS.
LOW_PORTS = (443,)

#: Of IPv6 only what is given out for hosts, and of that not what leads to IPv4 addresses (6to4, Teredo) or documents something.
OUTSIDE_6 = ipaddress.ip_network("2000::/3")
#: Beside what :mod:`ipaddress` knows as not global, in every version of it; the last is the one address of a cloud's own services
#: that looks like anybody's (Azure's wire server).
REFUSED = [
    ipaddress.ip_network(text)
    for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")
]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Refused(Exception):
    """The address may not be asked, in words that name what is wrong with it."""


class Failed(Exception):
    """It was asked and no answer came, in words. Worth another try."""


@dataclass(frozen=True)
class Answer:
    status: int
    text: str  # the beginning


def checked_url(url: str, allowed: Collection[str]) -> SplitResult:
    """The parts of an address that may be asked, but for what its name resolves to. Raises :class:`Refused`."""
    if len(url) > LONGEST_URL or not url.isprintable() or not url.isascii() or " " in url or "\\" in url:
        raise Refused(f"the address is longer than {LONGEST_URL} characters, or has characters that none has")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Refused(f"the address can't be read: {error}") from None
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise Refused("the address is not of the form https://host/path")
    if parts.username is not None or parts.password is not None:
        raise Refused("the address carries a user name or a password")
    if is_allowed(parts, allowed):
        return parts
    if parts.scheme != "https":
        raise Refused("the address begins with http://: only https:// is asked")
    if port is not None and port < 1024 and port not in LOW_PORTS:
        raise Refused(f"port {port} is no port of web services: 443, or one from 1024 on")
    with contextlib.suppress(ValueError):  # of a name it is seen when it is asked
        refuse_inside(parts.hostname)
    return parts


def is_allowed(parts: SplitResult, allowed: Collection[str]) -> bool:
    """Whether the installation itself has named the host, as ``host`` or ``host:port``."""
    host = (parts.hostname or "").lower()
    return host in allowed or f"{host}:{_port(parts)}" in allowed


def refuse_inside(text: str) -> Address:
    """An address as text. Raises :class:`Refused` for one that is not on the public Internet, ``ValueError`` if it is none."""
    address = ipaddress.ip_address(text.partition("%")[0])
    inside = not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified
    inside |= isinstance(address, ipaddress.IPv6Address) and address not in OUTSIDE_6
    if inside or "%" in text or any(address.version == net.version and address in net for net in REFUSED):
        raise Refused(f"{text} is no address on the public Internet")
    return address


def resolved(parts: SplitResult, allowed: Collection[str], resolve: Callable[..., list[tuple[object, ...]]] | None = None) -> str:
    """The one address that will be connected to. One bad address among several refuses them all."""
    host = parts.hostname or ""
    try:
        found = (resolve or socket.getaddrinfo)(host, _port(parts), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Failed(f"the name {host} can't be resolved ({error})") from None
    addresses = [str(info[4][0]) for info in found]  # type: ignore[index]
    if not addresses:
        raise Failed(f"the name {host} has no address")
    if not is_allowed(parts, allowed):
        for address in addresses:
            refuse_inside(address)
    return addresses[0]


def post(url: str, body: bytes, headers: Mapping[str, str], *, allowed: Collection[str] = (), whole_s: float = WHOLE_S) -> Answer:
    """Sends it and reads the beginning of the answer. Raises :class:`Refused` or :class:`Failed`."""
    parts = checked_url(url, allowed)
    address = resolved(parts, allowed)
    connection = _Fixed(parts, address)
    # A server that sends a byte now and then never meets a timeout of the socket.
    watch = threading.Timer(whole_s, connection.cut)
    watch.daemon = True
    watch.start()
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body=body, headers=dict(headers))
        answer = connection.getresponse()
        text = answer.read(MOST_ANSWER)[:2000].decode("utf-8", "replace")
        if connection.was_cut:
            raise TimeoutError
        return Answer(answer.status, text)
    except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
        raise Failed(f"no answer within {whole_s:g} s" if connection.was_cut else _in_words(error)) from None
    finally:
        watch.cancel()
        connection.close()


def _in_words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return f"the connection failed ({type(error).__name__}: {error})"[:250]


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


class _Fixed(http.client.HTTPConnection):
    """A connection to an address that was chosen before; the name is used for the certificate and the Host header alone."""

    def __init__(self, parts: SplitResult, address: str) -> None:
        super().__init__(parts.hostname or "", _port(parts), timeout=CONNECT_S)
        self._address, self._tls, self.was_cut = address, parts.scheme == "https", False
        self._kept: socket.socket | None = None
        self.default_port = 443 if self._tls else 80

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), CONNECT_S)
        if self._tls:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)
        self.sock.settimeout(WHOLE_S)
        self._kept = self.sock  # where the answer's end closes the connection, this one forgets its socket while it is read

    def cut(self) -> None:
        self.was_cut = True
        if self._kept is not None:
            with contextlib.suppress(OSError):  # it has ended by itself
                self._kept.shutdown(socket.SHUT_RDWR)

"""How often somebody came: counted in windows in the shared cache, so that every worker process counts together.

Without the cache nobody is held up: it is a guard, and the service works on without it, which its log says.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from dataclasses import dataclass

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest
from redis.exceptions import RedisError

from .tokens import hash_of

log = logging.getLogger(__name__)
#: So long after a cache that doesn't answer it isn't asked again, so that requests don't wait for it one by one.
BLIND_S = 10.0
_blind_until = 0.0


@dataclass(frozen=True)
class Rate:
    """At most ``most`` of a kind in ``window_s`` seconds; 0: as many as one likes."""

    kind: str
    most: int
    window_s: int = 60


@dataclass(frozen=True)
class Standing:
    """Where somebody stands in the window that runs. ``over``: this time was one too many."""

    most: int
    n: int
    reset_s: int

    @property
    def over(self) -> bool:
        return self.n > self.most

    @property
    def left(self) -> int:
        return max(0, self.most - self.n)


def count(rate: Rate, who: str) -> Standing | None:
    """Counts one time more and tells how that stands; None where there is no limit, or the cache doesn't answer."""
    global _blind_until
    if not rate.most or time.monotonic() < _blind_until:
        return None
    now = time.time()
    window = int(now // rate.window_s)
    key = f"rate:{rate.kind}:{window}:{hash_of(who)}"
    try:
        cache.add(key, 0, timeout=2 * rate.window_s)
        n = cache.incr(key)
    except (RedisError, OSError, ValueError) as error:
        _blind_until = time.monotonic() + BLIND_S
        log.warning("requests are not counted for %g s: the cache doesn't answer: %s", BLIND_S, error)
        return None
    return Standing(rate.most, int(n), max(1, int((window + 1) * rate.window_s - now + 0.999)))


def address_of(request: HttpRequest) -> str:
    """Whom a request without a name comes from: the peer, or where a proxy of ours stands in front the one that it names last.

    Of an IPv6 address its network: who has one has 2⁶⁴ of them.
    """
    forwarded = request.headers.get("X-Forwarded-For", "") if settings.SECURE_PROXY_SSL_HEADER else ""
    given = _without_port(forwarded.rpartition(",")[2].strip()) or request.META.get("REMOTE_ADDR", "")
    try:
        address = ipaddress.ip_address(given)
    except ValueError:
        return given
    if address.version == 6 and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address.ipv4_mapped or address) if address.version == 6 else given


def _without_port(given: str) -> str:
    """Some proxies write the port, which differs with each connection: 192.0.2.7:4711, [2001:db8::1]:4711."""
    if given.startswith("["):
        return given[1:].partition("]")[0]
    return given.partition(":")[0] if given.count(":") == 1 else given

"""What is asked of a server, and what came back: the shapes of a load, before anything is parsed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from speccore.records import ClientHealth

from .receive import Segment, Stamps

#: One client drives no more connections than this.
MOST_AT_ONCE = 256

End = Literal["closed", "timeout", "stalled", "stopped", "refused", "too long"]


class Address(NamedTuple):
    """Where an engine of this host answers."""

    host: str
    port: int


@dataclass(frozen=True)
class Target:
    """A server. ``headers`` go with each request; ``path`` is that of requests that name none."""

    host: str
    port: int
    path: str = "/completion"
    tls: bool = False
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """What is asked, and the names under which its record goes."""

    body: dict[str, Any]
    path: str = ""
    probe: str = ""
    point: str = ""
    item: str = ""
    seed: int = 0
    warmup: bool = False
    ahead: bool = False


@dataclass(frozen=True)
class Closed:
    """``concurrency`` requests in flight until all are asked, ``n`` of them are, or ``duration_s`` has passed."""

    concurrency: int = 1
    n: int | None = None
    duration_s: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= MOST_AT_ONCE:
            raise ValueError(f"concurrency is {self.concurrency}; one client drives 1 to {MOST_AT_ONCE} requests")


@dataclass(frozen=True)
class Open:
    """Requests by the clock, whatever the answers do: ``rate_per_s`` at constant distance or as a Poisson process."""

    rate_per_s: float
    n: int | None = None
    duration_s: float | None = None
    process: Literal["poisson", "constant"] = "poisson"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.rate_per_s > 0:
            raise ValueError(f"rate_per_s is {self.rate_per_s}; a rate is above 0")

    def times(self) -> Iterator[float]:
        """Seconds from the start at which requests are due, for ever or for the duration."""
        draw = random.Random(self.seed)  # noqa: S311 - reproducible, not secret
        due = 0.0
        while self.duration_s is None or due < self.duration_s:
            yield due
            due += draw.expovariate(self.rate_per_s) if self.process == "poisson" else 1 / self.rate_per_s


Plan = Closed | Open


@dataclass(frozen=True)
class Exchange:
    """One request with its answer's bytes. Moments on the monotonic clock."""

    request: Request
    path: str
    payload: bytes
    scheduled_at: float | None
    connected_at: float
    sent_at: float
    closed_at: float
    segments: list[Segment]
    stamps: Stamps
    end: End
    error: str = ""


@dataclass(frozen=True)
class LoadResult:
    """``window``: from the moment when all were decoding until the last request was sent, where that can be told."""

    exchanges: list[Exchange]  # in the order in which they were sent
    health: ClientHealth
    window: tuple[float, float] | None
    began_at: float
    overloaded: str = ""  # open loop: in words, if requests came faster than they were answered


def never_asked(request: Request, now: float) -> Exchange:
    """Of a request that a stop came before."""
    return Exchange(request, request.path, b"", None, now, now, now, [], "user", "stopped")

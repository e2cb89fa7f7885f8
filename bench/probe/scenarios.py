"""What the replay server plays to each client."""

from __future__ import annotations

from dataclasses import dataclass, replace

RATE = 50.0  # tokens per second and stream
FIRST_MS = 100.0
SHORT_TOKENS = 16  # of the run whose CPU is taken off: start-up, connections, reports
SHORT_EVENTS = 2


@dataclass(frozen=True)
class Scenario:
    """One run of a client: as many requests as streams, all at once, each of ``n_tokens`` asked for."""

    streams: int
    tokens_per_event: int
    n_tokens: int
    rate: float = RATE  # 0: as fast as the client takes it
    stop_after: int | None = None  # the model ends by itself before the length that was asked for

    @property
    def name(self) -> str:
        pace = f"{self.rate:g} tokens/s each" if self.rate else "full speed"
        early = f", stops at {self.stop_after} of {self.n_tokens}" if self.stop_after else ""
        return f"{self.streams} × {pace}, {self.tokens_per_event} a event{early}".replace("1 a event", "1 an event")

    @property
    def true_tokens(self) -> int:
        return self.streams * min(self.n_tokens, self.stop_after or self.n_tokens)

    @property
    def short(self) -> Scenario:
        """The same with so few tokens that only what comes with any run is left."""
        return replace(self, n_tokens=max(SHORT_TOKENS, SHORT_EVENTS * self.tokens_per_event), stop_after=None)


def scenarios(seconds: float = 8.0, full_speed_events: int = 40_000) -> list[Scenario]:
    """The published set; ``seconds`` is the length of a stream at the rate."""
    n = round(RATE * seconds)
    return [
        Scenario(64, 1, n),
        *(Scenario(256, k, n) for k in (1, 4, 16)),
        *(Scenario(1, k, full_speed_events * k, rate=0.0) for k in (1, 4, 16)),
        Scenario(32, 1, n, stop_after=2 * n // 3),
    ]

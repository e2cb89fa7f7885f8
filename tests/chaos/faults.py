"""Which faults befall a run, drawn from a seed: the same seed draws the same faults on every machine."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

#: How often each is drawn. "host": the agent, its keepers and the engine at once, as when a machine loses power.
#: "connections": those of web and worker to the database.
WEIGHTS = {
    **{"agent": 5, "engine": 2, "keepers": 2, "host": 2},
    **{"web": 4, "worker": 4, "beat": 2, "valkey": 3, "postgres": 3, "connections": 3},
}
#: These spoil the attempt that runs. An attempt may fail twice, and then its trial is rightly given up.
SPOILS_ATTEMPT = frozenset({"engine", "keepers"})
MAX_SPOILED = 1
MAX_FAULTS = 5
N_TRIALS = 6

Manner = Literal["kill", "term", "freeze"]


@dataclass(frozen=True)
class Fault:
    """``part`` ends or is frozen ``delay_s`` after as many attempts were received, and stays so for ``down_s``."""

    part: str
    manner: Manner
    after_attempts: int
    delay_s: float
    down_s: float


def draw(seed: int, run: int) -> list[Fault]:
    """One to :data:`MAX_FAULTS` faults, in the order in which they come due."""
    rng = random.Random(f"{seed}/{run}")
    faults: list[Fault] = []
    for _ in range(rng.randint(1, MAX_FAULTS)):
        part = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        fault = Fault(
            part=part,
            manner=rng.choices(_manners(part), (6, 2, 2)[: len(_manners(part))])[0],
            after_attempts=rng.randrange(N_TRIALS + 1),
            delay_s=round(rng.uniform(0, 0.6), 2),
            down_s=round(rng.choice((0.0, rng.uniform(0, 1), rng.uniform(1, 6))), 2),
        )
        n_spoiled = sum(f.part in SPOILS_ATTEMPT for f in faults)
        if fault.part not in SPOILS_ATTEMPT or n_spoiled < MAX_SPOILED:
            faults.append(fault)
    return sorted(faults, key=lambda f: (f.after_attempts, f.delay_s))


def _manners(part: str) -> tuple[Manner, ...]:
    if part in ("engine", "keepers", "host", "connections"):
        return ("kill",)
    return ("kill", "term", "freeze")

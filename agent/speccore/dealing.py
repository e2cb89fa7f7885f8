"""Deals prompts and seeds to the blocks of a job: without replacement while a workload lasts, and never two alike in one trial."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .canonical import sha256_of
from .errors import SpecError
from .protocol import ProbePlan, WarmupPlan
from .spec import STATEFUL_MODES, ExperimentSpec, Point
from .workload import Item, Workload

#: Prompts of one trial differ within these first bytes. Each token stands for at least one byte of the prompt, so prompts
#: that do can't share their first 64 tokens either, whatever the tokenizer.
DISTINCT_BYTES = 64


def probe_seed(seed: int, workload: str, block: int, item: str) -> int:
    """Sampling seed of a request, below 2**31: equal in all arms of a block, another in every other block."""
    return int(sha256_of([seed, workload, block, item])[:16], 16) % 2**31


def rng(seed: int, what: str) -> random.Random:
    return random.Random(f"{seed}/{what}")  # noqa: S311  a plan must be repeatable, not secret


@dataclass
class Hand:
    """The requests of one block, the same for each arm."""

    probes: dict[str, list[ProbePlan]]
    warmup: dict[str, list[tuple[str, int]]]  # point: (item, seed), as many as a trial may need of this point
    n_warmup: int

    def requests(self, points: list[Point]) -> tuple[list[WarmupPlan], list[ProbePlan]]:
        """Warm-up requests go through the trial's points in turn, so that each shape is met where there are enough.

        A point with several requests at once gets as many more as fill them, while its workload has them.
        """
        turns = [(points[i % len(points)], i // len(points)) for i in range(self.n_warmup)]
        for point in (p for p in points if p.concurrency > 1):
            has = sum(p is point for p, _ in turns)
            turns += [(point, i) for i in range(has, min(point.concurrency, len(self.warmup[point.key])))]
        warmup = []
        for n, (point, i) in enumerate(turns, start=1):
            item, seed = self.warmup[point.key][i]
            warmup.append(WarmupPlan(id=f"warmup#{n}", point=point.key, item=item, seed=seed))
        return warmup, [probe for p in points for probe in self.probes[p.key]]


class Dealer:
    """Deals to one block after another."""

    def __init__(self, spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> None:
        self.spec = spec
        self.workloads = {p.key: workloads[p.workload] for p in spec.points}
        # Hashed once: a large workload takes its time, and a job asks thousands of times.
        hashes = {name: workloads[name].content_hash() for name in {p.workload for p in spec.points}}
        self.hashes = {p.key: hashes[p.workload] for p in spec.points}
        self.decks = {self.hashes[k]: _Deck(w, w.items, rng(spec.seed, f"items/{w.ref}")) for k, w in self.workloads.items()}
        self.warmup_decks = {self.hashes[k]: _Deck(w, w.warmup, rng(spec.seed, f"warmup/{w.ref}")) for k, w in self.workloads.items()}
        # An arm with a trial for each point may send all its warm-up requests to one point; the others share them out.
        alone = len(spec.points) == 1 or any(a.mode in STATEFUL_MODES for a in spec.arms)
        self.n_warmup_each = spec.warmup.requests if alone else -(-spec.warmup.requests // len(spec.points))

    def deal(self, block: int, points: list[Point]) -> Hand:
        used: set[bytes] = set()
        hand = Hand(probes={}, warmup={}, n_warmup=self.spec.warmup.requests)
        for point in points:
            hand.warmup[point.key] = self._drawn(self.warmup_decks, block, point, self.n_warmup_each, used, "warm-up")
        for point in (p for p in points if p.concurrency > 1):
            missing = point.concurrency - len(hand.warmup[point.key])
            hand.warmup[point.key] += self._draw(self.warmup_decks, block, point, missing, used)
        for point in points:
            drawn = self._drawn(self.decks, block, point, point.n_requests, used, "probe")
            hand.probes[point.key] = [
                ProbePlan(id=f"{point.key}#{n}", point=point.key, item=item, seed=seed) for n, (item, seed) in enumerate(drawn, start=1)
            ]
        return hand

    def _drawn(
        self, decks: Mapping[str, _Deck], block: int, point: Point, needed: int, used: set[bytes], what: str
    ) -> list[tuple[str, int]]:
        drawn = self._draw(decks, block, point, needed, used)
        if len(drawn) < needed:
            raise self._too_short(point, what)
        return drawn

    def _draw(self, decks: Mapping[str, _Deck], block: int, point: Point, needed: int, used: set[bytes]) -> list[tuple[str, int]]:
        """(item, seed) of so many requests, or of as many as the workload still has."""
        workload = self.workloads[point.key]
        drawn: list[tuple[str, int]] = []
        while len(drawn) < needed and (item := decks[self.hashes[point.key]].take(used)):
            used.add(_start(item))
            drawn.append((item.id, probe_seed(self.spec.seed, workload.ref, block, item.id)))
        return drawn

    def _too_short(self, point: Point, what: str) -> SpecError:
        workload = self.workloads[point.key]
        alike = [i for i, p in enumerate(self.spec.points) if self.hashes[p.key] == self.hashes[point.key]]
        points = [self.spec.points[i] for i in alike]
        items = workload.items if what == "probe" else workload.warmup
        needed = sum(p.n_requests for p in points) if what == "probe" else self.n_warmup_each * len(points)
        distinct = len({_start(i) for i in items})
        kind = "items" if what == "probe" else "warm-up items"
        same = f" ({distinct} of them differ in their first {DISTINCT_BYTES} bytes)" if distinct < len(items) else ""
        field, lower, crowded = "warmup.requests", "warmup.requests", ""
        if what == "probe":
            field, lower = f"points.{alike[0]}.probes", "probes"
        if what == "probe" and sum(p.probes for p in points) <= distinct:  # it is the requests at once that ask for more
            most = max(points, key=lambda p: p.concurrency)
            field, lower = f"points.{alike[points.index(most)]}.concurrency", "the concurrency"
            crowded = f" ({most.n_requests} with {most.concurrency} at once)"
        return SpecError(
            f"workload {workload.name!r} has {len(items)} {kind}{same}; {needed} {what} requests of one trial{crowded} need as many, "
            f"since no two requests of a trial may begin with the same {DISTINCT_BYTES} bytes",
            remedy=f"Lower {lower}, {'split the points into several experiments, ' if crowded else ''}"
            "or use a workload with more distinct prompts.",
            field=field,
            workload=workload.ref,
            n_items=len(items),
            needed=needed,
        )


class _Deck:
    """A workload's items in a drawn order, drawn anew when all were dealt."""

    def __init__(self, workload: Workload, items: Sequence[Item], rng: random.Random) -> None:
        self.items = list(items)
        self.rng = rng
        self.left: list[Item] = []

    def take(self, used: set[bytes]) -> Item | None:
        """The next item whose start is not in ``used``; None if there is none in the whole workload."""
        for _ in range(2):
            for i, item in enumerate(self.left):
                if _start(item) not in used:
                    return self.left.pop(i)
            self.left += self.rng.sample(self.items, len(self.items))
        return None


def _start(item: Item) -> bytes:
    return item.prompt.encode()[:DISTINCT_BYTES]

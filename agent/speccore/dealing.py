"""Deals prompts and seeds to the blocks of a job: without replacement while a workload lasts, and never two alike in one trial."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .canonical import sha256_of
from .errors import SpecError
from .measurement import Settling
from .protocol import ProbePlan, WarmupPlan
from .records import StreamRecord
from .settling import LEAST, ms_per_token, settling, shares, window_size
from .spec import ExperimentSpec, Point
from .workload import Item, Workload

#: Prompts of one trial differ within these first bytes. Each token stands for at least one byte of the prompt, so prompts
#: that do can't share their first 64 tokens either, whatever the tokenizer.
DISTINCT_BYTES = 64


def probe_seed(seed: int, workload: str, block: int, item: str) -> int:
    """Sampling seed of a request, below 2**31: equal in all arms of a block, another in every other block."""
    return int(sha256_of([seed, workload, block, item])[:16], 16) % 2**31


def arrivals_seed(seed: int, point: str, block: int) -> int:
    """Draws when the requests of a point with a rate are due: equal in all arms of a block."""
    return int(sha256_of([seed, "arrivals", point, block])[:16], 16) % 2**31


def warmup_shares(spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> dict[str, int]:
    """By point's key: warm-up requests of a start at the most, where they go on until the speed has settled.

    0 for all points of a workload that has not enough for them; points whose workload is not there are left out.
    """
    hashes = {name: workloads[name].content_hash() for name in {p.workload for p in spec.points} if name in workloads}
    found: dict[str, int] = {}
    for content in sorted(set(hashes.values())):
        points = [p for p in spec.points if hashes.get(p.workload) == content]
        found |= shares(points, spec.warmup, len({_start(i) for i in workloads[points[0].workload].warmup}))
    return found


def settlings(spec: ExperimentSpec, workloads: Mapping[str, Workload], records: Sequence[StreamRecord]) -> list[Settling]:
    """How the warm-up of each point went, from an attempt's records; nothing where it is a fixed number of requests."""
    found = []
    shared = warmup_shares(spec, workloads) if spec.warmup.mode == "settled" else {}
    for point in (p for p in spec.points if p.key in shared):
        own = [r for r in records if r.point == point.key and r.warmup and not r.ahead]
        if own:
            found.append(settling(point.key, [ms_per_token(r) for r in own], window_size(point, shared[point.key])))
    return found


def rng(seed: int, what: str) -> random.Random:
    return random.Random(f"{seed}/{what}")  # noqa: S311  a plan must be repeatable, not secret


@dataclass
class Hand:
    """The requests of one block, the same for each arm."""

    probes: dict[str, list[ProbePlan]]
    warmup: dict[str, list[tuple[str, int]]]  # point: (item, seed), as many as a trial may need of this point
    n_warmup: int | None  # of a trial; None: all of each point, until it has settled
    ahead: dict[str, list[tuple[str, int]]]  # warm point: what its probes ask again

    def requests(self, points: list[Point]) -> tuple[list[WarmupPlan], list[ProbePlan]]:
        """What warms up, then what is timed. What warm points repeat comes after all other warm-up."""
        warmup = [
            WarmupPlan(id=f"warmup#{n}", point=point.key, item=item, seed=seed)
            for n, (point, (item, seed)) in enumerate(self._warming(points), start=1)
        ]
        ahead = [(p, asked) for p in points for asked in self.ahead.get(p.key, [])]
        warmup += [
            WarmupPlan(id=f"ahead#{n}", point=p.key, item=item, seed=seed, ahead=True) for n, (p, (item, seed)) in enumerate(ahead, start=1)
        ]
        return warmup, [probe for p in points for probe in self.probes[p.key]]

    def _warming(self, points: list[Point]) -> list[tuple[Point, tuple[str, int]]]:
        """A fixed number goes through the trial's points in turn, so that each shape is met where there are enough.

        A point with several requests at once gets as many more as fill them, while its workload has them.
        """
        if self.n_warmup is None:
            return [(p, asked) for p in points for asked in self.warmup[p.key]]
        turns = [(points[i % len(points)], i // len(points)) for i in range(self.n_warmup)]
        for point in (p for p in points if p.concurrency > 1):
            has = sum(p is point for p, _ in turns)
            turns += [(point, i) for i in range(has, min(point.concurrency, len(self.warmup[point.key])))]
        return [(point, self.warmup[point.key][i]) for point, i in turns]


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
        alone = len(spec.points) == 1 or any(a.is_stateful for a in spec.arms)
        self.n_warmup_each = spec.warmup.requests if alone else -(-spec.warmup.requests // len(spec.points))
        self.until_settled = spec.warmup.mode == "settled"
        self.shares = warmup_shares(spec, workloads) if self.until_settled else {}

    def deal(self, block: int, points: list[Point]) -> Hand:
        used: set[bytes] = set()
        hand = Hand(probes={}, warmup={}, n_warmup=None if self.until_settled else self.spec.warmup.requests, ahead={})
        for point in points if self.until_settled else []:
            hand.warmup[point.key] = self._draw(self.warmup_decks, block, point, self.shares[point.key], used)
            if len(hand.warmup[point.key]) < LEAST:
                raise self._never_settles(point)
        for point in points if not self.until_settled else []:
            hand.warmup[point.key] = self._drawn(self.warmup_decks, block, point, self.n_warmup_each, used, "warm-up")
        for point in (p for p in points if p.concurrency > 1 and not self.until_settled):
            missing = point.concurrency - len(hand.warmup[point.key])
            hand.warmup[point.key] += self._draw(self.warmup_decks, block, point, missing, used)
        for point in points:
            drawn = self._drawn(self.decks, block, point, point.n_requests, used, "probe")
            hand.probes[point.key] = [
                ProbePlan(id=f"{point.key}#{n}", point=point.key, item=item, seed=seed) for n, (item, seed) in enumerate(drawn, start=1)
            ]
            if point.warm:  # the same prompt under another seed, as somebody would ask it again
                ref = self.workloads[point.key].ref
                hand.ahead[point.key] = [(item, probe_seed(self.spec.seed, f"{ref} ahead", block, item)) for item, _ in drawn]
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

    def _never_settles(self, point: Point) -> SpecError:
        workload = self.workloads[point.key]
        n_points = sum(self.hashes[p.key] == self.hashes[point.key] for p in self.spec.points)
        there = len({_start(i) for i in workload.warmup})
        return SpecError(
            f"workload {workload.name!r} has {there} distinct warm-up items; to see whether the speed has settled takes {LEAST} at each "
            f"point, and {n_points} point{' asks' if n_points == 1 else 's ask'} from it",
            remedy="Set warmup.mode to fixed, ask fewer points from it, or use a workload with more warm-up prompts.",
            field="warmup.mode",
            workload=workload.ref,
            n_items=there,
            needed=LEAST * n_points,
        )

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
            most = max(points, key=lambda p: p.n_requests - p.probes)
            at = f"points.{alike[points.index(most)]}"
            field, lower, how = f"{at}.concurrency", "the concurrency", f"with {most.concurrency} at once"
            if most.rate_per_s is not None:
                field, lower, how = f"{at}.rate_per_s", "the number of points", "by the clock"
            crowded = f" ({most.n_requests} {how})"
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
    return item.opening.encode()[:DISTINCT_BYTES]

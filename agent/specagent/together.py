"""Timed requests one after another, several at once until all are asked, or by the clock, whatever the answers do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType, ModuleType

from speccore.protocol import ProbePlan, WarmupPlan
from speccore.spec import ExperimentSpec, Point

from .answers import record_of
from .asking import Address, Closed, Open, Request, Target
from .load import run_load
from .probe import Probed, request_of, run_probe

Plan = ProbePlan | WarmupPlan


def batches(spec: ExperimentSpec, plans: Sequence[Plan]) -> list[tuple[Point, list[Plan]]]:
    """What is asked one after another: single requests, and all requests of a point that has several under way.

    Warm-up goes through the points in turn; those of one load come together, where the first of them stood.
    """
    together = {p.key for p in spec.points if not p.one_by_one}
    first: dict[str, int] = {}
    for i, plan in enumerate(plans):
        first.setdefault(plan.point, i)
    ordered = sorted(enumerate(plans), key=lambda pair: first[pair[1].point] if pair[1].point in together else pair[0])
    found: list[tuple[Point, list[Plan]]] = []
    for key, group in groupby((plan for _, plan in ordered), key=lambda plan: plan.point):
        own = list(group)
        found += [(spec.point(key), batch) for batch in ([own] if key in together else [[plan] for plan in own])]
    return found


def run_batch(
    dialect: ModuleType,
    at: Address,
    point: Point,
    asked: Sequence[tuple[Plan, str]],
    *,
    t0: float,
    timeout_s: float,
    stop: threading.Event,
    told: Callable[[int], None] = lambda n: None,
    prefix_cache: bool = False,
    arrivals: int = 0,
    limits: Mapping[str, int] = MappingProxyType({}),
) -> list[Probed]:
    """Asks each plan its prompt, as many at once or as often as the point says, and records in the order of sending.

    Never raises for what the engine does. Times count from ``t0``. ``told`` hears the number of each request, from 1, before
    it is sent. ``arrivals``: the seed that draws when requests are due, a Poisson process; warm-up goes by no clock. Of
    several at once those are missing that were not sent before a stop, or because the engine hung. ``limits``: most tokens of
    an answer by the plan's id, where it is not the point's number.
    """
    points = {plan.id: _limited(point, limits.get(plan.id)) for plan, _ in asked}
    by_clock = point.rate_per_s is not None and not any(isinstance(plan, WarmupPlan) for plan, _ in asked)
    if point.concurrency == 1 and not by_clock:
        probed = []
        for n, (plan, prompt) in enumerate(asked, 1):
            told(n)
            own = points[plan.id]
            probed.append(run_probe(dialect, at, plan, own, prompt, t0=t0, timeout_s=timeout_s, stop=stop, prefix_cache=prefix_cache))
        return probed
    requests = []
    for plan, prompt in asked:
        path, body = dialect.request(prompt, points[plan.id], plan.seed, prefix_cache=prefix_cache)
        requests.append(request_of(plan, path, body))

    def sent() -> Iterator[Request]:
        last_at = time.monotonic()
        for n, request in enumerate(requests, 1):
            if time.monotonic() - last_at > timeout_s and not by_clock:
                return  # all that are under way have run out of time, and the rest would one after another
            last_at = time.monotonic()
            told(n)
            yield request

    load = Open(point.rate_per_s, len(requests), seed=arrivals) if by_clock and point.rate_per_s else Closed(point.concurrency)
    result = run_load(Target(*at), sent(), load, timeout_s=timeout_s, stop=stop)
    return [Probed(*record_of(e, dialect, t0=t0), e.end, result.health) for e in result.exchanges]


def _limited(point: Point, max_tokens: int | None) -> Point:
    return point if max_tokens in (None, point.max_tokens) else point.model_copy(update={"max_tokens": max_tokens})

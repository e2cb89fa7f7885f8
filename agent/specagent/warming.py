"""The warm-up of a trial: a fixed number of requests, or at each point until its speed has settled; then what warm points repeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from speccore.dealing import warmup_shares
from speccore.protocol import WarmupPlan
from speccore.records import StreamRecord
from speccore.settling import ms_per_token, settling, window_size
from speccore.spec import ExperimentSpec, Point
from speccore.workload import Workload

from .together import Plan, batches

#: Asks requests of one point and returns their records; raises where one failed, since the rest would meet an engine that is not warm.
Ask = Callable[[Point, Sequence[Plan]], Sequence[StreamRecord]]


def warm_up(spec: ExperimentSpec, workloads: Mapping[str, Workload], planned: Sequence[WarmupPlan], ask: Ask) -> None:
    """Goes through a trial's warm-up in order. What is planned is the most: a point that has settled asks no more."""
    reserved = [p for p in planned if not p.ahead]
    if spec.warmup.mode == "settled":
        shares = warmup_shares(spec, workloads)
        for key, own in groupby(reserved, key=lambda p: p.point):
            point = spec.point(key)
            _until_settled(point, list(own), window_size(point, shares[key]), ask)
    else:
        for point, plans in batches(spec, reserved):
            ask(point, plans)
    for point, plans in batches(spec, [p for p in planned if p.ahead]):
        ask(point, plans)


def _until_settled(point: Point, plans: Sequence[Plan], window: int, ask: Ask) -> None:
    """One at a time it is looked at after each request, else after each window of requests that run together."""
    step = 1 if point.concurrency == 1 else window
    answers: list[float | None] = []
    for first in range(0, len(plans) - step + 1, step):
        answers += [ms_per_token(record) for record in ask(point, plans[first : first + step])]
        if settling(point.key, answers, window).settled:
            return

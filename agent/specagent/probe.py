"""One timed request: a fresh loopback connection, nothing else under way, everything but receiving after the end."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from speccore.protocol import ProbePlan, WarmupPlan
from speccore.records import ClientHealth, StreamRecord, TextRecord
from speccore.spec import Point

from .answers import record_of
from .asking import Address, Closed, End, Request, Target, never_asked
from .health import health_of_records
from .load import ReceiverOf, run_load
from .receive import receiver as best_receiver


@dataclass(frozen=True)
class Probed:
    record: StreamRecord
    text: TextRecord
    end: End
    health: ClientHealth


def request_of(plan: ProbePlan | WarmupPlan, path: str, body: dict[str, Any]) -> Request:
    """What the plan asks, under its names."""
    warmup = isinstance(plan, WarmupPlan)
    return Request(body, path, plan.id, plan.point, plan.item, plan.seed, warmup=warmup, ahead=isinstance(plan, WarmupPlan) and plan.ahead)


def run_probe(
    dialect: ModuleType,
    at: Address,
    plan: ProbePlan | WarmupPlan,
    point: Point,
    prompt: str,
    *,
    t0: float,
    timeout_s: float,
    stop: threading.Event,
    receiver: ReceiverOf = best_receiver,
    prefix_cache: bool = False,
) -> Probed:
    """Asks once and records. Never raises for what the engine does: the record says it. Times count from ``t0``."""
    path, body = dialect.request(prompt, point, plan.seed, prefix_cache=prefix_cache)
    request = request_of(plan, path, body)
    result = run_load(Target(*at), [request], Closed(1, 1), timeout_s=timeout_s, stop=stop, receiver=receiver)
    exchange = result.exchanges[0] if result.exchanges else never_asked(request, result.began_at)
    record, text = record_of(exchange, dialect, t0=t0)
    return Probed(record, text, exchange.end, result.health)


def health_of(probed: Sequence[Probed]) -> ClientHealth:
    """Of all requests together; the share of a core is over the time that they took."""
    records = [p.record for p in probed]
    shares = [(p.health.cpu_share, p.record.closed_at_s - p.record.connected_at_s) for p in probed if p.health.cpu_share is not None]
    seconds = sum(took for _, took in shares)
    rounds = [p.health.round_ms_p99 for p in probed if p.health.round_ms_p99 is not None]
    return health_of_records(records).model_copy(
        update={
            "cpu_share": sum(share * took for share, took in shares) / seconds if seconds > 0 else None,
            "round_ms_p99": max(rounds, default=None),
        }
    )

"""After the timed part of a baseline trial: its greedy requests once more, with how sure the target was of each token.

That tells two things at once: whether the baseline answers alike when it is asked twice, and, wherever another arm's answer
parts from it, whether the target was undecided there.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Sequence
from types import ModuleType

from speccore.records import SecondLook

from .asking import Address, Closed, Exchange, Request, Target
from .load import run_load
from .probe import Probed
from .sse import parse_response

#: As people who watch read it.
PHASE = "asking again"


def look(
    dialect: ModuleType,
    at: Address,
    probed: Sequence[Probed],
    wanted: Collection[tuple[str, str]],
    *,
    timeout_s: float,
    stop: threading.Event,
    told: Callable[[int, int], None] = lambda n, of: None,
) -> list[SecondLook]:
    """Asks again what was answered. Never raises for what the engine does; after a request that failed it asks no more.

    ``told`` hears the number of each request, from 1, and how many there are.
    """
    again = [p for p in probed if (p.record.point, p.record.item) in wanted and not p.record.failure and not p.record.warmup]
    found: list[SecondLook] = []
    for n, one in enumerate(again, 1):
        told(n, len(again))
        request = Request(dialect.look_again(one.text.request), one.record.path, one.record.probe)
        done = run_load(Target(*at), [request], Closed(1, 1), timeout_s=timeout_s, stop=stop)
        if stop.is_set():
            break
        found.append(_seen(dialect, one, done.exchanges[0] if done.exchanges else None))
        if found[-1].problem:
            break
    return found


def _seen(dialect: ModuleType, one: Probed, exchange: Exchange | None) -> SecondLook:
    named = SecondLook(probe=one.record.probe, point=one.record.point, item=one.record.item)
    if exchange is None:
        return named.model_copy(update={"problem": "it was not asked"})
    data, problem = answer_of(exchange)
    seen = problem or dialect.read_look(data)
    if isinstance(seen, str):
        return named.model_copy(update={"problem": seen})
    return named.model_copy(update={"ids": seen[0], "gaps_nat": seen[1], "cut": dialect.is_cut(data)})


def answer_of(exchange: Exchange) -> tuple[object, str]:
    """The decoded JSON of an answer in one piece, and in words why there is none."""
    response = parse_response(exchange.segments)
    if exchange.end in ("timeout", "stalled", "refused", "too long") or response.status != 200:
        why = exchange.error or response.problem or f"HTTP {response.status} ({exchange.end}): {response.text().strip()[:200]}"
        return None, why
    try:
        return json.loads(response.text()), ""
    except ValueError as error:
        return None, f"the answer is no JSON: {error}"

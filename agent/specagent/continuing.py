"""After the timed part of a trial: its share of the short continuations by which the sampling rule is tested."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import ModuleType

from speccore.records import Continuation
from speccore.sampling_plan import BEYOND, MOST_FAILED
from speccore.spec import Point, Sampling, SamplingTest

from .asking import MOST_AT_ONCE, Address, Closed, Exchange, Request, Target
from .load import run_load
from .second_look import answer_of

#: As people who watch read it.
PHASE = "sampling test"
#: Requests between two looks at how far it is.
_BATCH = 200
#: So many may fail before a share of them means anything.
_FEW = 5


def draw(
    dialect: ModuleType,
    at: Address,
    test: SamplingTest,
    item: tuple[str, str],
    seeds: Sequence[int],
    *,
    slots: int,
    timeout_s: float,
    stop: threading.Event,
    told: Callable[[int, int], None] = lambda n, of: None,
) -> list[Continuation]:
    """One continuation of ``item`` (id, prompt) for each seed, as many at once as the engine serves.

    Never raises for what the engine does; when more fail than chance explains, no more are asked for.
    """
    requests = [request_of(dialect, test.positions, test.sampling, item[0], item[1], seed) for seed in seeds]
    found: list[Continuation] = []
    for start in range(0, len(requests), _BATCH):
        batch = requests[start : start + _BATCH]
        told(start + 1, len(requests))
        done = run_load(Target(*at), batch, Closed(min(slots, MOST_AT_ONCE), len(batch)), timeout_s=timeout_s, stop=stop)
        if stop.is_set():
            break
        found += [continuation_of(dialect, exchange, test.positions) for exchange in done.exchanges]
        if sum(bool(c.problem) for c in found) > max(_FEW, MOST_FAILED * len(requests)):
            break
    return found


def request_of(dialect: ModuleType, positions: int, sampling: Sampling, name: str, prompt: str, seed: int) -> Request:
    point = Point(workload="sampling", max_tokens=positions + BEYOND, sampling=sampling)
    path, body = dialect.request(prompt, point, seed)
    return Request(dialect.whole_answer(body), path, probe=name, item=name, seed=seed)


def continuation_of(dialect: ModuleType, exchange: Exchange, positions: int) -> Continuation:
    named = Continuation(item=exchange.request.item, seed=exchange.request.seed)
    data, problem = answer_of(exchange)
    ids = None if problem else dialect.read_ids(data)
    if ids is None:
        return named.model_copy(update={"problem": problem or "the answer holds no token ids"})
    return named.model_copy(update={"ids": ids[:positions], "drafted": dialect.read_drafted(data)})

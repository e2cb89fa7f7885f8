"""What is sent for a planned request: its prompt behind history, filling and template; and a task, turn after turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from speccore.dealing import probe_seed
from speccore.records import Thought
from speccore.spec import ExperimentSpec, Point
from speccore.tasks import messages_before, turn_id
from speccore.workload import Item, Workload

from .asking import Address
from .chat import Chat, marks_of
from .filling import TextServer, filler
from .probe import Probed, run_probe
from .together import Plan, run_batch


@dataclass(frozen=True)
class Asked:
    """One request in the engine's words. ``wait_s`` passes before it is sent; ``turn`` counts from 1, None: no task."""

    prompt: str
    max_tokens: int
    turn: int | None = None
    n_turns: int | None = None
    wait_s: float = 0.0
    thought: Thought | None = None


class Wording:
    """The prompts of a trial, made before anything is timed: the same in all arms of a block, other ones in other blocks."""

    def __init__(self, dialect: ModuleType, at: Address, props: dict[str, Any], stop: threading.Event) -> None:
        self._server = TextServer(dialect, at, stop)
        self._chat = Chat(self._server, marks_of(dialect, props, self._server))
        self._made: dict[str, list[Asked]] = {}

    def make(self, spec: ExperimentSpec, block: int, plan: Plan, item: Item, workload: Workload) -> list[Asked]:
        """The requests of a plan, one or one for each turn. A prompt that is asked again in a trial stands behind the same text."""
        if plan.id not in self._made:
            seed = probe_seed(spec.seed, workload.ref, block, item.id)
            self._made[plan.id] = self._worded(spec.point(plan.point), item, seed)
        return self._made[plan.id]

    def of(self, plan: Plan) -> list[Asked]:
        return self._made[plan.id]

    def _worded(self, point: Point, item: Item, seed: int) -> list[Asked]:
        if not item.turns:
            prompt = self._put(point, item.messages, self._before(point, item.messages, seed, item.id))
            tokens = min(item.max_tokens or point.max_tokens, point.max_tokens)
            return [Asked(prompt, tokens, thought=self._thought(point, prompt))]
        found: list[Asked] = []
        before = self._before(point, messages_before(item.turns, 1), seed, item.id)
        for n, turn in enumerate(item.turns, 1):
            if n > 1 and turn.rebuild is not None:
                before = ""  # it went with the history that is replaced
            prompt = self._put(point, messages_before(item.turns, n), before)
            wait_s = item.turns[n - 2].tool_wait_s if n > 1 else 0.0
            tokens = turn.max_tokens or point.max_tokens
            found.append(Asked(prompt, tokens, n, len(item.turns), wait_s, thought=self._thought(point, prompt)))
        return found

    def _before(self, point: Point, messages: Sequence[tuple[str, str]], seed: int, item: str) -> str:
        """What fills the context before the first request."""
        if not point.occupied_context:
            return ""
        return filler(self._server, lambda text: self._put(point, messages, text), point.occupied_context, seed, item=item)

    def _put(self, point: Point, messages: Sequence[tuple[str, str]], before: str) -> str:
        if point.thinking is None:
            return before + "".join(text for _, text in messages)
        (role, first), *rest = messages
        put = [(role, before + first), *rest]
        return self._chat.prompt([{"role": role, "content": text} for role, text in put], thinking=point.thinking)

    def _thought(self, point: Point, prompt: str) -> Thought | None:
        return None if point.thinking is None else self._chat.thought(prompt, thinking=point.thinking)


def _run_task(
    dialect: ModuleType,
    at: Address,
    point: Point,
    plan: Plan,
    asked: Sequence[Asked],
    *,
    t0: float,
    timeout_s: float,
    stop: threading.Event,
    prefix_cache: bool = False,
) -> list[Probed]:
    """All turns of a task one after another, with the waits between them; ends after a turn that failed.

    Each turn has a record of its own, under the plan's id with its number.
    """
    probed: list[Probed] = []
    for turn in asked:
        began = time.monotonic()
        if turn.wait_s and stop.wait(turn.wait_s):
            break
        waited_s = time.monotonic() - began if turn.wait_s else 0.0
        own_plan = plan.model_copy(update={"id": turn_id(plan.id, turn.turn)})
        own_point = point.model_copy(update={"max_tokens": turn.max_tokens})
        one = run_probe(dialect, at, own_plan, own_point, turn.prompt, t0=t0, timeout_s=timeout_s, stop=stop, prefix_cache=prefix_cache)
        probed.append(_told(one, turn=turn.turn, n_turns=turn.n_turns, waited_s=waited_s, thought=turn.thought))
        if one.record.failure or stop.is_set():
            break
    return probed


def ask_worded(
    dialect: ModuleType,
    at: Address,
    point: Point,
    asked: Sequence[tuple[Plan, Sequence[Asked]]],
    *,
    t0: float,
    timeout_s: float,
    stop: threading.Event,
    told: Callable[[int], None],
    prefix_cache: bool,
    arrivals: int,
) -> list[Probed]:
    """As :func:`specagent.together.run_batch`, each plan with its requests: one, or the turns of a task."""
    if asked[0][1][0].turn is None:
        single = [(plan, own[0]) for plan, own in asked]
        prompts = [(plan, one.prompt) for plan, one in single]
        probed = run_batch(
            dialect,
            at,
            point,
            prompts,
            t0=t0,
            timeout_s=timeout_s,
            stop=stop,
            told=told,
            prefix_cache=prefix_cache,
            arrivals=arrivals,
            limits={plan.id: one.max_tokens for plan, one in single},
        )
        thoughts = {plan.id: one.thought for plan, one in single if one.thought}
        return [_told(p, thought=thoughts[p.record.probe]) if p.record.probe in thoughts else p for p in probed]
    probed = []
    for n, (plan, turns) in enumerate(asked, 1):
        told(n)
        probed += _run_task(dialect, at, point, plan, turns, t0=t0, timeout_s=timeout_s, stop=stop, prefix_cache=prefix_cache)
        if stop.is_set():
            break
    return probed


def _told(probed: Probed, **more: Any) -> Probed:
    return replace(probed, record=probed.record.model_copy(update=more))

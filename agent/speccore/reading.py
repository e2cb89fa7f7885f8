"""What a trial's requests cost beside one answer each: context to read, further turns of tasks, waits for tools. For estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .contexts import BYTES_PER_TOKEN
from .protocol import TrialPlan
from .spec import ExperimentSpec, Point
from .tasks import messages_before
from .untimed import Untimed
from .workload import Item, Workload

#: Time of reading a token of context as a share of answering one: least on a card with power to spare, most on a small processor.
SHARE = (0.004, 0.25)
#: A prompt of up to so many characters is read in no time worth counting.
SHORT = 2_000


@dataclass(frozen=True)
class Extra:
    """``read`` and ``answered`` in tokens."""

    read: float = 0.0
    answered: float = 0.0
    wait_s: float = 0.0

    def plus(self, other: Extra) -> Extra:
        return Extra(self.read + other.read, self.answered + other.answered, self.wait_s + other.wait_s)


def beside(spec: ExperimentSpec, trial: TrialPlan, workloads: Mapping[str, Workload]) -> Extra:
    """Of all requests of a trial. A workload that isn't there counts as one of short prompts, which are not counted."""
    points = {p.key: p for p in spec.points}
    asked = [(w.point, w.item, not w.ahead) for w in trial.warmup] + [(p.point, p.item, False) for p in trial.probes]
    total = Extra()
    for key, item, reserved in asked:
        point = points[key]
        total = total.plus(Extra(read=point.occupied_context))
        if workload := workloads.get(point.workload):
            found = next((i for i in (workload.warmup if reserved else workload.items) if i.id == item), None)
            total = total.plus(Extra() if found is None else _of_task(point, found) if found.turns else _of_prompt(found))
    return total


def _of_prompt(item: Item) -> Extra:
    length = len(item.opening)
    return Extra(read=length / BYTES_PER_TOKEN) if length > SHORT else Extra()


def again(spec: ExperimentSpec, asked: Untimed) -> Extra:
    """What is asked once more after the timed part has its context read again."""
    points = {p.key: p for p in spec.points}
    return Extra(read=sum(points[key].occupied_context for key, _ in asked.looks))


def _of_task(point: Point, item: Item) -> Extra:
    """Each turn reads its whole history, as with the prefix cache off; where it is on, less."""
    texts = ["".join(text for _, text in messages_before(item.turns, n)) for n in range(1, len(item.turns) + 1)]
    answered = sum(turn.max_tokens or point.max_tokens for turn in item.turns) - point.max_tokens
    filled = point.occupied_context * (len(item.turns) - 1)
    return Extra(sum(map(len, texts)) / BYTES_PER_TOKEN + filled, answered, sum(turn.tool_wait_s for turn in item.turns))


def longest_turn(item: Item, max_tokens: int) -> float:
    """Tokens of context that a prompt or the longest turn of a task takes, its answer included, about."""
    if not item.turns:
        return len(item.opening) / BYTES_PER_TOKEN + max_tokens
    sizes = [
        sum(len(text) for _, text in messages_before(item.turns, n)) / BYTES_PER_TOKEN + (turn.max_tokens or max_tokens)
        for n, turn in enumerate(item.turns, 1)
    ]
    return max(sizes, default=0.0)


def in_words(read: float) -> str:
    """What an estimate takes for granted; empty if it need not read."""
    if not read:
        return ""
    return f"reading context ({read:,.0f} tokens in all) is taken as {100 * SHARE[0]:g} to {100 * SHARE[1]:g} % of the time of answering as many"

"""Tasks of several turns: what each turn is asked behind, and the turns' measurements as one of the whole task.

A task's time is the sum over its turns of their equal-work seconds, the tools' waits, and the rest: what passed between
one turn's last token and the next turn's request beside the wait. Turns that decode faster shorten no wait and no prefill.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .canonical import sha256_of
from .measurement import AttemptMeasurement, Counters, Maybe, Number, ProbeMeasurement, Source, Withheld, value_of
from .records import RECORDS, StreamRecord
from .workload import Check, Item, Turn, Workload

USER, ASSISTANT = "user", "assistant"


def messages_before(turns: Sequence[Turn], n: int) -> list[tuple[str, str]]:
    """(role, text) of all that stands in the context when turn ``n`` (from 1) is answered, its own prompt last.

    Without a chat template the texts follow each other as they are. Answers are those of the recorded transcript.
    """
    messages: list[tuple[str, str]] = []
    for i, turn in enumerate(turns[:n], 1):
        if turn.rebuild is not None:
            messages = []
        messages.append((USER, (turn.rebuild or "") + turn.prompt))
        if i < n:
            messages.append((ASSISTANT, turn.answer))
    return messages


def turn_id(plan_id: str, turn: int | None) -> str:
    """Under which a turn's record goes."""
    return plan_id if turn is None else f"{plan_id}.{turn}"


def check_of(item: Item, turn: int | None) -> tuple[Check | None, str]:
    """How an answer is judged, and the prompt that it continues."""
    if not item.turns:
        return item.check, item.prompt
    if turn is None or not 1 <= turn <= len(item.turns):
        return None, ""
    return item.turns[turn - 1].check, item.turns[turn - 1].prompt


def answer_name(item: str, turn: int | None) -> str:
    """An answer's name in one point: each turn of a task has its own."""
    return item if turn is None else f"{item}, turn {turn}"


def length_key(item: str, turn: int | None) -> str:
    """Under which the length of an answer goes: a task has one for each turn."""
    return item if turn is None else f"{item}\n{turn}"


def item_of(key: str) -> str:
    return key.partition("\n")[0]


def fixed_lengths(workload: Workload) -> dict[str, float]:
    """Answers whose length the workload itself fixes."""
    found = {i.id: float(i.reference_tokens) for i in workload.items if i.reference_tokens}
    for item in workload.items:
        found |= {length_key(item.id, n): float(t.reference_tokens) for n, t in enumerate(item.turns, 1) if t.reference_tokens}
    return found


def rests(records: Iterable[StreamRecord]) -> dict[str, float]:
    """Seconds between a turn's request and the last token of the turn before, without the wait; nothing for first turns."""
    found: dict[str, float] = {}
    before: StreamRecord | None = None
    for record in records:
        if before and record.turn and before.turn == record.turn - 1 and (before.point, before.item) == (record.point, record.item):
            ended = max((e.at_s for e in before.events if e.tokens or e.uncounted), default=None)
            if ended is not None:
                found[record.probe] = max(0.0, record.sent_at_s - ended - (record.waited_s or 0.0))
        before = record
    return found


def requests_by_item(attempt: AttemptMeasurement, point: str) -> dict[str, list[ProbeMeasurement]]:
    """The counted requests of a point: one for each item, or the turns of each task in order."""
    found: dict[str, list[ProbeMeasurement]] = {}
    for probe in attempt.probes:
        if probe.point == point and not probe.warmup:
            found.setdefault(probe.item, []).append(probe)
    return {item: sorted(own, key=lambda p: p.turn or 0) if own[0].turn else own[-1:] for item, own in found.items()}


@dataclass(frozen=True)
class Split:
    """Seconds of a task at equal work."""

    prefill_s: float
    decode_s: float
    tool_wait_s: float
    rest_s: float

    @property
    def whole_s(self) -> float:
        return self.prefill_s + self.decode_s + self.tool_wait_s + self.rest_s


def split_of(turns: Sequence[ProbeMeasurement], lengths: Mapping[str, float]) -> Split | str:
    """Where the time of a task goes, each turn's answer at its length of ``lengths``; or in words why that can't be told.

    Prefill is each turn's time to its first token, decode the rest of its answer at its own pace.
    """
    if missing := why_not_whole(turns):
        return missing
    prefill = decode = 0.0
    for turn in turns:
        length = lengths.get(length_key(turn.item, turn.turn))
        ttft, rate = turn.ttft_any_s, turn.decode_tokens_per_s
        if isinstance(ttft, Withheld) or isinstance(rate, Withheld):
            return f"turn {turn.turn}: {(ttft if isinstance(ttft, Withheld) else rate).withheld}"  # type: ignore[union-attr]
        if length is None:
            return f"turn {turn.turn}: no answer of the baseline to take the length from"
        if ttft.value <= 0 or rate.value <= 0:
            return f"turn {turn.turn}: time to first token {ttft.value} s and speed {rate.value} tokens/s are no measurement"
        prefill += ttft.value
        decode += max(length - turn.n_first, 0) / rate.value
    return Split(prefill, decode, sum(t.waited_s or 0.0 for t in turns), sum(t.rest_s or 0.0 for t in turns))


def why_not_whole(turns: Sequence[ProbeMeasurement]) -> str:
    """Why the turns make no valid task; empty if they do."""
    if failed := next((t for t in turns if not t.ok), None):
        return f"turn {failed.turn}: {failed.failure_message or failed.failure or 'failed'}"
    if [t.turn for t in turns] != list(range(1, (turns[0].n_turns or 0) + 1)):
        return f"{len(turns)} of {turns[0].n_turns} turns have a record"
    if unknown := next((t for t in turns[1:] if t.rest_s is None), None):
        return f"turn {unknown.turn}: when the turn before had ended is not known"
    return ""


def whole(turns: Sequence[ProbeMeasurement]) -> ProbeMeasurement:
    """A single request as it is; the turns of a task as one measurement: sums, and the observed time from first request to last token."""
    first = turns[0]
    if first.turn is None:
        return first
    why = why_not_whole(turns)
    failed = next((t for t in turns if not t.ok), first)
    judged = [t.check_passed for t in turns if t.check_passed is not None]
    between = sum((t.waited_s or 0.0) + (t.rest_s or 0.0) for t in turns)
    tokens = _sum([t.completion_tokens for t in turns], "tokens of all turns", first.line)
    return first.model_copy(
        update={
            "probe": first.probe.rpartition(".")[0],
            "turn": None,
            "ok": not why,
            "failure": "" if not why else failed.failure or "probe_failed",
            "failure_message": why,
            "prompt_tokens": _sum([t.prompt_tokens for t in turns], "prompt tokens of all turns", first.line),
            "completion_tokens": tokens,
            "server_tokens": _sum([t.server_tokens for t in turns], "the server's tokens of all turns", first.line),
            "cache_hit_tokens": _sum([t.cache_hit_tokens for t in turns], "cached tokens of all turns", first.line),
            "n_events": sum(t.n_events for t in turns),
            "n_chunks": sum(t.n_chunks for t in turns),
            "n_queued_events": sum(t.n_queued_events for t in turns),
            "e2e_s": _sum([t.e2e_s for t in turns], "first request to last token of the task", first.line, plus=between),
            "decode_tokens_per_s": _pace(turns),
            "counters": _ONLY_OF_TURNS,
            "ids_sha256": sha256_of([t.ids_sha256 for t in turns]) if all(t.ids_sha256 for t in turns) else "",
            "check_passed": all(judged) if judged else None,
            "check_note": "; ".join(f"turn {t.turn}: {t.check_note}" for t in turns if t.check_passed is False),
        }
    )


def _sum(numbers: Sequence[Maybe], field: str, line: int, plus: float = 0.0) -> Maybe:
    if missing := next((n for n in numbers if isinstance(n, Withheld)), None):
        return missing
    total = sum(n.value for n in numbers if isinstance(n, Number)) + plus
    return Number(value=total, source=Source(file=RECORDS, line=line, field=f"{field}, over {len(numbers)} lines from this one on"))


def _pace(turns: Sequence[ProbeMeasurement]) -> Maybe:
    """Tokens after each turn's first chunk ÷ the time that they took."""
    tokens = seconds = 0.0
    for turn in turns:
        n, rate = turn.completion_tokens, turn.decode_tokens_per_s
        if isinstance(n, Withheld) or isinstance(rate, Withheld):
            return n if isinstance(n, Withheld) else rate
        after = n.value - turn.n_first
        tokens, seconds = tokens + after, seconds + after / rate.value
    if seconds <= 0:
        return Withheld(withheld="no token came after the first chunk of any turn", reason_code="one_arrival")
    field = f"tokens after the first chunks ÷ seconds after them, over {len(turns)} lines from this one on"
    return Number(value=tokens / seconds, source=Source(file=RECORDS, line=turns[0].line, field=field))


_OF_TURNS = Withheld(withheld="counted for each turn of the task", reason_code="of_turns")
_ONLY_OF_TURNS = Counters(
    drafted=_OF_TURNS,
    accepted=_OF_TURNS,
    committed=_OF_TURNS,
    verify_steps=_OF_TURNS,
    decode_steps=_OF_TURNS,
    emitted=_OF_TURNS,
    draft_ms=_OF_TURNS,
    eval_ms=_OF_TURNS,
    accepted_by_position=_OF_TURNS,
)


def passed(values: Sequence[bool | None]) -> float | None:
    """Share of tasks whose checks all passed, of those that have any."""
    judged = [v for v in values if v is not None]
    return sum(judged) / len(judged) if judged else None


def values(numbers: Iterable[Maybe]) -> list[float]:
    return [v for n in numbers if (v := value_of(n)) is not None]

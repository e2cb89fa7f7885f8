"""The decoding steps of one request as data for a drawing: when each ran, what was drafted and what of it was accepted."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from speccore.cycles import Cycle, cycles, impossible
from speccore.engines.vllm_steps import Steps, request_steps, stream_steps
from speccore.records import RECORDS, StreamRecord

from specweb.results.thinning import thinned

#: At most so many steps are drawn.
MOST = 2_000
#: From so many on, means over so many runs of them stand with the steps.
DENSE, RUNS = 250, 60
NOTHING_CAME = "No token came, so there is no step to draw."


class Step(NamedTuple):
    """One step of the target. ``at_ms`` counts from the first token."""

    n: int  # from 1
    at_ms: float
    ms: float
    drafted: int
    accepted: int
    sent: int


def cycles_data(record: StreamRecord) -> dict[str, Any]:
    """``steps`` as lists in the order of :class:`Step`; or ``empty``, a sentence that says why there is nothing to draw."""
    said = request_steps(record.final)
    found, why = _of_engine(record) if said is None else _of_stream(record, said)
    if found is None:
        return {"empty": why}
    if not found:
        return {"empty": "The answer ended with its first token, which comes from the prefill: there is no step to draw."}
    drawn = thinned(found, MOST, lambda s: s.ms)
    return {
        "steps": [[s.n, round(s.at_ms, 3), round(s.ms, 3), s.drafted, s.accepted, s.sent] for s in drawn],
        "means": _means(found),
        "most_drafted": max(s.drafted for s in found),
        "notes": [_sums(found, said), *_drawn(found, drawn), _clock(found, said)],
        "table": _table(found),
    }


def _of_engine(record: StreamRecord) -> tuple[list[Step] | None, str]:
    """By the running times that llama-server sends with each token."""
    if not record.events:
        return None, NOTHING_CAME
    steps = cycles(record)
    if steps is None:
        return None, "The engine sends no running times with its tokens, so that its steps can't be told apart."
    if faults := impossible(steps):
        return None, f"What the stream says can't be, so that no step is drawn: {faults[0]}."
    return _timed(steps), ""


def _timed(steps: Sequence[Cycle]) -> list[Step]:
    found, at = [], 0.0
    for n, c in enumerate(steps, 1):
        found.append(Step(n, at, c.ms, c.drafted, c.accepted, c.emitted))
        at += c.ms
    return found


def _of_stream(record: StreamRecord, said: Steps) -> tuple[list[Step] | None, str]:
    """vLLM lists its steps with a draft when the answer ends; when they ran, the arrivals tell where each event is one step."""
    if said.faults:
        return None, f"The reply's list of steps contradicts its own sums, so that no step is drawn: {said.faults[0]}."
    if stream_steps(record, said) is None:
        return None, "Several steps share an event of the stream, so that the reply's list of steps can't be laid along time."
    bearing = [e for e in record.events if e.tokens]
    listed = list(zip(said.drafted, said.accepted, strict=True))
    all_drafted = len(listed) == len(bearing) - 1
    in_order = iter(listed if all_drafted else [(d, a) for d, a in listed if a])
    found: list[Step] = []
    for n, (before, event) in enumerate(itertools.pairwise(bearing), 1):
        drafted, accepted = next(in_order, (0, 0)) if all_drafted or event.tokens > 1 else (0, 0)
        found.append(Step(n, 1000 * (before.at_s - bearing[0].at_s), 1000 * (event.at_s - before.at_s), drafted, accepted, event.tokens))
    return found, ""


def _means(steps: Sequence[Step]) -> list[list[float]]:
    """(time, drafted, accepted) as means over equal runs of all steps, where these are too many to be told apart by eye; else empty."""
    if len(steps) <= DENSE:
        return []
    runs = [steps[len(steps) * i // RUNS : len(steps) * (i + 1) // RUNS] for i in range(RUNS)]
    return [
        [
            round(run[len(run) // 2].at_ms, 3),
            *(round(statistics.fmean(values), 4) for values in zip(*((s.drafted, s.accepted) for s in run))),
        ]
        for run in runs
    ]


def _sums(steps: Sequence[Step], said: Steps | None) -> str:
    drafted = said.drafted if said else [s.drafted for s in steps if s.drafted]
    accepted = sum(said.accepted) if said else sum(s.accepted for s in steps)
    n = len(steps)
    told = f"{n:,} step{'' if n == 1 else 's'} in {sum(s.ms for s in steps):,.0f} ms sent {sum(s.sent for s in steps):,} tokens"
    if not drafted:
        return f"{told}; nothing was drafted."
    return f"{told}; {len(drafted):,} had a draft: {sum(drafted):,} tokens drafted, {accepted:,} accepted."


def _drawn(steps: Sequence[Step], drawn: Sequence[Step]) -> list[str]:
    if len(drawn) == len(steps):
        return []
    return [
        f"{len(drawn):,} of {len(steps):,} steps are drawn: of each stretch of them the quickest and the slowest. Sums and means are of all."
    ]


def _clock(steps: Sequence[Step], said: Steps | None) -> str:
    if said is None:
        return "Times are the engine's own, from its first token. It tells the time of drafting for the whole request only."
    told = "Times are those at which the tokens of each step arrived here."
    if len(said.drafted) == len(steps):
        return told
    return f"{told} Which of the steps that sent one token had a draft, the reply doesn't say: they are drawn without."


#: A table of more rows is no help; the record itself has all of them.
MOST_ROWS = 200


def _table(steps: Sequence[Step]) -> dict[str, Any]:
    rows = [[str(s.n), f"{s.at_ms:,.1f}", f"{s.ms:,.2f}", str(s.drafted), str(s.accepted), str(s.sent)] for s in steps[:MOST_ROWS]]
    more = len(steps) - len(rows)
    return {
        "heads": ["step", "begins, ms", "took, ms", "drafted", "accepted", "sent"],
        "rows": rows,
        "more": f"and {more:,} more, in {RECORDS}" if more else "",
    }

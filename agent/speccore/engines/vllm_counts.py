"""What vLLM counts: its counters in /metrics by alias, the steps that a reply may list, and its log's line on speculation.

A count of one request is taken from its most trusted source: the reply's own list of steps, /metrics before and after. The
log tells sums of ten seconds, which are no request's. Without speculation there are no such counts, which is not zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..cycles import accepted_by_position
from ..measurement import Counters, Maybe, Number, Source, Withheld, value_of
from ..records import METRICS, RECORDS, StreamRecord
from .shapes import LogRequest, MetricsPair, ProbeCounts
from .trust import OfRecord, contradictions, differing, is_number, missing, trimmed, trusted, window_sums
from .vllm_steps import is_counts, said_of, stream_steps
from .vllm_steps import request_steps as request_steps

#: Canonical name: names that builds have used. Counters are summed over labels: each engine of a deployment has its own.
ALIASES: dict[str, tuple[str, ...]] = {
    "drafts": ("vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_drafts"),
    "drafted": ("vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_draft_tokens"),
    "accepted": ("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens"),
    "generated": ("vllm:generation_tokens_total", "vllm:generation_tokens"),
    "engine_steps": ("vllm:iteration_tokens_total_count",),
}
BY_POSITION = ("vllm:spec_decode_num_accepted_tokens_per_pos_total", "vllm:spec_decode_num_accepted_tokens_per_pos")
#: Of one request only: what /metrics has beside the counters of speculation.
_OF_REQUEST: dict[str, tuple[str, ...]] = {
    "prompt": ("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
    "cached": (
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_hits",
        "vllm:gpu_prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits",
        "vllm:prompt_tokens_cached_total",
    ),
    "prefill_s": ("vllm:request_prefill_time_seconds_sum",),
    "decode_s": ("vllm:request_decode_time_seconds_sum",),
}
_FINISH = {"limit": "length", "eos": "stop"}

_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>[-+0-9.eE]{1,40})\s*$", re.ASCII)
_POSITION = re.compile(r'(?:^|,)position="(\d{1,4})"', re.ASCII)
_INTERVAL = re.compile(r"SpecDecoding metrics: .*\bAccepted: (?P<accepted>[0-9]{1,15}) tokens, Drafted: (?P<drafted>[0-9]{1,15}) tokens")


@dataclass(frozen=True)
class Totals:
    """Counters at one moment, or their growth; None where the engine has no such counter. It has none for speculation while that is off."""

    drafts: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    generated: float | None = None
    engine_steps: float | None = None
    accepted_by_position: list[int] | None = None


def parse_metrics(text: str) -> dict[str, float | dict[str, float]]:
    """Prometheus text: for each name the sum over its labels, or sums by position in the draft."""
    found: dict[str, float | dict[str, float]] = {}
    for name, labels, value in _samples(text):
        if name.endswith(("_created", "_bucket")):  # times, and parts of the histograms' counts
            continue
        position = _POSITION.search(labels) if name in BY_POSITION else None
        if position is None:
            before = found.get(name, 0.0)
            found[name] = value + (before if isinstance(before, float) else 0.0)
            continue
        by_position = found.setdefault(name, {})
        if isinstance(by_position, dict):
            by_position[position[1]] = by_position.get(position[1], 0.0) + value
    return found


def totals(metrics_text: str) -> Totals:
    """Reads /metrics. Lines that end in ``_created`` are times, not counts."""
    sums = parse_metrics(metrics_text)
    plain = {name: value for name, value in sums.items() if isinstance(value, float)}
    found = {key: next((plain[n] for n in names if n in plain), None) for key, names in ALIASES.items()}
    by_position = next((p for n in BY_POSITION if isinstance(p := sums.get(n), dict)), {})
    return Totals(**found, accepted_by_position=_in_order(by_position))


def growth(before: Totals, after: Totals) -> Totals:
    """After minus before; None where either lacks the counter, or it was reset between."""
    grown: dict[str, Any] = {}
    for key in ALIASES:
        a, b = getattr(before, key), getattr(after, key)
        grown[key] = None if a is None or b is None or b < a else b - a
    first, last = before.accepted_by_position, after.accepted_by_position
    if first is not None and last is not None and len(first) == len(last):
        by_position = [b - a for a, b in zip(first, last, strict=True)]
        grown["accepted_by_position"] = by_position if min(by_position, default=0) >= 0 else None
    return Totals(**grown)


def log_intervals(log_text: str) -> list[tuple[int, int, int]]:
    """(line, drafted, accepted) of each logging interval. An unknown wording gives none, never zero; prefer /metrics."""
    found = []
    for number, line in enumerate(log_text.split("\n"), 1):
        if match := _INTERVAL.search(line):
            found.append((number, int(match["drafted"]), int(match["accepted"])))
    return found


def probe_counts(record: StreamRecord, line: int, *, off: bool, metrics: MetricsPair | None, log: LogRequest | None) -> ProbeCounts:
    """Reads all sources in their order of trust: stream and final event, /metrics. ``line`` is the record's.

    ``log`` is None: vLLM's log tells nothing of single requests.
    """
    reader = _Reader(record, line, metrics)
    client = reader.client_tokens()
    reported = reader.speculation_reported()
    counters = reader.off_counters(reported) if off else reader.counters(reported)
    stop = str(record.final.get("stop_type", ""))
    return ProbeCounts(
        prompt_tokens=reader.prompt_tokens(),
        completion_tokens=client,
        server_tokens=trusted(reader.server_counts(), "the server reported no count"),
        cache_hit_tokens=reader.cache_hits(),
        prompt_ms=reader.milliseconds("time_to_first_token_ms", "prefill_s", "the engine reported no time for the prompt"),
        finish_reason=_FINISH.get(stop, stop),
        speculation_reported=reported,
        reported_types=[],  # which method it is, the log says
        counters=counters,
        disagreements=reader.disagreements(client, counters, off),
    )


def window_disagreements(counts: Sequence[ProbeCounts], metrics: MetricsPair) -> list[str]:
    """Where requests that ran together don't add up; see :func:`speccore.engines.trust.window_sums`.

    Of requests without speculation, whose replies need not say so, also that the server counts drafts, which it does only with it.
    """
    drafted = [c.counters.drafted for c in counts]
    if (
        drafted
        and all(isinstance(d, Withheld) and d.reason_code == "off" for d in drafted)
        and (name := _named(metrics, ALIASES["drafts"]))
    ):
        return [f"mode is off, yet the server counts drafts: {name} by {METRICS} line {metrics.line}"]
    keys = {"tokens": "generated", "drafted": "drafted", "accepted": "accepted", "verify_steps": "drafts"}
    return window_sums(counts, metrics, {what: _named(metrics, ALIASES[key]) or ALIASES[key][0] for what, key in keys.items()})


class _Reader(OfRecord):
    """One request's sources. Methods return a number with its source, None or ``Withheld`` where a source is silent."""

    def __init__(self, record: StreamRecord, line: int, metrics: MetricsPair | None) -> None:
        super().__init__(record, line)
        self.metrics = metrics
        told = record.final.get("metrics")
        self.told: dict[str, Any] = told if isinstance(told, dict) else {}
        self.said = said_of(record.final)
        self.steps = request_steps(record.final)
        self.shown = stream_steps(record, self.steps) if self.steps else None

    # single sources

    def counted(self, key: str) -> Number | None:
        """Of the reply's sums on speculation."""
        value = self.said.get(key)
        return self.stream(value, f"final.metrics.speculative_decoding.{key}") if is_number(value) else None

    def growth(self, names: Sequence[str], *, scale: float = 1.0) -> Number | None:
        name = _named(self.metrics, names)
        value = self.metrics.growth(name) if self.metrics and name else None
        if value is None or self.metrics is None:
            return None
        return Number(value=scale * value, source=Source(file=METRICS, line=self.metrics.line, field=f"{name} after − before"))

    # tokens and times

    def client_tokens(self) -> Maybe:
        tokens = sum(e.tokens for e in self.record.events)
        without_id = sum(e.without_id for e in self.record.events)
        server = self.server_counts()
        said = next((n.value for n in server if n is not None), 0)
        if any(e.uncounted for e in self.record.events) or (tokens == 0 and said > 0):
            return missing("the engine sent neither ids nor a running count with its events", "no_client_count")
        field = "the engine's running count" if without_id else "ids"
        return trusted([self.stream(tokens, f"events: {field}"), *server], "")

    def server_counts(self) -> list[Number | None]:
        return [self.final("tokens_predicted"), self.growth(ALIASES["generated"])]

    def prompt_tokens(self) -> Maybe:
        sources = [self.final("tokens_evaluated"), self.final("prompt_ids"), self.growth(_OF_REQUEST["prompt"])]
        return trusted(sources, "the stream has no usage")

    def cache_hits(self) -> Maybe:
        usage = self.record.final.get("usage")
        details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        told = self.stream(cached, "final.usage.prompt_tokens_details.cached_tokens") if is_number(cached) else None
        return trusted([told, self.growth(_OF_REQUEST["cached"])], "the engine doesn't say what came from its cache")

    def milliseconds(self, key: str, metric: str, if_none: str) -> Maybe:
        """By the engine's own clock: of this reply, else by the growth of its sums."""
        value = self.told.get(key)
        told = self.stream(value, f"final.metrics.{key}") if is_number(value) else None
        return trusted([told, self.growth(_OF_REQUEST[metric], scale=1000.0)], if_none)

    def emitted(self) -> Maybe:
        client = self.client_tokens()
        if not isinstance(client, Number):
            return client
        if client.value < 1:
            return missing("no token came", "no_tokens")
        return self.stream(client.value - 1, "tokens − the prefill's one")

    def eval_ms(self) -> Maybe:
        if sum(e.tokens for e in self.record.events) < 2:
            return missing("one token is no time to measure", "one_arrival")
        return self.milliseconds("generation_time_ms", "decode_s", "the engine reported no time")

    def engine_steps(self) -> Number | None:
        """Decoding steps of a request that ran alone: parts of a long prompt give no output and are not counted."""
        grown = self.growth(ALIASES["engine_steps"])
        if grown is None or grown.value < 1:
            return None
        return grown.model_copy(update={"value": grown.value - 1, "source": grown.source.model_copy(update={"field": _STEPS_FIELD})})

    # speculation

    def speculation_reported(self) -> bool | None:
        """By the reply's own counts, whose limit is 0 without speculation; else by a counter that is there only with it.

        A counter that is absent may have another name by now: whether speculation is off, the log then says.
        """
        if is_number(limit := self.said.get("num_spec_tokens")):
            return limit > 0
        return True if _named(self.metrics, ALIASES["drafts"]) else None

    def off_counters(self, reported: bool | None) -> Counters:
        off = missing("speculation is off", "off")
        emitted = self.emitted()
        steps = emitted  # every step of a server without speculation gives one token
        if reported:
            steps = missing("the server reports that speculation is on", "engine_loaded_other")
        elif isinstance(emitted, Number) and (counted := self.engine_steps()):
            steps = emitted.model_copy(update={"also": [counted]})
        return Counters(
            drafted=off,
            accepted=off,
            committed=steps,
            verify_steps=off,
            decode_steps=steps,
            emitted=emitted,
            draft_ms=off,
            eval_ms=self.eval_ms(),
            accepted_by_position=off,
        )

    def counters(self, reported: bool | None) -> Counters:
        drafted = self.total("drafted", "num_draft_tokens", "per_step_drafted")
        accepted = self.total("accepted", "num_accepted_draft_tokens", "per_step_accepted")
        verify_steps = self.total("drafts", "num_spec_steps", "per_step_drafted, how many")
        if reported is False:
            drafted = accepted = verify_steps = missing("the server reports that speculation is off", "not_engaged")
        decode_steps = self.decode_steps(accepted)
        committed: Maybe = missing("needs accepted tokens and decode steps")
        if isinstance(accepted, Number) and isinstance(decode_steps, Number):
            committed = self.stream(accepted.value + decode_steps.value, "accepted + one for each decode step")
        positions, source = self.positions()
        return Counters(
            drafted=drafted,
            accepted=accepted,
            committed=committed,
            verify_steps=verify_steps,
            decode_steps=decode_steps,
            emitted=self.emitted(),
            draft_ms=missing("vLLM doesn't tell the time of drafting apart"),
            eval_ms=self.eval_ms(),
            accepted_by_position=positions,
            accepted_by_position_source=source,
        )

    def total(self, key: str, of_reply: str, by_step: str) -> Maybe:
        listed = None
        if self.steps is not None and not self.steps.faults:
            values = {"drafted": sum(self.steps.drafted), "accepted": sum(self.steps.accepted), "drafts": len(self.steps.drafted)}
            listed = self.stream(values[key], f"final.metrics: {by_step}")
        return trusted([listed or self.counted(of_reply), self.growth(ALIASES[key])], f"metrics missing: {ALIASES[key][0]}")

    def decode_steps(self, accepted: Maybe) -> Maybe:
        shown = None if self.shown is None else self.stream(self.shown.n, "events after the first, each one step")
        derived = None
        emitted = self.emitted()
        if shown is None and isinstance(emitted, Number) and isinstance(accepted, Number) and self.nothing_dropped(accepted):
            derived = self.stream(emitted.value - accepted.value, "emitted − accepted (first token from the prefill)")
        return trusted(
            [shown, derived, self.engine_steps()], "several steps share an event of the stream, and /metrics was not read around it alone"
        )

    def nothing_dropped(self, accepted: Number) -> bool:
        """Whether no accepted token can have been left unsent: the last step with a draft accepted none."""
        return accepted.value == 0 or (self.steps is not None and not self.steps.faults and self.steps.accepted[-1:] == [0])

    def positions(self) -> tuple[list[int] | Withheld, Source | None]:
        here = Source(file=RECORDS, line=self.line, field="final.metrics: per_step_accepted")
        if self.steps is not None and not self.steps.faults:
            return accepted_by_position(self.steps.accepted, self.steps.drafted), here
        histogram = self.said.get("acceptance_histogram")
        if is_counts(histogram) and len(histogram) > 1:
            by_position = [sum(histogram[i:]) for i in range(1, len(histogram))]
            return by_position, here.model_copy(update={"field": "final.metrics: acceptance_histogram"})
        grown = self.positions_by_metrics()
        if grown is not None and self.metrics:
            name = _named(self.metrics, BY_POSITION)
            return grown, Source(file=METRICS, line=self.metrics.line, field=f"{name} after − before")
        return missing(f"metrics missing: {BY_POSITION[0]}"), None

    def positions_by_metrics(self) -> list[int] | None:
        name = _named(self.metrics, BY_POSITION)
        grown = self.metrics.growth_by_label(name) if self.metrics and name else None
        return _in_order(grown or {})

    # cross-checks

    def disagreements(self, client: Maybe, counters: Counters, off: bool) -> list[str]:
        found = differing("tokens", client) + differing("prompt tokens", self.prompt_tokens())
        found += differing("decode_steps", counters.decode_steps)
        if off:
            return found
        for name in ("drafted", "accepted", "verify_steps"):
            found += differing(name, getattr(counters, name))
        found += [f"the reply's list of steps: {fault}" for fault in (self.steps.faults if self.steps else [])]
        return found + contradictions(counters) + self.unsent(counters) + self.differing_positions(counters)

    def unsent(self, counters: Counters) -> list[str]:
        """Of what the steps made, only the last may go unsent, and no more than it accepted."""
        emitted, committed, limit = value_of(counters.emitted), counters.committed, self.said.get("num_spec_tokens")
        if emitted is None or not isinstance(committed, Number) or not is_number(limit):
            return []
        lost = committed.value - emitted
        return [f"committed: {committed.value:g} by {committed.place()} against {emitted:g} emitted"] if lost > limit else []

    def differing_positions(self, counters: Counters) -> list[str]:
        positions, source = counters.accepted_by_position, counters.accepted_by_position_source
        grown = self.positions_by_metrics()
        if isinstance(positions, Withheld) or source is None or grown is None or trimmed(grown) == trimmed(positions):
            return []
        return [f"accepted_by_position: {positions} by {source.file} ({source.field}); {grown} by {METRICS} ({BY_POSITION[0]})"]


_STEPS_FIELD = f"{ALIASES['engine_steps'][0]} after − before, less the prefill's"


def _named(metrics: MetricsPair | None, names: Sequence[str]) -> str:
    """The first of a counter's names that this build has."""
    return next((n for n in names if metrics and n in metrics.after), "")


def _in_order(by_position: Mapping[str, float]) -> list[int] | None:
    """From the first position on; None where one is missing."""
    whole = sorted(map(int, by_position)) == list(range(len(by_position)))
    return [int(by_position[str(i)]) for i in range(len(by_position))] if by_position and whole else None


def _samples(text: str) -> Iterator[tuple[str, str, float]]:
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        value = _count(match["value"]) if match else None
        if match is not None and value is not None:
            yield match["name"], match["labels"] or "", value


def _count(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None

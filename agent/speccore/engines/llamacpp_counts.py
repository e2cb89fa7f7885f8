"""Counts of one llama-server request from every source, cross-checked; cycles rebuilt from per-token timings.

Each streamed event carries the engine's running ``predicted_n``, ``predicted_ms``, ``draft_n`` and ``draft_n_accepted``.
Where ``predicted_ms`` moves, a new cycle (one decoding step of the target) began; the growth of the draft counts there
is that cycle's. The first token comes from the prefill and belongs to no cycle.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ..measurement import Counters, Maybe, Number, Source, Withheld
from ..records import LOG, METRICS, RECORDS, StreamRecord
from .shapes import LogRequest, MetricsPair, ProbeCounts

_PREFIX = "llamacpp:"
DRAFTS, DRAFTED = f"{_PREFIX}spec_decode_num_drafts_total", f"{_PREFIX}spec_decode_num_draft_tokens_total"
ACCEPTED, BY_POSITION = f"{_PREFIX}spec_decode_num_accepted_tokens_total", f"{_PREFIX}spec_decode_num_accepted_tokens_per_pos_total"
PREDICTED, CACHED = f"{_PREFIX}tokens_predicted_total", f"{_PREFIX}prompt_tokens_cached_total"
#: field of LogRequest: (its line, where it stands in that line)
_LOG_FIELDS = {
    "tokens": ("line", "eval time"),
    "eval_ms": ("line", "eval time"),
    "drafted": ("acceptance_line", "draft acceptance"),
    "accepted": ("acceptance_line", "draft acceptance"),
    "verify_steps": ("statistics_line", "#gen drafts, growth"),
    "draft_ms": ("statistics_line", "dur(b,g,a), growth of the sum"),
}
_FINISH = {"limit": "length", "eos": "stop", "word": "stop"}

_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>[^}]*)\})?\s+(?P<value>[-+0-9.eE]+)\s*$")
_ONE_LABEL = re.compile(r'^\w+="([^"]*)",?$')


def parse_metrics(text: str) -> dict[str, float | dict[str, float]]:
    """Prometheus text: a number for each name, or numbers by label (its value where there is one label)."""
    found: dict[str, float | dict[str, float]] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if not match or match["name"].endswith("_created"):  # a time, not a count
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        if match["labels"] is None:
            found[match["name"]] = value
            continue
        label = _ONE_LABEL.match(match["labels"])
        by_label = found.setdefault(match["name"], {})
        if isinstance(by_label, dict):
            by_label[label[1] if label else match["labels"]] = value
    return found


class Cycle(NamedTuple):
    """One decoding step of the target. ``emitted`` counts the tokens that reached the stream."""

    drafted: int
    accepted: int
    emitted: int
    ms: float
    fused: bool  # several steps may hide in it: tokens were held back inside a character


def cycles(record: StreamRecord) -> list[Cycle] | None:
    """The request's decoding steps in order; None if the stream has no per-token timings."""
    found: list[Cycle] = []
    n, ms, draft_n, accepted = 1, None, 0, 0
    began_ms = 0.0  # the engine's clock starts with the prefill's token, for which it reports a floor of 0.001
    for event in record.events:
        if event.predicted_n is None or event.predicted_ms is None:
            continue
        grown = event.predicted_n - n
        if ms is None and grown <= 0:  # the prefill's token
            ms = event.predicted_ms
            continue
        if event.predicted_ms != ms:
            now_draft, now_accepted = event.draft_n or draft_n, event.draft_n_accepted or accepted
            fused = grown > 1
            found.append(Cycle(now_draft - draft_n, now_accepted - accepted, grown, event.predicted_ms - began_ms, fused))
            began_ms = event.predicted_ms
            draft_n, accepted = now_draft, now_accepted
        elif grown and found:
            found[-1] = found[-1]._replace(emitted=found[-1].emitted + grown)
        n, ms = event.predicted_n, event.predicted_ms
    return found if ms is not None else None


def accepted_by_position(steps: list[Cycle]) -> list[int]:
    """How many drafting steps accepted the token at each position (from the first): position i counts if more than i were accepted."""
    longest = max((c.drafted for c in steps), default=0)
    return [sum(c.accepted > i for c in steps) for i in range(longest)]


def probe_counts(record: StreamRecord, line: int, *, off: bool, metrics: MetricsPair | None, log: LogRequest | None) -> ProbeCounts:
    """Reads all sources in their order of trust: per-token timings, final response, /metrics, log. ``line`` is the record's."""
    reader = _Reader(record, line, metrics, log)
    server = reader.server_tokens()
    client = reader.client_tokens()
    counters = reader.off_counters() if off else reader.counters()
    types = reported_types(record.generation_settings)
    return ProbeCounts(
        prompt_tokens=reader.final("tokens_evaluated") or _missing("the final event has no tokens_evaluated"),
        completion_tokens=client,
        server_tokens=server,
        cache_hit_tokens=reader.cache_hits(),
        prompt_ms=reader.timing("prompt_ms") or _missing("the engine reported no time for the prompt"),
        finish_reason=_FINISH.get(str(record.final.get("stop_type", "")), str(record.final.get("stop_type", ""))),
        speculation_reported=None if types is None else bool(types),
        reported_types=types or [],
        counters=counters,
        disagreements=reader.disagreements(client, counters, off),
    )


def reported_types(generation_settings: dict[str, Any]) -> list[str] | None:
    """The speculation types that the server says it uses; None if it doesn't say."""
    types = generation_settings.get("speculative.types")
    return None if types is None else [t for t in str(types).split(",") if t and t != "none"]


def _missing(reason: str, code: str = "missing") -> Withheld:
    return Withheld(withheld=reason, reason_code=code)


class _Reader:
    """One request's sources. Methods return a number with its source, None or ``Withheld`` where a source is silent."""

    def __init__(self, record: StreamRecord, line: int, metrics: MetricsPair | None, log: LogRequest | None) -> None:
        self.record, self.line, self.metrics, self.log = record, line, metrics, log
        self.timings: dict[str, Any] = record.final.get("timings") or {}
        self.steps = cycles(record)
        # The final event repeats the last counts, unless it brings tokens that were held back.
        with_drafts = [e for e in record.events if e.draft_n is not None and (e.kind != "final" or e.tokens)]
        self.last_draft = with_drafts[-1] if with_drafts else None

    # single sources

    def stream(self, value: float, field: str) -> Number:
        return Number(value=value, source=Source(file=RECORDS, line=self.line, field=field))

    def final(self, key: str) -> Number | None:
        value = self.record.final.get(key)
        return self.stream(value, f"final.{key}") if isinstance(value, int | float) else None

    def timing(self, key: str) -> Number | None:
        value = self.timings.get(key)
        return self.stream(value, f"final.timings.{key}") if isinstance(value, int | float) else None

    def growth(self, name: str) -> Number | None:
        value = self.metrics.growth(name) if self.metrics else None
        if value is None or self.metrics is None:
            return None
        return Number(value=value, source=Source(file=METRICS, line=self.metrics.line, field=f"{name} after − before"))

    def logged(self, key: str) -> Number | None:
        """A field of the log's request, with the line that it stands in."""
        value = getattr(self.log, key, None)
        if value is None:
            return None
        line_of, field = _LOG_FIELDS[key]
        return Number(value=value, source=Source(file=LOG, line=getattr(self.log, line_of), field=field))

    # tokens

    def client_tokens(self) -> Maybe:
        tokens = sum(e.tokens for e in self.record.events)
        without_id = sum(e.without_id for e in self.record.events)
        uncounted = any(e.uncounted for e in self.record.events)
        if uncounted or (tokens == 0 and (self.record.final.get("tokens_predicted") or 0) > 0):
            return _missing("the engine sent neither ids nor a running count with its events", "no_client_count")
        field = "ids" if not without_id else "the engine's running count" if without_id == tokens else f"ids, and {without_id} held back"
        return self.stream(tokens, f"events: {field}")

    def server_tokens(self) -> Maybe:
        return (
            self.final("tokens_predicted")
            or self.timing("predicted_n")
            or self.growth(PREDICTED)
            or _missing("the server reported no count")
        )

    def cache_hits(self) -> Maybe:
        return self.timing("cache_n") or self.growth(CACHED) or _missing("the engine doesn't say what came from its cache")

    def emitted(self) -> Maybe:
        client = self.client_tokens()
        if not isinstance(client, Number):
            return client
        if client.value < 1:
            return _missing("no token came", "no_tokens")
        return self.stream(client.value - 1, "tokens − the prefill's one")

    def eval_ms(self) -> Maybe:
        if sum(e.tokens for e in self.record.events) < 2:
            return _missing("one token is no time to measure", "one_arrival")
        return self.timing("predicted_ms") or self.logged("eval_ms") or _missing("the engine reported no time")

    # speculation

    def off_counters(self) -> Counters:
        off = _missing("speculation is off", "off")
        emitted = self.emitted()
        if self.steps is not None and not any(c.fused for c in self.steps):
            steps: Maybe = self.stream(len(self.steps), "events: moves of predicted_ms")
        else:  # every step of a server without speculation gives one token
            steps = emitted
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

    def counters(self) -> Counters:
        drafted, accepted = self.draft_total("draft_n", DRAFTED), self.draft_total("draft_n_accepted", ACCEPTED)
        decode_steps = self.decode_steps(accepted)
        committed: Maybe = _missing("needs accepted tokens and decode steps")
        if isinstance(accepted, Number) and isinstance(decode_steps, Number):
            committed = self.stream(accepted.value + decode_steps.value, "accepted + one for each decode step")
        positions, source = self.positions(drafted)
        return Counters(
            drafted=drafted,
            accepted=accepted,
            committed=committed,
            verify_steps=self.verify_steps(drafted),
            decode_steps=decode_steps,
            emitted=self.emitted(),
            draft_ms=self.logged("draft_ms") or _missing("the log has no drafting time (needs log_verbosity 4)"),
            eval_ms=self.eval_ms(),
            accepted_by_position=positions,
            accepted_by_position_source=source,
        )

    def draft_total(self, key: str, metric: str) -> Maybe:
        """Drafted or accepted tokens. llama-server leaves the keys out until something is drafted; a counter of /metrics
        or the log must then confirm the zero."""
        if self.last_draft is not None:
            return self.stream(getattr(self.last_draft, key) or 0, f"events: last {key}")
        logged = self.logged("drafted" if key == "draft_n" else "accepted")
        return self.timing(key) or self.growth(metric) or logged or _missing("the engine reported no draft counts")

    @property
    def is_exact(self) -> bool:
        return self.steps is not None and not any(c.fused for c in self.steps)

    def decode_steps(self, accepted: Maybe) -> Maybe:
        if self.steps is not None and self.is_exact:
            return self.stream(len(self.steps), "events: moves of predicted_ms")
        emitted = self.emitted()
        if not isinstance(emitted, Number) or not isinstance(accepted, Number):
            return _missing("needs per-token timings, or counts of accepted tokens")
        dropped = self.dropped_at_end()
        if dropped is None:
            return _missing("the last cycle may have accepted tokens that were not sent, and the stream doesn't show its cycles")
        return self.stream(emitted.value - accepted.value + dropped, "emitted − accepted (first token from the prefill)")

    def dropped_at_end(self) -> int | None:
        """Accepted tokens of the last cycle that were not sent, or None if unknown. At the length limit the engine drafts no further than the limit."""
        last = self.steps[-1] if self.steps else None
        if last is not None and not last.fused:
            return max(last.accepted + 1 - last.emitted, 0)
        return 0 if self.record.final.get("stop_type") == "limit" else None

    def verify_steps(self, drafted: Maybe) -> Maybe:
        if self.steps is not None and self.is_exact and self.last_draft is not None:
            return self.stream(sum(c.drafted > 0 for c in self.steps), "events: cycles with a draft")
        if isinstance(drafted, Number) and drafted.value == 0:
            return drafted
        return self.growth(DRAFTS) or self.logged("verify_steps") or _missing("the engine doesn't count its drafts")

    def positions(self, drafted: Maybe) -> tuple[list[int] | Withheld, Source | None]:
        if self.steps is not None and self.is_exact and self.last_draft is not None:
            return accepted_by_position(self.steps), Source(file=RECORDS, line=self.line, field="events: accepted of each cycle")
        if isinstance(drafted, Number) and drafted.value == 0:
            return [], drafted.source
        grown = self.metrics.growth_by_label(BY_POSITION) if self.metrics else None
        if grown and self.metrics and all(label.isdigit() for label in grown):
            by_position = [int(grown[label]) for label in sorted(grown, key=int)]
            return by_position, Source(file=METRICS, line=self.metrics.line, field=f"{BY_POSITION} after − before")
        return _missing("the engine doesn't count by position"), None

    # cross-checks

    def disagreements(self, client: Maybe, counters: Counters, off: bool) -> list[str]:
        found = _differing(
            "tokens", [client, self.final("tokens_predicted"), self.timing("predicted_n"), self.growth(PREDICTED), self.logged("tokens")]
        )
        if off:
            return found
        found += _differing("drafted", [counters.drafted, self.timing("draft_n"), self.growth(DRAFTED), self.logged("drafted")])
        found += _differing(
            "accepted", [counters.accepted, self.timing("draft_n_accepted"), self.growth(ACCEPTED), self.logged("accepted")]
        )
        found += _differing("verify_steps", [counters.verify_steps, self.growth(DRAFTS), self.logged("verify_steps")])
        if self.steps is not None and self.is_exact:
            found += [
                f"cycle {i} of the stream sent {c.emitted} tokens after accepting {c.accepted} (its last may send fewer, no other)"
                for i, c in enumerate(self.steps, 1)
                if c.emitted != c.accepted + 1 and not (i == len(self.steps) and c.emitted <= c.accepted + 1)
            ]
        return found


def _differing(what: str, sources: list[Maybe | None]) -> list[str]:
    numbers = [n for n in sources if isinstance(n, Number)]
    if len({n.value for n in numbers}) < 2:
        return []
    said = "; ".join(f"{n.value:g} by {n.source.file} ({n.source.field})" for n in numbers)
    return [f"{what}: {said}"]

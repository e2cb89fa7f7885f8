"""Counts of one llama-server request from every source, cross-checked: each number has the others beside it.

A count is taken from its most trusted source: per-token timings in the stream, final response, /metrics before and
after, log lines. What the others say is kept with it, and one that differs is a finding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from ..cycles import accepted_by_position, cycles, impossible, is_retreat
from ..measurement import Counters, DrafterCounts, Maybe, Number, Source, Withheld, value_of
from ..records import LOG, METRICS, RECORDS, StreamRecord
from .shapes import DrafterShare, LogRequest, MetricsPair, ProbeCounts
from .trust import OfRecord, contradictions, differing, is_number, missing, padded, trimmed, trusted, window_sums

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
#: The log rounds rates to three digits.
_RATE_ROUNDING = 0.00051
#: Where it reads accepted tokens again, the log's tally by drafter holds one of the target's own for each time.
_OVER = "where the engine went back to a kept state, the log counts a token of the target's own as the drafter's"
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
        if not math.isfinite(value):
            continue
        if match["labels"] is None:
            found[match["name"]] = value
            continue
        label = _ONE_LABEL.match(match["labels"])
        by_label = found.setdefault(match["name"], {})
        if isinstance(by_label, dict):
            by_label[label[1] if label else match["labels"]] = value
    return found


def probe_counts(record: StreamRecord, line: int, *, off: bool, metrics: MetricsPair | None, log: LogRequest | None) -> ProbeCounts:
    """Reads all sources in their order of trust: per-token timings, final response, /metrics, log. ``line`` is the record's."""
    reader = _Reader(record, line, metrics, log)
    server = reader.server_tokens()
    client = reader.client_tokens()
    counters = reader.off_counters() if off else reader.counters()
    types = reported_types(record.generation_settings)
    return ProbeCounts(
        prompt_tokens=reader.final("tokens_evaluated") or missing("the final event has no tokens_evaluated"),
        completion_tokens=client,
        server_tokens=server,
        cache_hit_tokens=reader.cache_hits(),
        prompt_ms=reader.timing("prompt_ms") or missing("the engine reported no time for the prompt"),
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


def window_disagreements(counts: Sequence[ProbeCounts], metrics: MetricsPair) -> list[str]:
    """Where requests that ran together don't add up; see :func:`speccore.engines.trust.window_sums`."""
    return window_sums(counts, metrics, {"tokens": PREDICTED, "drafted": DRAFTED, "accepted": ACCEPTED, "verify_steps": DRAFTS})


class _Reader(OfRecord):
    """One request's sources. Methods return a number with its source, None or ``Withheld`` where a source is silent."""

    def __init__(self, record: StreamRecord, line: int, metrics: MetricsPair | None, log: LogRequest | None) -> None:
        super().__init__(record, line)
        self.metrics, self.log = metrics, log
        timings = record.final.get("timings")
        self.timings: dict[str, Any] = timings if isinstance(timings, dict) else {}
        self.steps = cycles(record)
        #: Whether each step can be told from the next.
        self.is_exact = self.steps is not None and not any(c.fused for c in self.steps)
        # The final event repeats the last counts, unless it brings tokens that were held back.
        with_drafts = [e for e in record.events if e.draft_n is not None and (e.kind != "final" or e.tokens)]
        self.last_draft = with_drafts[-1] if with_drafts else None
        self.n_retreats = sum(is_retreat(c) for c in self.steps or []) if self.is_exact else 0
        self.n_retreats += self.ended_going_back()

    # single sources

    def timing(self, key: str) -> Number | None:
        value = self.timings.get(key)
        return self.stream(value, f"final.timings.{key}") if is_number(value) else None

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

    def ended_going_back(self) -> bool:
        """Whether the last step, too, took a second pass, whose token was not sent since the text had ended before it.

        The stream then shows a step like any other; the log's tally of accepted tokens tells, being one more.
        """
        last, tally = self.steps[-1] if self.steps and self.is_exact else None, self.tally()
        if last is None or tally is None or last.drafted <= last.accepted or self.record.final.get("stop_type") == "limit":
            return False
        return not is_retreat(last) and tally == sum(c.accepted for c in self.steps or []) + self.n_retreats + 1

    def tally(self) -> int | None:
        """Accepted tokens of all drafters, by the log; None where it doesn't tell each."""
        tallies = [s.accepted for s in self.log.drafters] if self.log else []
        known = [n for n in tallies if n is not None]
        return sum(known) if tallies and len(known) == len(tallies) else None

    # tokens

    def client_tokens(self) -> Maybe:
        tokens = sum(e.tokens for e in self.record.events)
        without_id = sum(e.without_id for e in self.record.events)
        uncounted = any(e.uncounted for e in self.record.events)
        if uncounted or (tokens == 0 and (value_of(self.server_tokens()) or 0) > 0):
            return missing("the engine sent neither ids nor a running count with its events", "no_client_count")
        field = "ids" if not without_id else "the engine's running count" if without_id == tokens else f"ids, and {without_id} held back"
        return trusted([self.stream(tokens, f"events: {field}"), *self._server_counts()], "")

    def server_tokens(self) -> Maybe:
        return trusted(self._server_counts(), "the server reported no count")

    def _server_counts(self) -> list[Number | None]:
        return [self.final("tokens_predicted"), self.timing("predicted_n"), self.growth(PREDICTED), self.logged("tokens")]

    def cache_hits(self) -> Maybe:
        return trusted([self.timing("cache_n"), self.growth(CACHED)], "the engine doesn't say what came from its cache")

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
        return trusted([self.timing("predicted_ms"), self.logged("eval_ms")], "the engine reported no time")

    # speculation

    def off_counters(self) -> Counters:
        off = missing("speculation is off", "off")
        emitted = self.emitted()
        if self.steps is not None and self.is_exact:
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
        committed: Maybe = missing("needs accepted tokens and decode steps")
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
            draft_ms=self.logged("draft_ms") or missing("the log has no drafting time (needs log_verbosity 4)"),
            eval_ms=self.eval_ms(),
            accepted_by_position=positions,
            accepted_by_position_source=source,
            drafters=self.drafters(),
        )

    def drafters(self) -> list[DrafterCounts]:
        """Each drafter's part by the log, where several stand beside each other."""
        shares = self.log.drafters if self.log else []
        return [self.drafter(s) for s in shares] if len(shares) > 1 else []

    def drafter(self, share: DrafterShare) -> DrafterCounts:
        def told(value: float | None, field: str) -> Maybe:
            if value is None:
                return missing("the log doesn't tell it for each drafter, or it was reset")
            return Number(value=value, source=Source(file=LOG, line=share.line, field=f"{field}, growth"))

        return DrafterCounts(
            type=share.type,
            drafts=told(share.drafts, "#gen drafts"),
            drafted=told(share.drafted, "#gen tokens"),
            accepted=missing(_OVER) if self.n_retreats else told(share.accepted, "#acc tokens"),
            draft_ms=told(share.draft_ms, "dur(b,g,a)"),
        )

    def draft_total(self, key: str, metric: str) -> Maybe:
        """Drafted or accepted tokens. llama-server leaves the keys out until something is drafted; a counter of /metrics
        or the log must then confirm the zero."""
        running = getattr(self.last_draft, key) if self.last_draft is not None else None
        streamed = None if running is None else self.stream(running, f"events: last {key}")
        logged = self.logged("drafted" if key == "draft_n" else "accepted")
        return trusted([streamed, self.timing(key), self.growth(metric), logged], "metrics missing: the engine reported no draft counts")

    def decode_steps(self, accepted: Maybe) -> Maybe:
        if self.steps is not None and self.is_exact:
            again = f", and {self.n_retreats} that went back and read again" if self.n_retreats else ""
            return self.stream(len(self.steps) + self.n_retreats, f"events: moves of predicted_ms{again}")
        emitted = self.emitted()
        if not isinstance(emitted, Number) or not isinstance(accepted, Number):
            return missing("needs per-token timings, or counts of accepted tokens")
        dropped = self.dropped_at_end()
        if dropped is None:
            return missing("the last cycle may have accepted tokens that were not sent, and the stream doesn't show its cycles")
        steps = emitted.value - accepted.value + dropped
        if steps < 0:
            return missing(
                f"{accepted.value:g} tokens accepted against {emitted.value:g} sent: the counts contradict each other", "impossible"
            )
        return self.stream(steps, "emitted − accepted (first token from the prefill)")

    def dropped_at_end(self) -> int | None:
        """Accepted tokens of the last cycle that were not sent, or None if unknown. At the length limit the engine drafts no further than the limit."""
        last = self.steps[-1] if self.steps else None
        if last is not None and not last.fused:
            return max(last.committed - last.emitted, 0)
        return 0 if self.record.final.get("stop_type") == "limit" else None

    def verify_steps(self, drafted: Maybe) -> Maybe:
        streamed = None
        if self.steps is not None and self.is_exact and self.last_draft is not None:
            streamed = self.stream(sum(c.drafted > 0 for c in self.steps), "events: cycles with a draft")
        elif isinstance(drafted, Number) and drafted.value == 0:
            streamed = drafted.model_copy(update={"also": []})
        return trusted([streamed, self.growth(DRAFTS), self.logged("verify_steps")], "metrics missing: the engine doesn't count its drafts")

    def positions(self, drafted: Maybe) -> tuple[list[int] | Withheld, Source | None]:
        if self.steps is not None and self.is_exact and self.last_draft is not None:
            by_position = accepted_by_position([c.accepted for c in self.steps], [c.drafted for c in self.steps])
            return by_position, Source(file=RECORDS, line=self.line, field="events: accepted of each cycle")
        if isinstance(drafted, Number) and drafted.value == 0:
            return [], drafted.source
        grown = self.positions_by_metrics()
        if grown and self.metrics:
            return grown, Source(file=METRICS, line=self.metrics.line, field=f"{BY_POSITION} after − before")
        return missing("metrics missing: the engine doesn't count by position"), None

    def positions_by_metrics(self) -> list[int] | None:
        grown = self.metrics.growth_by_label(BY_POSITION) if self.metrics else None
        if not grown or sorted(grown) != sorted(map(str, range(len(grown)))):
            return None
        return [int(grown[str(i)]) for i in range(len(grown))]

    # cross-checks

    def disagreements(self, client: Maybe, counters: Counters, off: bool) -> list[str]:
        found = differing("tokens", client if isinstance(client, Number) else self.server_tokens())
        if off:
            return found
        for name in ("drafted", "accepted", "verify_steps"):
            found += differing(name, getattr(counters, name))
        found += contradictions(counters)
        found += self.differing_positions(counters)
        if self.steps is not None and self.is_exact:
            found += impossible([c._replace(accepted=c.accepted + is_retreat(c)) for c in self.steps])
            found += self.differing_tallies(counters)
        return found

    def differing_tallies(self, counters: Counters) -> list[str]:
        """Whether the log's tallies of accepted tokens bear out the passes that were read off the stream."""
        accepted, tally = value_of(counters.accepted), self.tally()
        if accepted is None or tally is None or tally == accepted + self.n_retreats:
            return []
        again = f" and {self.n_retreats} passes that read again" if self.n_retreats else ""
        return [f"accepted: {accepted:g} by {RECORDS}{again}; {tally} by {LOG} (#acc tokens, growth)"]

    def differing_positions(self, counters: Counters) -> list[str]:
        """Where /metrics or the log's rounded rates contradict the counts by position. Trailing zeros say nothing."""
        positions, source, steps = counters.accepted_by_position, counters.accepted_by_position_source, value_of(counters.verify_steps)
        if isinstance(positions, Withheld) or source is None:
            return []
        ours = f"{positions} by {source.file} ({source.field})"
        grown = self.positions_by_metrics()
        if grown is not None and trimmed(grown) != trimmed(positions):
            return [f"accepted_by_position: {ours}; {grown} by {METRICS} ({BY_POSITION})"]
        rates = self.log.rate_by_position if self.log else []
        if rates and steps:
            width = max(len(rates), len(positions))
            pairs = zip(padded(rates, width), padded(positions, width))
            if any(abs(rate - n / steps) > _RATE_ROUNDING for rate, n in pairs):
                return [f"accepted_by_position: {ours}, of {steps:g} steps; rates {rates} by {LOG} (acc per pos)"]
        return []

"""The numbers of a trial's page and what the evidence viewer marks, made from an attempt and its current measurement."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speccore import pace_checks
from speccore.errors import ErrorBody
from speccore.measurement import AttemptMeasurement, Number, ProbeMeasurement, Source
from speccore.metrics import METRICS
from speccore.spec import ExperimentSpec

from specweb.results.models import Attempt, EvidenceFile

from . import comparison_table, experiment_page, formats, numbers_page
from .comparison_table import Cell
from .settled_section import settled_rows
from .sources import measured_cell, source_url
from .tries import fate_of


@dataclass(frozen=True)
class ProbeRow:
    """``line`` is the probe's record."""

    n: int
    item: str
    point: str
    warmup: bool
    line: str
    failure: str
    failure_message: str
    cells: list[Cell]
    more: list[Cell]
    check: str  # passed, failed or empty
    check_note: str


@dataclass(frozen=True)
class Fact:
    name: str
    cell: Cell


#: Columns of the probes' second table: head, metric id, attribute of the probe or of its counters.
MORE_HEADS = (
    ("prompt, tokens", "prompt_tokens"),
    ("cache hits", "cache_hit_tokens"),
    ("first content,\u00a0s", "ttft_content_s"),
    ("time per token,\u00a0ms", "token_latency_ms"),
    ("p50", "token_latency_ms_p50"),
    ("p95", "token_latency_ms_p95"),
    ("chunk gap p50,\u00a0ms", "chunk_gap_ms_p50"),
    ("p95", "chunk_gap_ms_p95"),
    ("chunks per token", "batch_ratio"),
    ("peak, tokens/s", "peak_tokens_per_s"),
    ("committed", "committed"),
    ("emitted", "emitted"),
    ("decoding,\u00a0ms", "eval_ms"),
    ("drafting,\u00a0ms", "draft_ms"),
)


def works(spec: ExperimentSpec, titles: Mapping[str, str]) -> dict[str, str]:
    """What the work of each point is called; where several have one name, with what else they fix."""
    named = {p.key: comparison_table.point_title(p, titles) for p in spec.points}
    shared = Counter(title for title, _ in named.values())
    return {key: f"{title}, {detail}" if shared[title] > 1 else title for key, (title, detail) in named.items()}


def context(attempt: Attempt, files: Sequence[EvidenceFile], tries: Sequence[Attempt], titles: Mapping[str, str]) -> dict[str, Any]:
    """``tries`` are all attempts at the same trial, in order; ``titles`` what the work of each point is called."""
    measured = attempt.measurement.parsed if attempt.measurement else None
    return {
        "attempt": attempt,
        "trial": attempt.trial,
        "fate": fate_of(attempt, tries),
        "tries": [(a, fate_of(a, tries), formats.seconds_between(a.started_at, a.ended_at)) for a in tries] if len(tries) > 1 else [],
        "error": ErrorBody.model_validate(attempt.error) if attempt.error else None,
        "parse_error": ErrorBody.model_validate(attempt.parse_error) if attempt.parse_error else None,
        "phases": experiment_page.phases(attempt.durations_s),
        "seconds": formats.seconds_between(attempt.started_at, attempt.ended_at),
        "heads": [comparison_table.Head(head, comparison_table.definition(metric)) for head, metric in numbers_page.PROBE_HEADS],
        "more_heads": [comparison_table.Head(head, comparison_table.definition(metric)) for head, metric in MORE_HEADS],
        "probes": [_probe_row(attempt, i, p, titles) for i, p in enumerate(measured.probes)] if measured else [],
        "facts": _facts(attempt, measured) if measured else [],
        "problems": measured.problems if measured else [],
        "disagreements": measured.disagreements if measured else [],
        "log_memory": [(name, f"{mib:,.1f}") for name, mib in sorted(measured.log.memory_mib.items())] if measured else [],
        "log_settled": settled_rows(attempt.id, measured.log) if measured else [],
        "pair_fields": sorted(measured.pair_fields.items()) if measured else [],
        "parser_version": measured.parser_version if measured else None,
        "files": files,
    }


def _probe_row(attempt: Attempt, i: int, p: ProbeMeasurement, titles: Mapping[str, str]) -> ProbeRow:
    return ProbeRow(
        n=i + 1,
        item=p.item,
        point=titles.get(p.point, p.point),
        warmup=p.warmup,
        line=source_url(attempt.id, Source(file="records.jsonl", line=p.line)),
        failure=p.failure if not p.ok else "",
        failure_message=p.failure_message,
        cells=numbers_page.probe_cells(attempt, p),
        more=[measured_cell(attempt.id, getattr(p if hasattr(p, metric) else p.counters, metric), metric) for _, metric in MORE_HEADS],
        check="" if p.check_passed is None else ("passed" if p.check_passed else "failed"),
        check_note=p.check_note,
    )


def _facts(attempt: Attempt, m: AttemptMeasurement) -> list[Fact]:
    """What holds for the whole attempt, each with its source where it has one."""
    facts = [Fact("peak memory, MiB", measured_cell(attempt.id, m.peak_memory_bytes, "peak_memory_bytes"))]
    for name in ("peak_device_bytes", "memory_after_load_bytes", "memory_growth_bytes_per_min", "energy_j_per_1k_tokens"):
        if isinstance(value := getattr(m, name), Number):
            facts.append(Fact(f"{METRICS[name].name}, {METRICS[name].unit}", measured_cell(attempt.id, value, name)))
    if m.engaged is not None:
        href = source_url(attempt.id, Source(file="server.log", line=m.log.speculation_line)) if m.log.speculation_line else ""
        facts.append(Fact("speculation", Cell("engaged" if m.engaged else "not engaged", href, m.engaged_why, m.engaged_why)))
    if m.context_per_slot is not None:
        facts.append(Fact("context per slot", Cell(f"{m.context_per_slot:,} tokens")))
    if m.slots is not None:
        facts.append(Fact("slots", Cell(str(m.slots))))
    if m.healthy_after_s is not None:
        facts.append(
            Fact(
                "healthy after",
                Cell(formats.duration(m.healthy_after_s), source_url(attempt.id, Source(file="launch.json", field="healthy_after_s"))),
            )
        )
    if m.cpu_percent_mean is not None:
        facts.append(
            Fact(
                "CPU of the machine, mean",
                Cell(f"{m.cpu_percent_mean:.0f} %", source_url(attempt.id, Source(file="samples.jsonl", field="cpu_percent"))),
            )
        )
    return facts + _pace_facts(attempt, m) + _log_facts(attempt, m)


def _pace_facts(attempt: Attempt, m: AttemptMeasurement) -> list[Fact]:
    """How each point warmed up, and whether the engine kept up with the clock."""
    href = source_url(attempt.id, Source(file="records.jsonl"))
    facts = [Fact(f"warm-up at {s.point}", Cell(pace_checks.in_words(s), href)) for s in m.settlings]
    told = [(load.point, words) for load in m.loads if (words := pace_checks.clock_in_words(load))]
    return facts + [Fact(f"requests at {point}", Cell(words, href)) for point, words in told]


def _log_facts(attempt: Attempt, m: AttemptMeasurement) -> list[Fact]:
    facts, log = [], m.log
    if log.build:
        facts.append(Fact("build", Cell(log.build)))
    if m.host.layers_placed:  # what the log calls offloaded may lie on the processor, where no device is seen
        there, total = m.host.layers_placed
        facts.append(Fact("layers on a device", Cell(f"{there} of {total}", title=f"the log says offloaded: {log.layers_offloaded}")))
    if log.error:
        href = source_url(attempt.id, Source(file="server.log", line=log.error_line))
        facts.append(Fact("the log's error", Cell(log.error, href, log.error_code)))
    return facts


def hits(lines: Sequence[str], field: str) -> set[int]:
    """Numbers (from 1) of the lines of spread-out JSON that hold what ``field`` names.

    ``field`` may be a path (``final.timings.draft_n``) or a formula over paths (``events[].at_s − sent_at_s``). Of an
    object the line of its innermost named key counts, of a list the line where it begins. What was read from the first or
    the last event counts there.
    """
    if event := _event_line(lines, field):
        return {event}
    found = (_line_of(lines, path.replace("[]", "").split(".")) for path in re.findall(r"[A-Za-z_][\w.\[\]]*", field))
    return {i for i in found if i}


#: How sources name one event: "events: last draft_n", "last events[].at_s − sent_at_s", "first content events[].at_s − …".
_ONE_EVENT = re.compile(r"events: last (?P<key>\w+)|(?P<which>first|last) (?P<content>content )?events\[\]")


def _event_line(lines: Sequence[str], field: str) -> int:
    """The line (from 1) of the one event that ``field`` names; 0 if it names none. Events stand one to a line."""
    if not (named := _ONE_EVENT.search(field)) or not (begin := _line_of(lines, ["events"])):
        return 0
    wanted = rf'"{named["key"]}": (?!null)' if named["key"] else '"kind": "content"' if named["content"] else '"tokens": [1-9]'
    inside = itertools.takewhile(lambda pair: pair[1].startswith("    "), enumerate(lines[begin:], begin + 1))
    found = [i for i, text in inside if re.search(wanted, text)]
    return found[0 if named["which"] == "first" else -1] if found else 0


def _line_of(lines: Sequence[str], keys: Sequence[str]) -> int:
    """The line (from 1) that holds the innermost of nested keys that has a line of its own; 0 if there is not even the first."""
    best = 0
    for depth, key in enumerate(keys, 1):
        begin, indent = best or 1, "  " * depth
        inside = itertools.takewhile(lambda pair, own=indent: pair[1].startswith(own), enumerate(lines[begin:], begin + 1))
        line = next((i for i, text in inside if text.startswith(f'{indent}"{key}":')), 0)
        if not line:
            break
        best = line
    return best


def record_lines(lines: Sequence[str], field: str) -> list[tuple[str, bool]]:
    """A record's lines, each with whether it holds the named field; the events are left out unless the field is about them."""
    found = hits(lines, field)
    shown, skipping = [], False
    for i, text in enumerate(lines, 1):
        if text == '  "events": [' and "events" not in field:
            skipping = True
            shown.append(('  "events": [ … ],', False))
        elif skipping:
            skipping = text not in ("  ],", "  ]")
        else:
            shown.append((text if len(text) <= 1000 else text[:1000] + " …", i in found))
    return shown

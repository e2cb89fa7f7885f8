"""The charts of a trial's page: which there are and whose request is shown; their numbers come by a second request. No database access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from speccore.measurement import ProbeMeasurement, Source
from speccore.records import RECORDS, SAMPLES

from specweb.results.models import Attempt, EvidenceFile

from .chart_frame import Chart
from .sources import source_url


@dataclass(frozen=True)
class Choice:
    """A request that the cycles can be shown of; ``line`` is its record's."""

    line: int
    name: str
    chosen: bool


def context(attempt: Attempt, files: Sequence[EvidenceFile], titles: Mapping[str, str], wanted: str, *, for_team: bool) -> dict[str, Any]:
    """``wanted``: the line of a request's record, as the address names it."""
    probes = attempt.measurement.parsed.probes if attempt.measurement else []
    chosen = _chosen(probes, wanted)
    lacking = {name: _lacking(files, name, for_team=for_team) for name in (RECORDS, SAMPLES)}
    return {
        "sampled": _samples(attempt, lacking[SAMPLES]),
        "waterfall": _stream(attempt, lacking[RECORDS]),
        "cycles": _cycles(attempt, chosen, lacking[RECORDS]),
        "cycle_choices": [Choice(p.line, _named(p, titles), p is chosen) for p in probes]
        if len(probes) > 1 and not lacking[RECORDS]
        else [],
        "cycle_fault": f"This trial has no request {wanted[:20]}." if wanted and (chosen is None or str(chosen.line) != wanted) else "",
        "cycle_record": source_url(attempt.id, Source(file=RECORDS, line=chosen.line)) if chosen else "",
    }


def _chosen(probes: Sequence[ProbeMeasurement], wanted: str) -> ProbeMeasurement | None:
    """The request that the address names, else the first that was timed and has not failed."""
    return next((p for p in probes if str(p.line) == wanted), None) or next(
        (p for p in probes if p.ok and not p.warmup), probes[0] if probes else None
    )


def _named(p: ProbeMeasurement, titles: Mapping[str, str]) -> str:
    parts = [p.item if p.turn is None else f"{p.item}, turn {p.turn}", titles.get(p.point, p.point)]
    return ", ".join([*parts, *["warm-up"] * p.warmup, *[p.failure] * (not p.ok)])


def _lacking(files: Sequence[EvidenceFile], name: str, *, for_team: bool) -> str:
    file = next((f for f in files if f.name == name), None)
    if file is None:
        return f"This trial left no {name}, from which it would be drawn."
    return f"{name} of this trial is for the team only." if file.private and not for_team else ""


def _source(attempt: Attempt, what: str, **query: int) -> str:
    return reverse("series", args=[attempt.id, what]) + (f"?{urlencode(query)}" if query else "")


def _about(attempt: Attempt) -> list[str]:
    return [f"trial {attempt.trial.index + 1}", attempt.trial.arm.name]


def _samples(attempt: Attempt, lacking: str) -> Chart:
    return Chart(
        "samples",
        "Memory, load and clocks",
        "seconds from the start of the trial; its phases are shaded",
        "What was sampled while the trial ran, along its time",
        source="" if lacking else _source(attempt, "samples"),
        empty=lacking,
        numbers=f"{SAMPLES} in the evidence has",
        about=_about(attempt),
    )


def _stream(attempt: Attempt, lacking: str) -> Chart:
    return Chart(
        "stream",
        "Requests along time",
        "seconds from the start of the trial: sent, first token, last token; a tick for each arrival of tokens",
        "When each request was sent and when its tokens arrived; the table of probes has the same times",
        source="" if lacking else _source(attempt, "stream"),
        empty=lacking,
        numbers="the table of probes has",
        about=_about(attempt),
    )


def _cycles(attempt: Attempt, chosen: ProbeMeasurement | None, lacking: str) -> Chart:
    why = lacking or ("" if chosen else "No request of this trial was measured.")
    return Chart(
        "cycles",
        "Steps of a request",
        "tokens drafted and accepted in each step of the target, along the time since the first token",
        "Drafted and accepted tokens of each decoding step",
        source="" if why or chosen is None else _source(attempt, "cycles", probe=chosen.line),
        empty=why,
        numbers="the request's record has",
        about=[*_about(attempt), *([chosen.item] if chosen else [])],
    )

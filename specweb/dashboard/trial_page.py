"""What the page of a trial shows beside its numbers: its course, the log around the lines that numbers came from, how it was started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speccore import settled
from speccore.commandline import Command, command_differences
from speccore.measurement import AttemptMeasurement, Number, ProbeMeasurement, Source
from speccore.records import ATTEMPT, LAUNCH, LOG, MANIFEST, AttemptSummary, Launch, Manifest
from speccore.spec import ExperimentSpec

from specweb.results import trial_evidence
from specweb.results.evidence_text import Line
from specweb.results.models import Attempt, EvidenceFile

from . import course, formats
from .sources import source_url

#: Lines of the log that are told with what stands around them, at most.
MAX_EXCERPTS = 12
AROUND = 1


@dataclass(frozen=True)
class LogLine:
    """A line of the log; ``why`` says what was read from it."""

    line: Line
    href: str
    why: str


def context(attempt: Attempt, spec: ExperimentSpec, files: Sequence[EvidenceFile], *, for_team: bool) -> dict[str, Any]:
    """Reads the attempt's files; ``files`` may be those that only the team reads, which are then left alone for others."""
    readable = [f for f in files if for_team or not f.private]
    measured = attempt.measurement.parsed if attempt.measurement else None
    launch = trial_evidence.document(readable, LAUNCH, Launch)
    manifest = trial_evidence.document(readable, MANIFEST, Manifest)
    summary = trial_evidence.document(readable, ATTEMPT, AttemptSummary)
    seconds = formats.seconds_between(attempt.started_at, attempt.ended_at)
    whys = _log_lines(measured) if measured else {}
    return {
        "course": course.course(summary, seconds),
        "launch": launch,
        "command": _command(spec, attempt, launch.argv) if launch else None,
        "environment": sorted(launch.env.items()) if launch else [],
        "manifest": _manifest(manifest) if manifest else [],
        "log": next((f for f in files if f.name == LOG), None),
        "log_is_private": any(f.name == LOG and f.private and not for_team for f in files),
        "excerpts": _excerpts(attempt, readable, whys),
        "n_log_sources": len(whys),
    }


def _log_lines(m: AttemptMeasurement) -> dict[int, str]:
    """Line of the log → what was read from it, faults first."""
    found: dict[int, list[str]] = {}
    if m.log.error_line:
        found.setdefault(m.log.error_line, []).append("the fault that ended it")
    if m.log.speculation_line:
        found.setdefault(m.log.speculation_line, []).append(f"speculation: {m.log.speculation or 'off'}")
    for p in m.probes:
        for name, number in _numbers(p):
            for told in (number, *number.also):
                if told.source.file == LOG and told.source.line:
                    found.setdefault(told.source.line, []).append(f"{name} of {p.item}{' (warm-up)' if p.warmup else ''}")
    for name, line in m.log.settled_lines.items():
        found.setdefault(line, []).append(f"{settled.words(name)}: {settled.shown(m.log.settled.get(name))}")
    return {line: ", ".join(dict.fromkeys(whys)) for line, whys in found.items()}


def _numbers(p: ProbeMeasurement) -> list[tuple[str, Number]]:
    fields = [*p, *p.counters]
    return [(name.replace("_", " "), value) for name, value in fields if isinstance(value, Number)]


def _excerpts(attempt: Attempt, files: Sequence[EvidenceFile], whys: Mapping[int, str]) -> list[list[LogLine]]:
    wanted = list(whys)[:MAX_EXCERPTS]
    return [
        [LogLine(line, source_url(attempt.id, Source(file=LOG, line=line.n)), whys[line.n] if line.n in wanted else "") for line in passage]
        for passage in trial_evidence.passages(files, LOG, wanted, AROUND)
    ]


def _command(spec: ExperimentSpec, attempt: Attempt, argv: Sequence[str]) -> Command | None:
    """The command as it was run, with what it adds to the baseline's marked: paths and port are put into the baseline's first."""
    arm, commands = attempt.trial.arm.name, attempt.trial.job.commands
    symbolic = commands.get(arm, [])
    bound = {s: real for s, real in zip(symbolic, argv, strict=False) if s.startswith("{") and s.endswith("}")}
    baseline = [bound.get(word, word) for word in commands.get(spec.baseline.name, [])]
    pair = {spec.baseline.name: baseline, arm: list(argv)}
    return next((c for c in command_differences(spec, pair) if c.arm == arm), None)


def _manifest(m: Manifest) -> list[tuple[str, str, str]]:
    """(what, in words, hash) of each thing that the attempt used."""
    rows = [("runtime", m.runtime_version, m.runtime_hash), ("target", ", ".join(m.target), m.target_hash)]
    if m.draft_hash:
        rows.append(("draft model", ", ".join(m.draft), m.draft_hash))
    rows += [("workload", name, sha256) for name, sha256 in sorted(m.workloads.items())]
    system = " ".join(v for k in ("system", "release", "machine") if (v := m.os.get(k)))
    return [*rows, ("inventory", f"agent {m.agent_version}, {system}", m.inventory_hash), ("boot", m.boot_id, "")]

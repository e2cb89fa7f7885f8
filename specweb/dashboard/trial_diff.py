"""Two trials side by side: what was set, run, used and measured, each thing by its name, and what of it differs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speccore import settled
from speccore.commandline import units
from speccore.derive import Pooled, speculation_numbers
from speccore.differences import field_words
from speccore.keys import pair_key
from speccore.measurement import AttemptMeasurement, Maybe, Number, ProbeMeasurement, Withheld
from speccore.metrics import METRICS
from speccore.records import LAUNCH, MANIFEST, Launch, Manifest
from speccore.spec import ExperimentSpec

from specweb.results import trial_evidence
from specweb.results.models import Attempt, EvidenceFile

from . import comparison_table, formats

NOTHING = "—"
#: Of each request, as means over a trial's requests at one point.
PROBE_METRICS = ("ttft_any_s", "decode_tokens_per_s", "token_latency_ms", "chunk_gap_ms_p95", "e2e_s", "completion_tokens")
#: Of these a quotient says something; shares and lengths stand side by side.
_RATIOS = ("ttft_any_s", "decode_tokens_per_s", "token_latency_ms", "e2e_s", "peak_memory_bytes", "peak_device_bytes")
TRIAL_METRICS = ("peak_memory_bytes", "peak_device_bytes", "memory_after_load_bytes", "energy_j_per_1k_tokens")
#: Of an experiment: what names it, and what stands in sections of its own.
_NOT_OF_THE_PLAN = {"name", "question", "arms", "engine", "runtime", "target"}


@dataclass(frozen=True)
class Side:
    """A trial with what was read of it; what may not be read or is not there is None."""

    attempt: Attempt
    spec: ExperimentSpec
    measured: AttemptMeasurement | None
    launch: Launch | None
    manifest: Manifest | None
    for_team: bool


@dataclass(frozen=True)
class Row:
    name: str
    a: str
    b: str
    ratio: str = ""
    title: str = ""
    a_title: str = ""
    b_title: str = ""

    @property
    def differs(self) -> bool:
        return (self.a_title or self.a) != (self.b_title or self.b)


@dataclass(frozen=True)
class Section:
    id: str
    name: str
    rows: list[Row]
    n_same: int
    note: str = ""

    @property
    def has_ratios(self) -> bool:
        return any(row.ratio for row in self.rows)


def side(attempt: Attempt, files: Sequence[EvidenceFile], *, for_team: bool) -> Side:
    readable = [f for f in files if for_team or not f.private]
    return Side(
        attempt,
        attempt.trial.job.experiment.parsed_spec,
        attempt.measurement.parsed if attempt.measurement else None,
        trial_evidence.document(readable, LAUNCH, Launch),
        trial_evidence.document(readable, MANIFEST, Manifest),
        for_team,
    )


def sections(a: Side, b: Side, *, everything: bool) -> list[Section]:
    """With ``everything`` what is equal too."""
    paired, why = in_one_pair(a, b)
    found = [
        ("trial", "Trial", _rows(_identity(a), _identity(b)), ""),
        ("numbers", "Numbers", _numbers(a, b, paired=paired), why),
        *((f"numbers-{i}", f"Numbers at {point}", rows, "") for i, (point, rows) in enumerate(_at_points(a, b, paired=paired), 1)),
        ("phases", "Phases", _rows(_phases(a), _phases(b)), ""),
        ("settings", "Settings", _rows(_settings(a), _settings(b)), ""),
        ("command", "Command line", _rows(_command(a), _command(b)), "the port and the folder of each start left out" if a.launch else ""),
        ("environment", "Environment", _rows(_environment(a), _environment(b)), ""),
        ("settled", "What the engine settled by itself", _rows(_settled(a), _settled(b)), ""),
        ("versions", "Versions and hashes", _rows(_versions(a), _versions(b)), ""),
        ("machine", "Machine", _rows(_machine(a), _machine(b)), ""),
    ]
    return [
        Section(id_, name, [r for r in rows if everything or r.differs], sum(not r.differs for r in rows), note)
        for id_, name, rows, note in found
        if rows or note
    ]


def in_one_pair(a: Side, b: Side) -> tuple[bool, str]:
    """Whether the two may stand in a ratio, and in words why not, or what such a ratio is."""
    if a.measured is None or b.measured is None:
        return False, "No ratio: of one of the two nothing was read."
    one, other = a.measured.pair_fields, b.measured.pair_fields
    if not one or not other:
        return False, "No ratio: what must be equal in a pair is not known of one of the two."
    if pair_key(one) == pair_key(other):
        return True, "B ÷ A of one start each, over the requests of each: no interval and no verdict, which need several blocks."
    names = [field_words(n) for n in sorted({*one, *other}) if one.get(n) != other.get(n)]
    return False, f"No ratio: what must be equal in a pair differs ({', '.join(names)})."


def _rows(a: Mapping[str, str], b: Mapping[str, str]) -> list[Row]:
    """A row for each name of either, in their order."""
    return [_row(name, a.get(name, NOTHING), b.get(name, NOTHING)) for name in dict.fromkeys([*a, *b])]


def _row(name: str, a: str, b: str) -> Row:
    return Row(name, formats.short_hash(a) if _is_hash(a) else a, formats.short_hash(b) if _is_hash(b) else b, a_title=a, b_title=b)


def _is_hash(text: str) -> bool:
    return len(text) == 64 and all(c in "0123456789abcdef" for c in text)


def _identity(s: Side) -> dict[str, str]:
    attempt, trial = s.attempt, s.attempt.trial
    return {
        "experiment": trial.job.experiment.name,
        "host": trial.job.host.name if trial.job.host else NOTHING,
        "arm": trial.arm.name,
        "block": str(trial.block),
        "place in the block": str(trial.position),
        "trial of the job": str(trial.index + 1),
        "attempt": str(attempt.n),
        "outcome": attempt.outcome + ("" if attempt.accepted else ", not counted"),
        "began": f"{attempt.started_at:%Y-%m-%d %H:%M:%S} UTC",
        "took": formats.duration((attempt.ended_at - attempt.started_at).total_seconds()),
    }


def _phases(s: Side) -> dict[str, str]:
    return {name: formats.duration(float(seconds)) for name, seconds in s.attempt.durations_s.items()}


def _settings(s: Side) -> dict[str, str]:
    arm = next((x for x in s.spec.arms if x.name == s.attempt.trial.arm.name), None)
    found = _flat("engine", s.spec.engine.model_dump(mode="json")) | _flat("runtime", s.spec.runtime.model_dump(mode="json"))
    found |= _flat("arm", arm.model_dump(mode="json", exclude={"name"}) if arm else {})
    return found | _flat("", s.spec.model_dump(mode="json", exclude=_NOT_OF_THE_PLAN))


def _flat(before: str, values: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in values.items():
        name = f"{before}.{key}" if before else key
        if isinstance(value, Mapping) and value:
            found |= _flat(name, value)
        elif value is None or value in ("", [], {}):
            found[name] = NOTHING
        else:
            found[name] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return found


def _own_words(launch: Launch, words: Iterable[str]) -> list[str]:
    """Without what each start has of its own, so that it is no difference."""
    port, folder = str(launch.port), launch.cwd
    return ["{port}" if w == port else w.replace(folder, "{folder}") if len(folder) > 1 else w for w in words]


def _command(s: Side) -> dict[str, str]:
    """Flag → its values; a flag that comes again gets its number."""
    found: dict[str, str] = {}
    for i, (first, *values) in enumerate(units(_own_words(s.launch, s.launch.argv)) if s.launch else []):
        flag = first if first.startswith("-") else ("program" if i == 0 else f"word {i + 1}")
        text = " ".join(values) or "set" if first.startswith("-") else " ".join([first, *values])
        n = sum(name == flag or name.startswith(f"{flag} (") for name in found)
        found[f"{flag} ({n + 1})" if n else flag] = text
    return found


def _environment(s: Side) -> dict[str, str]:
    names = sorted(s.launch.env) if s.launch else []
    return dict(zip(names, _own_words(s.launch, [s.launch.env[n] for n in names]) if s.launch else [], strict=True))


def _settled(s: Side) -> dict[str, str]:
    values = s.measured.log.settled if s.measured else {}
    return {settled.words(name): settled.shown(value) for name, value in values.items()}


def _versions(s: Side) -> dict[str, str]:
    m = s.manifest
    if m is None:
        return {}
    found = {"engine": m.runtime_version, "engine build": m.runtime_hash, "target": ", ".join(m.target), "target model": m.target_hash}
    if m.draft_hash:
        found |= {"draft": ", ".join(m.draft), "draft model": m.draft_hash}
    found |= {f"workload {name}": content for name, content in sorted(m.workloads.items())}
    found |= {f"file {name}": content for name, content in sorted(m.runtime.items())}
    parser = {"parser": str(s.measured.parser_version)} if s.measured else {}
    return found | {"agent": m.agent_version} | parser


def _machine(s: Side) -> dict[str, str]:
    found: dict[str, str] = {}
    if s.attempt.trial.job.inventory:
        inventory = s.attempt.trial.job.inventory.parsed
        found = {
            "hardware": inventory.hardware_name(),
            "driver": inventory.driver() or NOTHING,
            "processor": f"{inventory.cpu_model}, {inventory.n_cores} cores",
            "memory": formats.byte_size(inventory.memory_bytes),
        }
    if s.manifest:
        found |= {"inventory": s.manifest.inventory_hash, "start of the machine": s.manifest.boot_id}
        found |= {f"OS {name}": value for name, value in s.manifest.os.items()}
    if m := s.measured:
        found["CPU of the machine, mean"] = f"{m.cpu_percent_mean:.0f} %" if m.cpu_percent_mean is not None else NOTHING
        found["clock while probing"] = f"{m.clock_mhz[0]:,.0f}–{m.clock_mhz[1]:,.0f} MHz" if m.clock_mhz else NOTHING
        found["highest temperature"] = f"{m.temperature_c:.0f} °C" if m.temperature_c is not None else NOTHING
    return found


def _numbers(a: Side, b: Side, *, paired: bool) -> list[Row]:
    """Of the trials as a whole."""
    rows = [_number(metric, *(getattr(s.measured, metric, None) for s in (a, b)), paired=paired) for metric in TRIAL_METRICS]
    return [row for row in rows if (row.a, row.b) != (NOTHING, NOTHING)]


def _at_points(a: Side, b: Side, *, paired: bool) -> list[tuple[str, list[Row]]]:
    """(key of a point, its numbers), in the order in which they were asked."""
    found = []
    for point in dict.fromkeys(p.point for s in (a, b) if s.measured for p in s.measured.probes):
        one, other = (_of_point(s.measured, point) for s in (a, b))
        names = dict.fromkeys([*one, *other])
        found.append((point, [_number(metric, one.get(metric), other.get(metric), paired=paired) for metric in names]))
    return found


def _of_point(m: AttemptMeasurement | None, point: str) -> dict[str, Maybe]:
    probes = [p for p in m.probes if p.point == point and p.ok and not p.warmup] if m else []
    if not probes:
        return {}
    return {metric: _mean(probes, metric) for metric in PROBE_METRICS} | speculation_numbers(
        Pooled(m.arm if m else "", point, probes, [m.block] if m else [])
    )


def _mean(probes: Sequence[ProbeMeasurement], metric: str) -> Maybe:
    """Over all requests; withheld if it is withheld of one, since a mean over the others would be of other work."""
    values: list[Maybe] = [getattr(p, metric) for p in probes]
    if missing := next((v for v in values if isinstance(v, Withheld)), None):
        return missing
    numbers = [v for v in values if isinstance(v, Number)]
    return Number(value=sum(n.value for n in numbers) / len(numbers), source=numbers[0].source)


def _number(metric: str, a: Maybe | None, b: Maybe | None, *, paired: bool) -> Row:
    m = METRICS[metric]
    one, other = (comparison_table.metric_cell(v, metric) if v is not None else comparison_table.Cell(NOTHING) for v in (a, b))
    ratio = ""
    if paired and metric in _RATIOS and isinstance(a, Number) and isinstance(b, Number) and a.value > 0 and b.value > 0:
        ratio = formats.ratio(b.value / a.value)
    name = f"{m.name}{f', {m.unit}' if m.unit else ''}"
    return Row(name, one.text, other.text, ratio, comparison_table.definition(metric))

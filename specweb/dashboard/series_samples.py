"""What was sampled while a trial ran, as data for a drawing: memory, load, clocks, heat and power, with the trial's phases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from speccore.records import SAMPLES, AttemptSummary, Sample

from specweb.results.thinning import thinned
from specweb.results.trial_series import Read

#: At most so many points are drawn of each series.
MOST = 1_200
_MIB = 2**20
Value = Callable[[Sample], float | None]
_Point = tuple[float, float, int]  # second, value, line of the file


@dataclass(frozen=True)
class _Kind:
    """A series: its panel, its name there, and its value in the panel's unit."""

    panel: str
    name: str
    value: Value


def _mib(n: float | None) -> float | None:
    return None if n is None else n / _MIB


def _on_devices(s: Sample) -> float | None:
    return sum(s.device_bytes.values()) if s.device_bytes else None


def _sum_of(field: str) -> Value:
    def value(s: Sample) -> float | None:
        found = [v for d in s.devices.values() if (v := getattr(d, field)) is not None]
        return sum(found) if found else None

    return value


def _most_of(field: str) -> Value:
    return lambda s: max((v for d in s.devices.values() if (v := getattr(d, field)) is not None), default=None)


#: Panels in order, with their units.
PANELS = (
    ("memory", "memory, MiB"),
    ("load", "busy, %"),
    ("clock", "clock, MHz"),
    ("heat", "temperature, °C"),
    ("power", "power, W"),
)
_KINDS = (
    _Kind("memory", "resident (RSS)", lambda s: _mib(s.rss_bytes)),
    _Kind("memory", "proportional (PSS)", lambda s: _mib(s.pss_bytes)),
    _Kind("memory", "on devices, the engine's", lambda s: _mib(_on_devices(s))),
    _Kind("memory", "on devices, everybody's", lambda s: _mib(_sum_of("used_bytes")(s))),
    _Kind("load", "processors", lambda s: s.cpu_percent),
    _Kind("load", "processors, by others", lambda s: s.others_cpu_percent),
    _Kind("load", "devices", _most_of("busy_percent")),
    _Kind("load", "devices, by others", _most_of("other_busy_percent")),
    _Kind("clock", "slowest device", lambda s: s.clock_mhz),
    _Kind("clock", "processor", lambda s: s.cpu_mhz),
    _Kind("heat", "hottest device", lambda s: s.temperature_c),
    _Kind("power", "devices", _sum_of("power_w")),
)
_WITHOUT = {
    "clock": "No clock was sampled: neither a device nor the processors tell theirs on this host.",
    "heat": "No temperature was sampled: no device tells it on this host.",
    "power": "No power was sampled: no device tells it on this host.",
}


def samples_data(read: Read[Sample], summary: AttemptSummary | None, seconds: float | None) -> dict[str, Any]:
    """``panels`` with their series and ``phases``; or ``empty``, a sentence that says why there is nothing to draw."""
    numbered = sorted(read.lines, key=lambda pair: pair[1].at_s)
    samples = [s for _, s in numbered]
    panels = []
    thin = False
    for panel, unit in PANELS:
        series = []
        for kind in _KINDS:
            points = [(s.at_s, v, line) for line, s in numbered if kind.panel == panel and (v := kind.value(s)) is not None]
            if len(points) >= 2:
                drawn = thinned(points, MOST, lambda p: p[1])
                thin = thin or len(drawn) < len(points)
                series.append(_series(kind, points, drawn))
        if series:
            panels.append({"name": panel, "unit": unit, "series": series})
    if not panels:
        return {"empty": " ".join(["Nothing was sampled in this trial.", *read.notes(SAMPLES)])}
    shown = {p["name"] for p in panels}
    notes = [why for panel, why in _WITHOUT.items() if panel not in shown]
    if thin:
        notes.append(f"At most {MOST:,} points of a series are drawn: of each stretch of samples the least and the greatest.")
    return {
        "panels": panels,
        "phases": _phases(summary, seconds, samples),
        "notes": [f"{len(samples):,} samples.", *notes, *read.notes(SAMPLES)],
        "table": _table(panels),
    }


def _series(kind: _Kind, points: Sequence[_Point], drawn: Sequence[_Point]) -> dict[str, Any]:
    values = [v for _, v, _ in points]
    return {
        "name": kind.name,
        "n": len(points),
        "least": round(min(values), 3),
        "most": round(max(values), 3),
        "at": [round(at, 3) for at, _, _ in drawn],
        "values": [round(v, 3) for _, v, _ in drawn],
        "lines": [line for _, _, line in drawn],
    }


def _phases(summary: AttemptSummary | None, seconds: float | None, samples: Sequence[Sample]) -> list[list[Any]]:
    """(name, begin, end) in seconds; by what the agent wrote down, else as the samples were taken."""
    if summary is not None and summary.phases:
        begins = list(summary.phases)
        end = max(seconds or 0.0, samples[-1].at_s, begins[-1][1])
    else:
        begins = [
            (s.phase, s.at_s) for before, s in zip([None, *samples], samples, strict=False) if before is None or before.phase != s.phase
        ]
        end = samples[-1].at_s
    ends = [*(at for _, at in begins[1:]), end]
    return [[name, round(begin, 3), round(max(begin, stop), 3)] for (name, begin), stop in zip(begins, ends, strict=True)]


def _table(panels: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rows = [
        [f"{s['name']}, {p['unit'].rpartition(', ')[2]}", f"{s['least']:,.5g}", f"{s['most']:,.5g}", f"{s['n']:,}"]
        for p in panels
        for s in p["series"]
    ]
    return {"heads": ["what", "least", "most", "samples"], "rows": rows, "more": ""}

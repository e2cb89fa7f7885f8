"""The course of an attempt: its phases, and what was sampled meanwhile, on one axis of time. No database access."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from speccore.records import AttemptSummary, Sample

from . import formats

#: A line is drawn through at most so many points.
MAX_POINTS = 400


@dataclass(frozen=True)
class Band:
    """A phase; ``x`` and ``width`` are percent of the attempt's time."""

    name: str
    duration: str
    x: float
    width: float


@dataclass(frozen=True)
class Series:
    """``points`` are ``x,y`` pairs of a polyline in a box of 1000 by 100; ``least`` and ``most`` are its ends in words."""

    name: str
    points: str
    least: str
    most: str
    n: int


@dataclass(frozen=True)
class Course:
    seconds: str
    bands: list[Band]
    series: list[Series]


def course(summary: AttemptSummary | None, seconds: float | None, samples: Sequence[Sample]) -> Course | None:
    """None if the attempt's length or its phases are unknown."""
    if summary is None or not seconds or not summary.phases:
        return None
    ends = [*(begin for _, begin in summary.phases[1:]), max(seconds, summary.phases[-1][1])]
    total = ends[-1]
    bands = [
        Band(name, formats.duration(max(0.0, end - begin)), round(100 * begin / total, 3), round(100 * max(0.0, end - begin) / total, 3))
        for (name, begin), end in zip(summary.phases, ends, strict=True)
    ]
    found = [_series(name, samples, value, words, total) for name, value, words in _SERIES]
    return Course(formats.duration(total), bands, [s for s in found if s])


def _series(
    name: str, samples: Sequence[Sample], value: Callable[[Sample], float | None], words: Callable[[float], str], total_s: float
) -> Series | None:
    points = [(s.at_s, v) for s in samples if (v := value(s)) is not None and 0 <= s.at_s <= total_s]
    if len(points) < 2:
        return None
    low, high = min(v for _, v in points), max(v for _, v in points)
    every = -(-len(points) // MAX_POINTS)
    drawn = [
        (round(1000 * at / total_s, 1), round(96 - 92 * (v - low) / (high - low), 1) if high > low else 50) for at, v in points[::every]
    ]
    return Series(name, " ".join(f"{x:g},{y:g}" for x, y in drawn), words(low), words(high), len(points))


def _on_devices(s: Sample) -> float | None:
    return sum(s.device_bytes.values()) if s.device_bytes else None


def _watts(s: Sample) -> float | None:
    found = [d.power_w for d in s.devices.values() if d.power_w is not None]
    return sum(found) if found else None


_SERIES: tuple[tuple[str, Callable[[Sample], float | None], Callable[[float], str]], ...] = (
    ("memory of the host, RSS", lambda s: s.rss_bytes, formats.byte_size),
    ("memory of the host, PSS", lambda s: s.pss_bytes, formats.byte_size),
    ("memory of the device", _on_devices, formats.byte_size),
    ("CPU of the machine", lambda s: s.cpu_percent, lambda v: f"{v:.0f} %"),
    ("CPU of others", lambda s: s.others_cpu_percent, lambda v: f"{v:.0f} %"),
    ("clock", lambda s: s.clock_mhz if s.clock_mhz is not None else s.cpu_mhz, lambda v: f"{v:,.0f} MHz"),
    ("power of the devices", _watts, lambda v: f"{v:.0f} W"),
    ("temperature", lambda s: s.temperature_c, lambda v: f"{v:.0f} °C"),
)

"""What an attempt's samples say of its host: memory after loading and its growth, energy, throttling, other programs, clocks."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from . import memory_free
from .measurement import HostFacts, LogFacts, Maybe, Number, ProbeMeasurement, Source, Withheld, value_of
from .records import SAMPLES, DeviceSample, Sample

WARM_UP, PROBING = "warm-up", "probing"
#: Why a clock may be below its highest and nothing is wrong: no work, what its owner set, and the cap on its power.
HARMLESS = frozenset({"idle", "clocks_set", "display_clock", "power_cap"})
#: A slope over less is noise.
LEAST_SAMPLES, LEAST_SPAN_S = 3, 2.0

_MIB = 2**20
_LAYERS = re.compile(r"(\d+)/(\d+)")
Numbered = Sequence[tuple[int, Sample]]


def after_load(sampled: Numbered, log: LogFacts) -> Maybe:
    """Resident and device memory of the engine when it began to warm up. ``sampled``: all samples with their lines."""
    found = [(line, memory) for line, s in sampled if s.phase == WARM_UP and (memory := _memory(s, log)) is not None]
    if not found:
        return Withheld(withheld="no sample with the engine's memory was taken in its warm-up", reason_code="no_samples")
    line, memory = found[0]
    return Number(value=memory, source=Source(file=SAMPLES, line=line, field="rss_bytes + device_bytes, first in warm-up"))


def growth_per_min(samples: Numbered, log: LogFacts) -> Maybe:
    """Slope of resident and device memory over time, by least squares, in bytes a minute. ``samples``: those while probing."""
    points = [(s.at_s, memory) for _, s in samples if (memory := _memory(s, log)) is not None]
    span = points[-1][0] - points[0][0] if points else 0.0
    if len(points) < LEAST_SAMPLES or span < LEAST_SPAN_S:
        said = f"needs {LEAST_SAMPLES} samples over {LEAST_SPAN_S:g} s of probing, has {len(points)} over {span:.1f} s"
        return Withheld(withheld=said, reason_code="no_samples")
    slope = statistics.linear_regression([at for at, _ in points], [memory for _, memory in points]).slope
    return Number(value=60 * slope, source=Source(file=SAMPLES, field="rss_bytes + device_bytes over at_s, while probing"))


def energy_per_1k_tokens(samples: Numbered, probes: Sequence[ProbeMeasurement]) -> Maybe:
    """Growth of the devices' energy counters while probing, for 1,000 tokens of all answers, in joules."""
    counts = [value_of(p.completion_tokens if isinstance(p.completion_tokens, Number) else p.server_tokens) for p in probes if not p.warmup]
    first, last = ({uuid: d.energy_j for uuid, d in s.devices.items() if d.energy_j is not None} for s in _ends(samples))
    spent = [last[uuid] - first[uuid] for uuid in first if uuid in last]
    if not spent or min(spent) < 0 or sum(spent) == 0:
        return Withheld(withheld="no device has a counter of its energy that ran while probing", reason_code="no_samples")
    tokens = sum(n for n in counts if n is not None)
    if not tokens or None in counts:
        return Withheld(withheld="not all answers have their tokens counted", reason_code="uncounted")
    return Number(value=1000 * sum(spent) / tokens, source=Source(file=SAMPLES, field="devices.energy_j, last − first while probing"))


def host_facts(sampled: Numbered, log: LogFacts, layers_asked: int | None) -> HostFacts:
    """``sampled``: all samples with their lines; ``layers_asked``: of the target, None if the engine was to choose."""
    probing = [s for _, s in sampled if s.phase == PROBING]
    used = {uuid for _, s in sampled for uuid, held in s.device_bytes.items() if held}
    facts = HostFacts(
        n_samples=len(probing),
        loaded_bytes=sum(mib for key, mib in log.memory_mib.items() if key.rpartition(" ")[2] in log.devices) * _MIB
        if log.devices
        else None,
        held_bytes=max((sum(s.device_bytes.values()) for _, s in sampled if s.device_bytes), default=None),
        cards_bytes=max((taken for _, s in sampled if (taken := sum(d.used_bytes or 0 for d in s.devices.values()))), default=None),
        layers_asked=layers_asked,
        layers_placed=_layers(log),
    )
    if used or log.devices:
        return facts.model_copy(update={"device": "gpu", **_of_gpus(probing, used)})
    return facts.model_copy(update=_of_cpu(probing))


def _layers(log: LogFacts) -> tuple[int, int] | None:
    """Layers of the target on devices, of all. llama-server says "offloaded 5/5 layers to GPU" where there is no GPU too."""
    layers = _LAYERS.fullmatch(log.layers_offloaded)
    holders = {key.rpartition(" ")[2] for key in log.memory_mib if key.startswith("target model ")}
    if not layers or not holders:
        return None
    return (int(layers[1]) if holders & set(log.devices) else 0), int(layers[2])


def _of_gpus(probing: Sequence[Sample], used: set[str]) -> dict[str, object]:
    """Of the devices on which the engine was seen; of all where it was seen on none."""
    rows = [{uuid: d for uuid, d in s.devices.items() if not used or uuid in used} for s in probing]
    told = [d.throttle for row in rows for d in row.values() if d.throttle is not None]
    shares = [
        statistics.fmean(seen)
        for uuid in {uuid for row in rows for uuid in row}
        if (seen := [b for row in rows if uuid in row and (b := row[uuid].other_busy_percent) is not None])
    ]
    clocks = [min(values) for row in rows if (values := list(_busy_clocks(row.values())))]
    return {
        "throttle": dict(Counter(why for reasons in told for why in set(reasons) - HARMLESS)) if told else None,
        "others_busy_percent": max(shares, default=None),
        "other_pids": sorted({pid for row in rows for d in row.values() for pid in d.other_pids or []}),
        "clock_mhz": statistics.median(clocks) if clocks else None,
        "free_bytes": memory_free.free_on_devices(probing, used),
    }


def _busy_clocks(devices: Iterable[DeviceSample]) -> Iterable[float]:
    return (d.clock_mhz for d in devices if d.clock_mhz is not None and d.busy_percent != 0)


def _of_cpu(probing: Sequence[Sample]) -> dict[str, object]:
    counts = [s.cpu_throttled for s in probing if s.cpu_throttled is not None]
    shares = [s.others_cpu_percent for s in probing if s.others_cpu_percent is not None]
    clocks = [s.cpu_mhz for s in probing if s.cpu_mhz is not None]
    risen = counts[-1] - counts[0] if counts else 0
    return {
        "throttle": ({"heat": risen} if risen else {}) if len(counts) > 1 else None,
        "others_busy_percent": statistics.fmean(shares) if shares else None,
        "clock_mhz": statistics.median(clocks) if clocks else None,
        "free_bytes": memory_free.free_in_host(probing),
    }


def _memory(s: Sample, log: LogFacts) -> int | None:
    """Resident and device memory together; an engine that holds buffers on a device has no sum without it."""
    if s.rss_bytes is None or (log.devices and not s.device_bytes):
        return None
    return s.rss_bytes + sum(s.device_bytes.values())


def _ends(samples: Numbered) -> tuple[Sample, Sample]:
    """The first and the last sample with a counter of energy."""
    counted = [s for _, s in samples if any(d.energy_j is not None for d in s.devices.values())]
    nothing = Sample(at_s=0, phase=PROBING)
    return (counted[0], counted[-1]) if counted else (nothing, nothing)

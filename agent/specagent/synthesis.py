"""Measures an arm's speed at acceptance lengths that are asked for: one start for each, between two of the baseline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from speccore.break_even import Curve, curve
from speccore.errors import ArmNotSupported, EngineError, ProbeFailed
from speccore.measure import measure_probe
from speccore.measurement import ProbeMeasurement, value_of
from speccore.protocol import ProbePlan
from speccore.spec import BASELINE_MODE, Point

from .arm_engine import standing
from .prepared import PreparedJob
from .together import run_batch

#: Requests before those that count, in each start.
_WARM = 1

Say = Callable[[str], None]


@dataclass(frozen=True)
class Speed:
    """Over all answers of a start: decoding speed by the client's clock, and what a step of the target brought."""

    tokens_per_s: float
    tokens_per_pass: float
    n_steps: int
    drafted: float


def check_offered(job: PreparedJob) -> None:
    """Raises :class:`ArmNotSupported` where the build has no synthetic acceptance."""
    flag, engine = job.dialect.SYNTHETIC_FLAG, job.runtime.info.engine
    if not flag:
        raise ArmNotSupported(
            f"break-even can't be measured with {engine}: SpecWeb asks it for no synthetic acceptance",
            remedy="Use a build of llama-server; or read what an arm needs from a real run, whose report tells it.",
        )
    if flag not in job.runtime.info.capabilities.flags:
        raise ArmNotSupported(
            f"this build of {engine} ({job.runtime.info.version}) has no synthetic acceptance: its help lists no {flag}",
            remedy="Add a newer build to the configuration; or read what an arm needs from a real run, whose report tells it.",
            flag=flag,
        )


def measure_curve(
    job: PreparedJob, arm: str, lengths: Sequence[float], n_requests: int, work: Path, stop: threading.Event, say: Say
) -> Curve:
    """Raises what keeps an engine from starting or answering, and :class:`launch.Stopped`."""
    check_offered(job)
    flag, spec = job.dialect.SYNTHETIC_FLAG, job.offer.spec
    point = spec.points[0].model_copy(update={"concurrency": 1, "rate_per_s": None, "warm": False})
    baseline = spec.baseline.name
    before = _speed(job, baseline, (), point, n_requests, work, stop, lambda: say(f"{baseline}, before"))
    seen = []
    for length in lengths:
        found = _speed(job, arm, (flag, f"{length:g}"), point, n_requests, work, stop, lambda n=length: say(f"{arm}, length {n:g}"))  # type: ignore[misc]
        if not found.drafted:
            raise EngineError(f"arm {arm!r} drafted nothing with {flag} {length:g}", remedy="Look at the engine's log.")
        seen.append((length, found.tokens_per_pass, found.tokens_per_s, found.n_steps))
    after = _speed(job, baseline, (), point, n_requests, work, stop, lambda: say(f"{baseline}, after"))
    return curve(arm, spec.arm(arm).mode, (before.tokens_per_s, after.tokens_per_s), seen)


def _speed(
    job: PreparedJob, arm: str, more: Sequence[str], point: Point, n: int, work: Path, stop: threading.Event, say: Callable[[], None]
) -> Speed:
    say()
    items = job.workloads[point.workload].items[: n + _WARM]
    plans = [
        (ProbePlan(id=f"synth#{i}", point=point.key, item=item.id, seed=job.offer.spec.seed + i), item.prompt)
        for i, item in enumerate(items)
    ]
    settings = job.offer.spec.engine
    with standing(job, arm, work, stop, more) as there:
        t0 = time.monotonic()
        probed = run_batch(job.dialect, there.at, point, plans, t0=t0, timeout_s=settings.probe_timeout_s, stop=stop)
    mode = job.offer.spec.arm(arm).mode
    measured = []
    for line, one in enumerate(probed, 1):
        counts = job.dialect.probe_counts(one.record, line, off=mode == BASELINE_MODE, metrics=None, log=None)
        measured.append(measure_probe(one.record, line, counts, None, None, mode))
    return _together(arm, measured[_WARM:])


def _together(arm: str, probes: Sequence[ProbeMeasurement]) -> Speed:
    """Raises :class:`ProbeFailed` where nothing can be said."""
    emitted = seconds = steps = drafted = 0.0
    for probe in probes:
        tokens, rate, passes = (value_of(n) for n in (probe.counters.emitted, probe.decode_tokens_per_s, probe.counters.decode_steps))
        if tokens and rate and passes:
            emitted, seconds, steps = emitted + tokens, seconds + tokens / rate, steps + passes
            drafted += value_of(probe.counters.drafted) or 0.0
    if not steps or not seconds:
        first = next((p.failure_message for p in probes if not p.ok), "the engine tells no steps")
        raise ProbeFailed(f"arm {arm!r}: no answer has its speed and its steps; the first: {first}")
    return Speed(emitted / seconds, emitted / steps, round(steps), drafted)

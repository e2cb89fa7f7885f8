"""How long a job will take, as a range: from what earlier trials on the host took, else a stated guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import reading, untimed
from .protocol import JobPlan, TrialPlan
from .settling import LEAST
from .spec import BASELINE_MODE, ExperimentSpec
from .workload import Workload

#: From so many earlier trials on, their extremes are left out; with fewer, the range is made wider than they were.
ENOUGH = 8
WIDER = 1.3
#: A mode that the host never ran, measured by the others that it did: speculation may help or hurt.
OTHER_MODE = (0.4, 2.0)

#: Bytes a second that a decode step reads weights at, slowest and fastest of what people measure with.
_CPU_BANDWIDTH = (8e9, 80e9)
_GPU_BANDWIDTH = (150e9, 4e12)
#: Seconds of a step beside reading weights; seconds of a start and of a stop with what stands between them.
_STEP_S = (0.001, 0.008)
_START_S = (0.5, 4.0)
_REST_S = (0.5, 3.0)
_DISK = (0.3e9, 5e9)
#: A file over this may be a mixture of experts, of which a step reads a part.
_MAYBE_EXPERTS = 4e9
_LEAST_PART = 0.1
#: Answers may end before their limit.
_SHORTEST_ANSWER = 0.5

Range = tuple[float, float]


@dataclass(frozen=True)
class TrialCost:
    """What one earlier trial took, in seconds. ``token_s`` is for each token that its requests were allowed to bring."""

    mode: str
    start_s: float
    token_s: float
    rest_s: float


@dataclass(frozen=True)
class Minutes:
    low: float
    high: float
    basis: str  # in words: what the range rests on


def job_minutes(
    spec: ExperimentSpec,
    plan: JobPlan,
    *,
    model_bytes: int,
    on_gpu: bool,
    earlier: Sequence[TrialCost] = (),
    workloads: Mapping[str, Workload] | None = None,
) -> Minutes:
    """All trials of a plan one after another, none of them repeated. ``model_bytes`` is the size of the target's file.

    ``earlier`` are trials of the same target on the same host. ``workloads``, keyed as the points name them, tell how many
    turns tasks have.
    """
    modes = {a.name: a.mode for a in spec.arms}
    seconds = {mode: _of_mode(mode, model_bytes, on_gpu, earlier) for mode in set(modes.values())}
    after = untimed.untimed(spec, plan)
    low = high = read = 0.0
    for trial in plan.trials:
        start, token, rest = seconds[modes[trial.arm]]
        alone, together = (timed + more for timed, more in zip(_tokens(spec, trial), untimed.tokens(spec, after[trial.id])))
        extra = reading.beside(spec, trial, workloads or {}).plus(reading.again(spec, after[trial.id]))
        least, most = (extra.answered + share * extra.read for share in reading.SHARE)
        read += extra.read
        clock_s = _clock_s(spec, trial) + extra.wait_s
        low += start[0] + token[0] * (together + least) + rest[0] + clock_s
        high += start[1] + token[1] * (alone + most) + rest[1] + clock_s
    basis = _basis(set(modes.values()), model_bytes, on_gpu, earlier)
    return Minutes(low / 60, high / 60, "; ".join(filter(None, (basis, reading.in_words(read)))))


def _tokens(spec: ExperimentSpec, trial: TrialPlan) -> tuple[float, float]:
    """Tokens that a trial's requests may bring: one after another, and as steps shared by those that run at once.

    The latter with as little warm-up as settles, and without requests by the clock, which have their time anyway.
    """
    points = {p.key: p for p in spec.points}
    warmup = [points[w.point] for w in trial.warmup]
    probes = [points[p.point] for p in trial.probes]
    least = warmup if spec.warmup.mode == "fixed" else [points[key] for key in trial.points for _ in range(LEAST)]
    least += [points[w.point] for w in trial.warmup if w.ahead and spec.warmup.mode != "fixed"]
    shared = [p for p in probes if p.rate_per_s is None]
    return sum(p.max_tokens for p in (*warmup, *probes)), sum(p.max_tokens / p.concurrency for p in (*least, *shared))


def _clock_s(spec: ExperimentSpec, trial: TrialPlan) -> float:
    """Seconds in which a trial's requests by the clock come."""
    rates = {p.key: p.rate_per_s for p in spec.points}
    return sum(1 / rate for p in trial.probes if (rate := rates[p.point]) is not None)


def _of_mode(mode: str, model_bytes: int, on_gpu: bool, earlier: Sequence[TrialCost]) -> tuple[Range, Range, Range]:
    """Seconds of a start, of a token and of the rest of a trial."""
    own = [c for c in earlier if c.mode == mode]
    if own:
        return _range([c.start_s for c in own]), _range([c.token_s for c in own]), _range([c.rest_s for c in own])
    if earlier:
        token = _range([c.token_s for c in earlier])
        start, rest = _range([c.start_s for c in earlier]), _range([c.rest_s for c in earlier])
        return (start[0], start[1] * OTHER_MODE[1]), (token[0] * OTHER_MODE[0], token[1] * OTHER_MODE[1]), rest
    return _guess(mode, model_bytes, on_gpu)


def _range(values: Sequence[float]) -> Range:
    ordered = sorted(values)
    if len(ordered) >= ENOUGH:
        spared = len(ordered) // 10
        return ordered[spared], ordered[len(ordered) - 1 - spared]
    return ordered[0] / WIDER, ordered[-1] * WIDER


def _guess(mode: str, model_bytes: int, on_gpu: bool) -> tuple[Range, Range, Range]:
    slow, fast = _GPU_BANDWIDTH if on_gpu else _CPU_BANDWIDTH
    part = _LEAST_PART if model_bytes > _MAYBE_EXPERTS else 1.0
    token = (model_bytes * part / fast + _STEP_S[0]) * _SHORTEST_ANSWER, model_bytes / slow + _STEP_S[1]
    if mode != BASELINE_MODE:
        token = token[0] * OTHER_MODE[0], token[1] * OTHER_MODE[1]
    start = _START_S[0] + model_bytes / _DISK[1], _START_S[1] + model_bytes / _DISK[0]
    return start, token, _REST_S


def reading_s(n_tokens: int, *, model_bytes: int, on_gpu: bool) -> Range:
    """Seconds until a prompt of so many tokens is read, as a guess from the model's size."""
    _, token, _ = _guess(BASELINE_MODE, model_bytes, on_gpu)
    return token[0] / _SHORTEST_ANSWER * reading.SHARE[0] * n_tokens, token[1] * reading.SHARE[1] * n_tokens


def _basis(modes: set[str], model_bytes: int, on_gpu: bool, earlier: Sequence[TrialCost]) -> str:
    if not earlier:
        size = f"{model_bytes / 2**30:.3g} GiB" if model_bytes >= 2**30 else f"{model_bytes / 2**20:.3g} MiB"
        return f"a guess from the model's size ({size}) and {'a GPU' if on_gpu else 'a CPU'}: this host has not run it yet"
    new = sorted(modes - {c.mode for c in earlier})
    used = [c for c in earlier if c.mode in modes] or list(earlier)
    words = f"from {len(used)} earlier trial{'' if len(used) == 1 else 's'} of this model on this host"
    return words + (f"; {', '.join(new)}: a guess by the other modes" if new else "")

"""Finds the largest context that loads for each arm: start, ask, look at what is left of memory, stop; and the next one."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
from speccore.errors import EngineOutOfMemory, ProbeFailed, SpecWebError
from speccore.fit import MOST_STARTS, ArmFit, Fit, FitTry, next_context, top_of
from speccore.measurement import Withheld
from speccore.memory_estimate import Room, estimate_arm, largest_context
from speccore.memory_free import free_in_host, free_on_devices
from speccore.memory_needs import size
from speccore.protocol import TrialPlan
from speccore.records import Sample
from speccore.spec import ExperimentSpec, Sampling

from . import arm_engine
from .asking import Closed, Target
from .continuing import request_of
from .launch import Stopped, read_log
from .load import run_load
from .prepared import PreparedJob
from .sampler import process_tree
from .second_look import answer_of

PHASE = "looking for the largest context"
#: An arm is looked at no longer than this.
MOST_S = 3600.0
#: What stays free of a host's own memory where the experiment requires nothing: the kernel gives more than it has.
_HOST_SHARE, _HOST_LEAST = 0.05, 512 << 20
_ANSWER_TOKENS = 8

Say = Callable[[str], None]


@dataclass(frozen=True)
class Limits:
    """``reserve_bytes``: what must stay free; None: not asked. Of each arm: most starts, most seconds."""

    reserve_bytes: float | None
    starts: int = MOST_STARTS
    seconds: float = MOST_S


def is_due(spec: ExperimentSpec, trial: TrialPlan, left: Sequence[TrialPlan]) -> bool:
    """After the last of all trials, so that nothing timed comes after it."""
    return spec.fit and [t.id for t in left] == [trial.id]


def limits_of(job: PreparedJob, reserve_mib: int | None = None, starts: int = MOST_STARTS) -> Limits:
    """The reserve that is named, else the experiment's, else on a host that computes itself a share of its memory."""
    asked = reserve_mib if reserve_mib is not None else job.offer.spec.requirements.free_memory_mib
    room = Room.of(job.host.inventory)
    if asked is not None:
        return Limits(asked * 2.0**20, starts)
    return Limits(None if room.on_device else max(_HOST_SHARE * room.n_bytes, _HOST_LEAST), starts)


def fit_arms(job: PreparedJob, arms: Sequence[str], work: Path, limits: Limits, stop: threading.Event, say: Say) -> Fit:
    """Each of the arms in turn; one that fails for another reason than memory says which. Raises :class:`Stopped`."""
    work.mkdir(parents=True, exist_ok=True)
    found = [_fit_arm(job, arm, work, limits, stop, lambda text, arm=arm: say(f"{arm}: {text}")) for arm in arms]  # type: ignore[misc]
    return Fit(reserve_bytes=limits.reserve_bytes, place=Room.of(job.host.inventory).place, arms=found)


def not_found(job: PreparedJob, arms: Sequence[str], why: str) -> Fit:
    """Where there is nothing to say of any arm, with the reason in words."""
    spec = job.offer.spec
    top = top_of(job.target.context_length, spec.engine.context)
    found = [ArmFit(arm=arm, mode=spec.arm(arm).mode, top=top, withheld=why) for arm in arms]
    return Fit(place=Room.of(job.host.inventory).place, arms=found)


def _fit_arm(job: PreparedJob, arm: str, work: Path, limits: Limits, stop: threading.Event, say: Say) -> ArmFit:
    spec = job.offer.spec
    top = top_of(job.target.context_length, spec.engine.context)
    found = ArmFit(arm=arm, mode=spec.arm(arm).mode, top=top)
    guess = largest_context(
        spec.engine, spec.arm(arm), job.target, job.drafts.get(arm), _room_now(job), reserve_bytes=int(limits.reserve_bytes or 0)
    )
    if isinstance(guess, Withheld) and not Room.of(job.host.inventory).on_device:
        said = f"without an estimate a start could take all of the host's memory, and there is none: {guess.withheld}"
        return found.model_copy(update={"withheld": said})
    tries: list[FitTry] = []
    began, longest = time.monotonic(), 0.0
    while (context := next_context(tries, top, guess if isinstance(guess, int) else None, limits.starts)) is not None:
        if stop.is_set():
            raise Stopped
        if tries and time.monotonic() - began + longest > limits.seconds:
            break
        say(f"{context:,} tokens per slot")
        try:
            tries.append(_try(job, arm, context, work, limits, stop))
        except SpecWebError as error:
            return found.model_copy(update={"tries": tries, "withheld": f"with {context:,} tokens per slot: {error.message}"})
        longest = max(longest, tries[-1].seconds)
    return found.model_copy(update={"tries": tries})


def _room_now(job: PreparedJob) -> Room:
    """Of a host that computes itself: what is free at this moment."""
    room = Room.of(job.host.inventory)
    return room if room.on_device else replace(room, n_bytes=psutil.virtual_memory().available)


def _try(job: PreparedJob, arm: str, context: int, work: Path, limits: Limits, stop: threading.Event) -> FitTry:
    """Raises what is no matter of memory."""
    room, spec = _room_now(job), job.offer.spec
    if not room.on_device:
        needed = estimate_arm(spec.engine, spec.arm(arm), job.target, job.drafts.get(arm), on_device=False, context=context)
        left = room.n_bytes - (0 if isinstance(needed, Withheld) else needed.total)
        if left < (limits.reserve_bytes or 0):
            return FitTry(context=context, loads=False, started=False, why=_too_little(left, limits, "by the estimate"))
    began = time.monotonic()
    asked = replace(job, offer=job.offer.model_copy(update={"spec": _with_context(job, context)}))
    with tempfile.TemporaryDirectory(dir=work, prefix="fit-") as folder:
        try:
            with arm_engine.standing(asked, arm, Path(folder), stop) as there:
                _ask(asked, there, stop)
                free = _free_now(job, there)
        except EngineOutOfMemory as error:
            return FitTry(context=context, loads=False, why=f"out of memory: {error.message}"[:300], seconds=time.monotonic() - began)
        log = job.dialect.parse_log(read_log(there.log))  # which is whole once the engine has gone
    why = ""
    if limits.reserve_bytes is not None and free is None:
        raise ProbeFailed("what is left free of memory is not known here", remedy="Leave the reserve out, or mend the sensor.")
    if limits.reserve_bytes is not None and free is not None and free < limits.reserve_bytes:
        why = _too_little(free, limits, "as measured")
    return FitTry(
        context=context,
        loads=not why,
        why=why,
        seconds=time.monotonic() - began,
        free_bytes=free,
        memory_mib=log.memory_mib,
        devices=log.devices,
    )


def _too_little(left: float, limits: Limits, how: str) -> str:
    reserve = size(limits.reserve_bytes or 0)
    return f"{size(left)} would be left free, {how}; {reserve} must stay" if left > 0 else f"more than is free, {how}; {reserve} must stay"


def _with_context(job: PreparedJob, context: int) -> ExperimentSpec:
    spec = job.offer.spec
    return spec.model_copy(update={"engine": spec.engine.model_copy(update={"context": context})})


def _ask(job: PreparedJob, there: arm_engine.Standing, stop: threading.Event) -> None:
    """One short answer: some builds run out of memory at their first request only. Raises why there is none."""
    spec = job.offer.spec
    item = job.workloads[spec.points[0].workload].items[0]
    request = request_of(job.dialect, _ANSWER_TOKENS, Sampling(), item.id, item.opening, spec.seed)
    done = run_load(Target(*there.at), [request], Closed(1, 1), timeout_s=spec.engine.probe_timeout_s, stop=stop)
    if stop.is_set():
        raise Stopped
    _, problem = answer_of(done.exchanges[0])
    ended = there.engine.ended(timeout_s=1.0 if problem else 0.0)
    if ended is not None:
        fault = job.dialect.memory_fault(read_log(there.log), ended.exit_code, kernel_oom=there.engine.kernel_oom())
        raise fault or ProbeFailed(f"the engine ended at its first request: {problem}")
    if problem:
        raise ProbeFailed(f"its first request failed: {problem}")


def _free_now(job: PreparedJob, there: arm_engine.Standing) -> float | None:
    pids = process_tree(there.engine.pid)
    devices, held = job.host.gpus.sample(pids, processes=True, rates=False)
    now = Sample(at_s=0, phase=PHASE, available_bytes=psutil.virtual_memory().available, device_bytes=held, devices=devices)
    if Room.of(job.host.inventory).on_device:
        return free_on_devices([now], {uuid for uuid, n in held.items() if n})
    return free_in_host([now])

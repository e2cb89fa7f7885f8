"""What a good colleague would say of an experiment before it runs: nothing here refuses it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from . import early, memory_needs, occupancy, preflight
from .dealing import warmup_shares
from .estimate import reading_s
from .fit import MOST_STARTS
from .integrity import FEW_PROMPTS
from .inventory import HostInventory, ModelInfo, RuntimeInfo
from .quality import LEAST_TO_HOLD
from .reading import longest_turn
from .settling import window_size
from .spec import BASELINE_MODE, MODES_BESIDE, Arm, ExperimentSpec, SpecProblem
from .stats import MIN_BLOCKS
from .throughput import is_same_work
from .workload import Workload

CAUTION = "caution"
#: Below it intervals are wide; below MIN_BLOCKS nothing is said of speed.
USUAL_BLOCKS = 5
#: Lookup and draft lengths that llama-server takes unless told otherwise, by mode.
_NGRAM_DEFAULTS = {"ngram-simple": (12, 48), "ngram-map-k": (12, 48), "ngram-map-k4v": (12, 48), "ngram-mod": (24, 64)}
_SHORT_ANSWER = 128


@dataclass(frozen=True)
class Place:
    """A host that the experiment would go to, with the models that it has there."""

    name: str
    inventory: HostInventory
    target: ModelInfo
    drafts: Mapping[str, ModelInfo]  # arm: its helper model
    runtime: RuntimeInfo | None = None  # the engine build that would run it there


def cautions(spec: ExperimentSpec, workloads: Mapping[str, Workload], places: Iterable[Place] = ()) -> list[SpecProblem]:
    """``workloads`` are keyed as the points name them. Each caution names its field, so that a form can put it there."""
    found = [
        *_of_blocks(spec),
        *(caution("sequential", words) for words in early.cautions(spec)),
        *_of_points(spec, workloads),
        *_of_quality(spec, workloads),
        *_of_loads(spec, workloads),
        *_of_paces(spec, workloads),
        *_of_arms(spec),
        *_of_engine(spec),
        *_of_requirements(spec),
        *_of_tasks(spec, workloads),
        *(caution(field, words) for field, words in occupancy.cautions(spec)),
    ]
    for place in places:
        found += _of_place(spec, place)
    return found


def caution(field: str, message: str) -> SpecProblem:
    return SpecProblem(field=field, message=message, code=CAUTION)


def _of_blocks(spec: ExperimentSpec) -> Iterator[SpecProblem]:
    n = spec.blocks
    if n < MIN_BLOCKS:
        yield caution("blocks", f"with {n} of them nothing will be said about speed: that needs {MIN_BLOCKS}, and {USUAL_BLOCKS} are usual")
    elif n < USUAL_BLOCKS:
        yield caution("blocks", f"with {n} of them the intervals are wide: {USUAL_BLOCKS} are usual")


def _of_points(spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> Iterator[SpecProblem]:
    for i, point in enumerate(spec.points):
        workload = workloads.get(point.workload)
        there = len(workload.items) if workload else 0
        n = min(there, spec.blocks * point.n_requests)
        if workload and n < FEW_PROMPTS:
            more = "take more blocks or probes" if there >= FEW_PROMPTS else f"{workload.ref} has no more than {there}"
            words = f"{n} different prompt{'' if n == 1 else 's'} will be asked, so the answer holds for these only; {FEW_PROMPTS} are needed for the kind of work: {more}"
            yield caution(f"points.{i}.probes" if there >= FEW_PROMPTS else f"points.{i}.workload", words)


def _of_quality(spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> Iterator[SpecProblem]:
    """Quality that must be shown held needs prompts: equal answers to fewer show nothing."""
    if spec.requirements.quality != "held":
        return
    for i, point in enumerate(spec.points):
        workload = workloads.get(point.workload)
        n = min(len(workload.items), spec.blocks * point.n_requests) if workload else LEAST_TO_HOLD
        if n < LEAST_TO_HOLD:
            words = (
                f"quality must be shown held, which takes {LEAST_TO_HOLD} different prompts at the least; {n} will be asked here, so that no "
                "arm can be kept: take more probes or blocks, or a longer workload"
            )
            yield caution(f"points.{i}.probes", words)


def _of_loads(spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> Iterator[SpecProblem]:
    """Of points with several requests at once."""
    for i, point in enumerate(spec.points):
        workload = workloads.get(point.workload)
        if point.concurrency == 1 or workload is None:
            continue
        n = len(workload.warmup)
        if n < point.concurrency and spec.warmup.mode == "fixed":
            words = f"{point.concurrency} at once are warmed up with {n} requests, since {workload.ref} has no more warm-up prompts"
            yield caution(f"points.{i}.concurrency", words)
        asked_again = point.sampling.temperature == 0 and spec.second_look == "once"
        checked = any(item.check for item in workload.items)
        if checked and not asked_again and not any(p.concurrency == 1 and is_same_work(p, point) for p in spec.points):
            words = "whether answers stay right under load shows only beside the same work one request at a time: add a point with concurrency 1"
            yield caution(f"points.{i}.concurrency", words)


def _of_paces(spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> Iterator[SpecProblem]:
    """Of warm-up until settled, of warm points, and of requests by the clock."""
    shares = warmup_shares(spec, workloads) if spec.warmup.mode == "settled" else {}
    for i, point in enumerate(spec.points):
        most = shares.get(point.key, 0)
        if most and window_size(point, most) < point.concurrency:
            words = f"{point.concurrency} at once are warmed up with {window_size(point, most)} at once, since {point.workload} has no more warm-up prompts"
            yield caution(f"points.{i}.concurrency", words)
        elif most and most < spec.warmup.most and point.concurrency == 1:
            words = f"at most {most} of the {spec.warmup.most} warm-up requests can be asked, since {point.workload} has no more warm-up prompts"
            yield caution("warmup.most", words)
        if point.warm and not spec.engine.prefix_cache:
            words = "without the prefix cache a repeat is read anew: what is warm then is only what a drafter remembers"
            yield caution(f"points.{i}.warm", words)
        if point.rate_per_s is not None and spec.engine.slots == 1:
            words = "the engine has one slot, so that requests by the clock wait for each other: their latency is mostly the queue's"
            yield caution(f"points.{i}.rate_per_s", words)


def _of_arms(spec: ExperimentSpec) -> Iterator[SpecProblem]:
    shortest = min(p.max_tokens for p in spec.points)
    for i, arm in enumerate(spec.arms):
        if arm.draft_limit is not None and arm.draft_limit >= shortest:
            words = (
                f"drafts of {arm.draft_limit} tokens are as long as an answer of at most {shortest}: what is drafted beyond its end is lost"
            )
            yield caution(f"arms.{i}.draft_limit", words)
        yield from _of_ngram(i, arm, max(p.max_tokens for p in spec.points))


def _of_ngram(i: int, arm: Arm, longest: int) -> Iterator[SpecProblem]:
    drafter = next((d for d in arm.drafters if d in _NGRAM_DEFAULTS), None)
    if drafter is not None and arm.ngram_size is None and longest <= _SHORT_ANSWER:
        looked_up, drafted = _NGRAM_DEFAULTS[drafter]
        limit = arm.draft_limit if drafter == arm.mode else arm.also_limit
        drafted = drafted if limit is None else limit
        words = f"unset, the engine looks for {looked_up} equal tokens and drafts {drafted}: answers of {longest} tokens seldom repeat that much; try 4"
        yield caution(f"arms.{i}.ngram_size", words)


def _of_engine(spec: ExperimentSpec) -> Iterator[SpecProblem]:
    if spec.fit:
        n = sum(not a.control for a in spec.arms)
        words = f"after the blocks up to {MOST_STARTS} more starts for each of {n} arms, of which the minutes say nothing"
        yield caution("fit", words)
    if spec.engine.prefix_cache and not all(p.warm for p in spec.points):
        words = (
            "prompts that begin alike are then not read again: a probe that hits the cache is no cold one, and its trial is called invalid"
        )
        yield caution("engine.prefix_cache", words)


def _of_requirements(spec: ExperimentSpec) -> Iterator[SpecProblem]:
    """Of what even the baseline could not hold with these settings."""
    asked, engine = spec.requirements, spec.engine
    for name, needed, given in (("context", asked.context, engine.context), ("slots", asked.slots, engine.slots)):
        if needed is not None and needed > given:
            words = f"engine.{name} is {given:,}, so that no arm can offer the {needed:,} that are asked for, and none can be kept"
            yield caution(f"requirements.{name}", words)


def _of_place(spec: ExperimentSpec, place: Place) -> Iterator[SpecProblem]:
    offered = place.inventory
    if spec.engine.threads is not None and spec.engine.threads >= offered.n_cores and offered.devices[0].kind == "cpu":
        words = (
            f"{spec.engine.threads} threads leave no core of {place.name} ({offered.n_cores}) to the client that measures: leave one free"
        )
        yield caution("engine.threads", words)
    for field, model in [("engine.context", place.target), *(("engine.context", m) for m in place.drafts.values())]:
        if model.context_length is not None and spec.engine.context > model.context_length:
            words = f"{model.alias} on {place.name} was trained for {model.context_length:,} tokens: the engine may give a slot no more than that"
            yield caution(field, words)
            break
    yield from _of_memory(spec, place)
    yield from _of_template(spec, place)
    yield from _of_reading(spec, place)
    for i, arm in enumerate(spec.arms):
        if words := _too_long_to_take_back(spec, arm, place):
            yield caution(f"arms.{i}.mode", words)
        draft = place.drafts.get(arm.name)
        if draft and (words := preflight.warning(place.target, draft, arm.mode, place.runtime, translated=preflight.translates(arm))):
            yield caution(f"arms.{i}.draft_model", f"{words} (on {place.name})")


def _too_long_to_take_back(spec: ExperimentSpec, arm: Arm, place: Place) -> str:
    """llama-server keeps as many states of such a model as its own head drafts; behind a longer draft it begins anew from a kept one."""
    shape = place.target.memory
    if spec.runtime.engine != "llama-server" or shape is None or not any(b.state for b in shape.blocks):
        return ""
    beside = [d for d in arm.drafters if d in MODES_BESIDE]
    limit = arm.also_limit if arm.also else arm.draft_limit
    if not beside or (arm.mode == "mtp" and limit is not None and arm.draft_limit is not None and limit <= arm.draft_limit):
        return ""
    held = "keep also_limit within draft_limit" if arm.mode == "mtp" else "put it beside mtp, with also_limit within draft_limit"
    return (
        f"layers of {place.target.alias} carry a state, and where a draft of {beside[0]} is accepted in part, the engine goes back to a kept "
        f"state and reads the accepted tokens again: a further pass of the target each time; to do without, {held}"
    )


def _of_reading(spec: ExperimentSpec, place: Place) -> Iterator[SpecProblem]:
    on_gpu = place.inventory.devices[0].kind == "gpu"
    for i, point in enumerate(spec.points):
        low, high = reading_s(point.occupied_context, model_bytes=place.target.size_bytes, on_gpu=on_gpu)
        if math.sqrt(low * high) > spec.engine.probe_timeout_s:
            words = (
                f"{place.name} may need {low / 60:,.0f} to {high / 60:,.0f} minutes to read so much context, and an answer must be whole "
                f"within {spec.engine.probe_timeout_s:g} s (a guess by the model's size): raise engine.probe_timeout_s"
            )
            yield caution(f"points.{i}.occupied_context", words)


def _of_tasks(spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> Iterator[SpecProblem]:
    for i, point in enumerate(spec.points):
        workload = workloads.get(point.workload)
        if workload is None:
            continue
        longest = max(longest_turn(item, point.max_tokens) for item in (*workload.items, *workload.warmup))
        longest += point.occupied_context if workload.is_task else 0  # a single prompt is part of what is filled
        if longest > spec.engine.context:
            what = "turn" if workload.is_task else "prompt with its answer"
            words = f"its longest {what} takes about {longest:,.0f} tokens of context, and engine.context is {spec.engine.context:,}"
            yield caution(f"points.{i}.workload", words)
        if point.thinking is None and any(item.history for item in workload.items):
            words = "its prompts are chats; without thinking true or false their messages are sent as bare text, not by the model’s chat template"
            yield caution(f"points.{i}.thinking", words)


def _of_template(spec: ExperimentSpec, place: Place) -> Iterator[SpecProblem]:
    for i, point in enumerate(spec.points):
        if point.thinking is not None and not place.target.chat_template_hash:
            words = (
                f"{place.target.alias} on {place.name} has no chat template: the host will refuse the job, unless engine.extra gives one"
            )
            yield caution(f"points.{i}.thinking", words)


def _of_memory(spec: ExperimentSpec, place: Place) -> Iterator[SpecProblem]:
    """What should be needed against what is there; where that can't be told, the files alone, to which cache and buffers come."""
    told = memory_needs.needs(spec, place.inventory, place.target, place.drafts)
    yield from (caution(*words) for words in memory_needs.too_large(spec, told, place.name))
    if all(need.fits is not None for need in told):
        return
    device = place.inventory.devices[0]
    room = sum(d.memory_bytes for d in place.inventory.devices) if device.kind == "gpu" else place.inventory.memory_bytes
    what = "its GPU memory" if device.kind == "gpu" else "its memory"
    if place.target.size_bytes > room:
        yield caution("target.model", f"{place.target.alias} has {_gib(place.target.size_bytes)}, {what} on {place.name} {_gib(room)}")
        return
    for i, arm in enumerate(spec.arms):
        draft = place.drafts.get(arm.name)
        if arm.mode != BASELINE_MODE and draft and place.target.size_bytes + draft.size_bytes > room:
            both = _gib(place.target.size_bytes + draft.size_bytes)
            yield caution(f"arms.{i}.draft_model", f"target and helper have {both} together, {what} on {place.name} {_gib(room)}")


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.3g} GiB"

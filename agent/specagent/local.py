"""Runs an experiment on this machine with no server: the same plan, trials, measurements and analysis, into a folder."""

from __future__ import annotations

import json
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from speccore import attached, budget, compare, engines, heads, model_formats, outages, plan, preflight, quality, selfrun
from speccore.canonical import sha256_of
from speccore.errors import ErrorBody, SpecError, SpecWebError, UnknownModel
from speccore.inventory import HostInventory, ModelInfo
from speccore.measurement import AttemptMeasurement, JobAnalysis
from speccore.noise_floor import KnownFloor
from speccore.protocol import AttemptReport, Finished, JobOffer, Running, TrialPlan
from speccore.rendering import render
from speccore.selfrun import ANALYSIS, INVENTORY, JOB, RUN, WORKLOADS, RunAttempt, RunIndex
from speccore.spec import ExperimentSpec, parse_spec, problem_lines
from speccore.workload import Workload
from speccore.yamltext import read_yaml

from . import __version__, evidence, runner, siblings
from .inventory import Host, chosen_runtime, nearest
from .looks import FolderLooks
from .sinks import FolderSink


@dataclass(frozen=True)
class LocalRun:
    """What came of it. ``analysis`` is None if the job failed or was stopped. ``n_blocks`` were run whole; fewer than planned
    where the time was up, and then ``cut_short`` says so in words, or where early looks decided arms (``decided``: arm → block)."""

    offer: JobOffer
    finished: Finished
    analysis: JobAnalysis | None
    reports: list[AttemptReport]
    n_blocks: int = 0
    cut_short: str = ""
    decided: dict[str, int] = field(default_factory=dict)


class BlockClock:
    """Holds a run to its time: asked before each trial, it says no where a block begins that would not end in time."""

    def __init__(self, budget_s: float | None, n_blocks: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget_s, self._n_blocks, self._clock = budget_s, n_blocks, clock
        self._began = clock()
        self._block_began: dict[int, float] = {}
        self._seconds: list[float] = []
        self.decision = budget.Decision(start=True)

    def may_start(self, trial: TrialPlan) -> bool:
        now = self._clock()
        if trial.block not in self._block_began:
            if self._block_began:
                self._seconds.append(now - max(self._block_began.values()))
            if self._budget_s is not None:
                self.decision = budget.next_block(self._budget_s, now - self._began, self._seconds, self._n_blocks)
            if self.decision.start:
                self._block_began[trial.block] = now
        return self.decision.start


def read_spec(path: Path) -> ExperimentSpec:
    """Reads an experiment. Raises :class:`SpecError` that names every fault: field, what is wrong, value."""
    try:
        data = read_yaml(path.read_bytes())
    except OSError as error:
        raise SpecError(f"{path} can't be read: {error.strerror}", remedy="Name a file that is there.") from error
    except ValueError as error:
        raise SpecError(f"{path} is no valid YAML: {error}", remedy="Correct the file.") from error
    spec, problems = parse_spec(data)
    if spec is None:
        raise SpecError("\n".join([f"{path} is no valid experiment:", *problem_lines(problems)]), remedy="Correct what the lines name.")
    return spec


def make_offer(spec: ExperimentSpec, host: Host, workloads: Mapping[str, Workload]) -> JobOffer:
    """A job as the server would offer it, for this host. Raises what stands in the way, with every refused arm named."""
    target = _model(spec.target.model, "target.model", host.inventory)
    drafts = {a.name: _model(name, f"arm {a.name!r}: draft_model", host.inventory) for a in spec.arms if (name := attached.helper(spec, a))}
    runtime = chosen_runtime(spec, host.inventory.runtimes)
    offer = JobOffer(
        job_id=str(uuid.uuid4()),
        experiment_id="",
        lease=0,
        lease_token="",
        spec=spec,
        plan=plan.plan_job(spec, workloads),
        runtime_hash=runtime.manifest_hash,
        target_hash=target.manifest_hash,
        draft_hashes={arm: model.manifest_hash for arm, model in drafts.items()},
        device_uuids=[d.uuid for d in host.inventory.devices],
    )
    refusals = refusals_by_arm(spec, host, runtime.manifest_hash)
    for arm, unread in model_formats.refusals(target, drafts, runtime).items():
        refusals.setdefault(arm or spec.baseline.name, []).append(unread)
    for arm, headless in heads.refusals(spec, target, drafts, runtime).items():
        refusals.setdefault(arm, []).append(headless)
    for arm, draft in drafts.items():
        if unfit := preflight.refusal(target, draft, spec.arm(arm).mode, runtime, translated=preflight.translates(spec.arm(arm))):
            refusals.setdefault(arm, []).append(unfit)
    if refusals:
        lines = [_refusal_line(arm, refused) for arm, of_arm in refusals.items() for refused in of_arm]
        raise SpecError("\n".join(["this host can't run the experiment:", *lines]), remedy="")
    return offer


def _refusal_line(arm: str, refused: ErrorBody) -> str:
    """One line that names its arm once, whether or not the refusal's own words begin with it."""
    line = f"  arm {arm!r}: {refused.message.removeprefix(f'arm {arm!r}: ').rstrip('.')}"
    return f"{line}. {refused.remedy}" if refused.remedy else line


def doubts(spec: ExperimentSpec, inventory: HostInventory) -> list[str]:
    """What a colleague would say of the pairs of models before they are started; of what is missing here nothing."""
    models = {name: m for m in inventory.models for name in (m.alias, m.manifest_hash)}
    target = models.get(spec.target.model)
    try:
        runtime = chosen_runtime(spec, inventory.runtimes)
    except SpecWebError:
        return []
    pairs = [(arm, models[name]) for arm in spec.arms if (name := attached.helper(spec, arm)) in models]
    found = (
        [preflight.warning(target, draft, arm.mode, runtime, translated=preflight.translates(arm)) for arm, draft in pairs]
        if target
        else []
    )
    return list(dict.fromkeys(words for words in found if words))


def refusals_by_arm(spec: ExperimentSpec, host: Host, runtime_hash: str) -> dict[str, list[ErrorBody]]:
    """What this build or host can't do, for each arm that has such."""
    info = host.runtime(runtime_hash).info
    threads = spec.engine.threads or host.inventory.default_threads()
    found = {}
    for arm in spec.arms:
        rendered = render(info, spec.engine, arm, engines.SYMBOLIC, allowed_flags=host.inventory.allowed_flags, threads=threads)
        if rendered.refusals:
            found[arm.name] = list(rendered.refusals)
    return found


def run_local(
    spec: ExperimentSpec,
    host: Host,
    workloads: Mapping[str, Workload],
    out: Path,
    stop: threading.Event,
    tell: Callable[[Running], None],
    on_attempt: Callable[[AttemptReport], None],
    on_planned: Callable[[int], None] = lambda n_trials: None,
    *,
    budget_s: float | None = None,
    on_look: Callable[[str, int], None] = lambda text, n_spared: None,
) -> LocalRun:
    """Plans, runs, measures and compares. ``workloads`` are keyed as the points name them. Leaves all files under ``out``.

    With ``budget_s`` no block begins that would not end in that many seconds. ``on_look`` hears of each arm that is decided early,
    and how many starts that spares.
    """
    offer = make_offer(spec, host, workloads)
    used = {name: workloads[name] for name in offer.plan.workloads}
    evidence.write_json(out / JOB, offer)
    evidence.write_json(out / INVENTORY, host.inventory)
    evidence.write_whole(out / WORKLOADS, _json({name: w.model_dump(mode="json") for name, w in used.items()}))
    return _run(offer, used, host, out, stop, tell, on_attempt, on_planned, budget_s, on_look)


def resume_local(
    host: Host,
    out: Path,
    stop: threading.Event,
    tell: Callable[[Running], None],
    on_attempt: Callable[[AttemptReport], None],
    on_planned: Callable[[int], None] = lambda n_trials: None,
    *,
    budget_s: float | None = None,
    on_look: Callable[[str, int], None] = lambda text, n_spared: None,
) -> LocalRun:
    """Goes on with a run that was stopped, killed or out of time: whole blocks are kept, one that was begun is run anew.

    Raises :class:`SpecError` if the folder holds no run, or the machine is another than it was.
    """
    if not (out / JOB).exists():
        raise SpecError(f"{out} holds no run", remedy="Name the folder that specweb-agent run has left.")
    try:
        offer = JobOffer.model_validate(read_json(out / JOB))
        before = HostInventory.model_validate(read_json(out / INVENTORY))
        workloads = {name: Workload.model_validate(w) for name, w in read_json(out / WORKLOADS).items()}
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise SpecError(f"the run in {out} can't be read: {where}: {first['msg']}", remedy="Begin it anew in another folder.") from error
    if changed := [name for name in _SAME_MACHINE if getattr(before, name) != getattr(host.inventory, name)]:
        said = ", ".join(name.replace("_", " ") for name in changed)
        raise SpecError(f"the machine is not as it was when the run began: {said} changed", remedy="Begin it anew in another folder.")
    (out / RUN).unlink(missing_ok=True)
    return _run(offer, workloads, host, out, stop, tell, on_attempt, on_planned, budget_s, on_look)


#: Of the inventory, what must not change between the blocks of a run.
_SAME_MACHINE = ("cpu_model", "n_cores", "memory_bytes", "engine_threads", "devices", "os", "allowed_flags")


def _run(
    offer: JobOffer,
    workloads: Mapping[str, Workload],
    host: Host,
    out: Path,
    stop: threading.Event,
    tell: Callable[[Running], None],
    on_attempt: Callable[[AttemptReport], None],
    on_planned: Callable[[int], None],
    budget_s: float | None,
    on_look: Callable[[str, int], None],
) -> LocalRun:
    sink = FolderSink(out, on_attempt)
    looks = FolderLooks(offer, workloads, lambda: counted(offer, sink), on_look)
    looks.recall()
    left = _what_is_left(offer, [report for report, _ in sink.done], looks.decided)
    spared = plan.not_needed(offer.spec, offer.plan, selfrun.outcomes(offer, [report for report, _ in sink.done]), looks.decided)
    on_planned(len(offer.plan.trials) - len({*left.done_trials, *spared}))
    job = runner.prepare(left, workloads, host)
    work = out / "work"
    shutil.rmtree(work, ignore_errors=True)
    clock, started_at = BlockClock(budget_s, offer.spec.blocks), datetime.now(UTC)
    finished = runner.run_job(job, work, sink, stop, tell, may_start=clock.may_start, looks=looks)
    if work.exists() and not any(work.iterdir()):
        work.rmdir()
    reports = [report for report, _ in sink.done]
    analysis = None
    if finished.outcome == "completed":
        floors = _floors(offer, host, out, sink)
        analysis = analyse(offer, workloads, sink, looks, floors)
        evidence.write_json(out / ANALYSIS, analysis)
    n_blocks = selfrun.whole_blocks(offer, reports, looks.decided)
    started_at = min([started_at, *(r.started_at for r in reports)])
    _write_index(out, finished, sink, started_at, budget_s, n_blocks, looks.decided)
    return LocalRun(offer, finished, analysis, reports, n_blocks, clock.decision.why_not, dict(looks.decided))


def _what_is_left(offer: JobOffer, reports: list[AttemptReport], decided: Mapping[str, int]) -> JobOffer:
    """The job without its whole blocks; those that were begun and broke off are run whole once more."""
    if not reports:
        return offer
    blocks = {t.id: t.block for t in offer.plan.trials}
    unfinished = {t.block for t, _ in plan.next_trials(offer.spec, offer.plan, selfrun.outcomes(offer, reports), decided)}
    runs: dict[int, int] = {}
    for report in reports:
        block = blocks[report.trial]
        runs[block] = max(runs.get(block, 1), report.block_run)
    again = {block: run + (block in unfinished) for block, run in runs.items()}
    return offer.model_copy(
        update={
            "done_trials": [trial for trial, block in blocks.items() if block not in unfinished],
            "block_runs": {block: run for block, run in again.items() if run > 1},
            "decided": dict(decided),
        }
    )


def _write_index(
    out: Path,
    finished: Finished,
    sink: FolderSink,
    started_at: datetime,
    budget_s: float | None,
    n_blocks: int,
    decided: Mapping[str, int],
) -> None:
    """``run.json``: the run has ended, and this belongs to it."""
    index = RunIndex(
        job_id=finished.job_id,
        outcome=finished.outcome,
        error=finished.error,
        agent_version=__version__,
        started_at=started_at,
        ended_at=datetime.now(UTC),
        budget_s=budget_s,
        n_blocks=n_blocks,
        decided=dict(decided),
        documents=selfrun.document_hashes(*(read_json(out / name) for name in (JOB, INVENTORY, WORKLOADS))),
        attempts=[
            RunAttempt(attempt_id=r.attempt_id, trial=r.trial, n=r.n, sha256=sha256_of(read_json(folder / "report.json")))
            for r, folder in sink.done
        ],
    )
    evidence.write_json(out / RUN, index)


def read_json(path: Path) -> Any:
    """Raises OSError, or :class:`SpecError` for what is no JSON."""
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise SpecError(f"{path} is no JSON: {error}", remedy="Restore the file from a copy.") from error


def _json(data: Any) -> bytes:
    return json.dumps(data, indent=1, ensure_ascii=False).encode() + b"\n"


def _floors(offer: JobOffer, host: Host, out: Path, sink: FolderSink) -> dict[str, KnownFloor]:
    """By the runs beside this one. A run that stops early knows none: its looks have decided without."""
    if offer.spec.sequential:
        return {}
    trials = {t.id: t for t in offer.plan.trials}
    good = [trials[report.trial] for report, _ in counted(offer, sink) if report.outcome == "ok"]
    n_blocks = len({t.block for t in good if t.arm == offer.spec.baseline.name})
    return siblings.floors(out.parent, offer, host.inventory, n_blocks, datetime.now(UTC), without=out)


def analyse(
    offer: JobOffer,
    workloads: Mapping[str, Workload],
    sink: FolderSink,
    looks: FolderLooks | None = None,
    floors: Mapping[str, KnownFloor] | None = None,
) -> JobAnalysis:
    """Measures the evidence that the sink has and compares the arms, as the server would. ``looks`` may have measured some of it."""
    looks = looks or FolderLooks(offer, workloads, lambda: counted(offer, sink))
    measured: list[AttemptMeasurement] = []
    failures: list[outages.TrialFailure] = []
    trials = {t.id: t for t in offer.plan.trials}
    answers: list[quality.TrialAnswers] = []
    for report, folder in counted(offer, sink):
        if report.outcome == "ok":
            measured.append(looks.measurement(report, folder))
            answers.append(quality.read_answers(evidence.read(folder), offer.spec, trials[report.trial]))
        elif report.error:
            trial = trials[report.trial]
            failures.append(
                outages.TrialFailure(
                    trial=report.trial,
                    arm=trial.arm,
                    block=trial.block,
                    code=report.error.code,
                    message=report.error.message,
                    oom=report.error.code == "engine_out_of_memory",
                )
            )
    n_hashes = sum(len(report.evidence) for report, _ in sink.done)
    changed = _changed(sink)
    return compare.analyse_job(
        offer.spec,
        offer.plan,
        measured,
        failures,
        compare.JobFacts(
            floors=dict(floors or {}),
            shares_cores=False,
            hashes_verified=not changed,
            n_hashes=n_hashes,
            hash_problem=f"changed since they were measured: {', '.join(changed)}" if changed else "",
            decided=dict(looks.decided),
        ),
        workloads=workloads,
        answers_read=answers,
    )


def counted(offer: JobOffer, sink: FolderSink) -> list[tuple[AttemptReport, Path]]:
    """The attempts without those of blocks that were torn apart and run whole once more."""
    block_of = {t.id: t.block for t in offer.plan.trials}
    last_run: dict[int, int] = {}
    for report, _ in sink.done:
        last_run[block_of[report.trial]] = max(last_run.get(block_of[report.trial], 1), report.block_run)
    return [(report, folder) for report, folder in sink.done if report.block_run == last_run[block_of[report.trial]]]


def _changed(sink: FolderSink) -> list[str]:
    """``records.jsonl of b1-off``: files that are not what their report says, are gone, or are not in it."""
    found = []
    for report, folder in sink.done:
        there, told = ({ref.name: ref for ref in refs} for refs in (evidence.refs(folder), report.evidence))
        found += [f"{name} of {report.trial}" for name in sorted({*there, *told}) if there.get(name) != told.get(name)]
    return found


def _model(name: str | None, field: str, inventory: HostInventory) -> ModelInfo:
    """By alias, or by the hash of its manifest. Raises :class:`UnknownModel` with near names."""
    wanted = name or ""
    for model in inventory.models:
        if wanted in (model.alias, model.manifest_hash):
            return model
    there = ", ".join(m.alias for m in inventory.models) or "none"
    raise UnknownModel(
        f"{field}: no model {wanted!r} on this host{nearest(wanted, [m.alias for m in inventory.models])}; models here: {there}",
        remedy="Add the file to the agent's configuration under models, or name one that is there.",
        field=field,
        value=wanted,
    )

"""A run without a server, as it is kept in a folder and as it is uploaded later: ``run.json``, the message, and what must hold of it.

Documents travel as they lie on disk, so that each has one hash (SHA-256 of its canonical JSON), whatever release reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, ValidationError

from .canonical import sha256_of
from .errors import ErrorBody, SpecError
from .inventory import HostInventory, Peer
from .plan import TrialOutcome, next_trials, plan_job
from .protocol import PROTOCOL, AttemptReport, JobOffer, Moment
from .spec import ExperimentSpec
from .stats import MIN_BLOCKS
from .workload import Workload

#: Files of a run's folder beside its attempts.
RUN, JOB, INVENTORY, WORKLOADS, ANALYSIS, REPORT = "run.json", "job.json", "inventory.json", "workloads.json", "analysis.json", "report.md"
#: The lease of a job that no server granted.
NO_LEASE = 0


class RunInvalid(SpecError):
    """A run that can't be taken as it is. ``details.problems`` names everything that is wrong."""

    code = "run_invalid"
    retry = False
    remedy = "A run is taken as it was measured, or not at all: restore its folder from a copy, or run the experiment again."


class RunAttempt(Peer):
    """An attempt that the run made. ``sha256`` is of its report's canonical JSON, which names every evidence file with its hash."""

    attempt_id: str
    trial: str
    n: int = Field(ge=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class RunIndex(Peer):
    """``run.json``, written when a run has ended: what belongs to it. ``attempts`` in the order in which they ended."""

    protocol: int = PROTOCOL
    job_id: str
    outcome: Literal["completed", "failed", "cancelled"]
    error: ErrorBody | None = None
    agent_version: str = ""
    started_at: Moment
    ended_at: Moment
    budget_s: float | None = None
    n_blocks: int = 0  # that were run whole
    decided: dict[str, int] = {}  # by early looks: arm → the block after which it was not started again
    documents: dict[str, str]  # file: SHA-256 of its canonical JSON
    attempts: list[RunAttempt] = Field(max_length=100_000)


class RunUpload(Peer):
    """The message of an upload; the evidence files go before it, each under its hash. ``team``: its slug; '' where there is but one."""

    protocol: int = PROTOCOL
    team: str = ""
    visibility: Literal["team", "public"] = "team"
    run: RunIndex
    job: dict[str, Any]
    inventory: dict[str, Any]
    workloads: dict[str, dict[str, Any]]  # by the name that points use
    reports: list[dict[str, Any]] = Field(max_length=100_000)


class RunReply(Peer):
    """``created`` is False where the run had been uploaded before."""

    protocol: int = PROTOCOL
    experiment: str
    job: str
    url: str
    created: bool
    n_attempts: int
    n_files: int


@dataclass(frozen=True)
class SelfRun:
    """A run whose documents were read and found to belong together."""

    index: RunIndex
    offer: JobOffer
    inventory: HostInventory
    inventory_hash: str
    workloads: dict[str, Workload]
    reports: list[AttemptReport]

    @property
    def spec(self) -> ExperimentSpec:
        return self.offer.spec


def read_run(upload: RunUpload) -> SelfRun:
    """Decodes a run and checks that it is whole and untouched. Raises :class:`RunInvalid` with every fault."""
    _refuse(_changed_documents(upload))
    problems: list[str] = []
    offer = _decoded(JobOffer, upload.job, JOB, problems)
    if offer is not None:  # what comes anew must hold the rules of today, other than what is stored
        _decoded(ExperimentSpec, upload.job["spec"], f"{JOB}: spec", problems)
    inventory = _decoded(HostInventory, upload.inventory, INVENTORY, problems)
    workloads = {
        name: w for name, raw in upload.workloads.items() if (w := _decoded(Workload, raw, f"{WORKLOADS}: {name}", problems)) is not None
    }
    reports = [r for raw in upload.reports if (r := _decoded(AttemptReport, raw, "a report", problems)) is not None]
    _refuse(problems)
    assert offer is not None
    assert inventory is not None
    run = SelfRun(upload.run, offer, inventory, sha256_of(upload.inventory), workloads, reports)
    _refuse(_foreign(run))
    _refuse(_plan_faults(run))
    _refuse(_gaps(run))
    return run


def document_hashes(job: Any, inventory: Any, workloads: Any) -> dict[str, str]:
    return {JOB: sha256_of(job), INVENTORY: sha256_of(inventory), WORKLOADS: sha256_of(workloads)}


def whole_blocks(offer: JobOffer, reports: Sequence[AttemptReport], decided: Mapping[str, int] | None = None) -> int:
    """How many blocks were begun and need no further attempt."""
    blocks = _blocks(offer)
    left = {t.block for t, _ in next_trials(offer.spec, offer.plan, outcomes(offer, reports), decided)}
    return len({blocks[r.trial] for r in reports} - left)


def outcomes(offer: JobOffer, reports: Sequence[AttemptReport]) -> list[TrialOutcome]:
    """What the attempts say about their trials: those of a block's last run, and none that was cancelled."""
    blocks = _blocks(offer)
    last_run: dict[int, int] = {}
    for r in reports:
        last_run[blocks[r.trial]] = max(last_run.get(blocks[r.trial], 1), r.block_run)
    return [
        TrialOutcome(trial=r.trial, n=r.n, error=None if r.outcome == "ok" else r.error or _unexplained())
        for r in reports
        if r.outcome != "cancelled" and r.block_run == last_run[blocks[r.trial]]
    ]


def _blocks(offer: JobOffer) -> dict[str, int]:
    return {t.id: t.block for t in offer.plan.trials}


def _changed_documents(upload: RunUpload) -> list[str]:
    found = document_hashes(upload.job, upload.inventory, upload.workloads)
    problems = [
        f"{name} is not the one that the run left (its hash is {digest[:12]}…, {RUN} says {upload.run.documents.get(name, 'nothing')[:12]})"
        for name, digest in found.items()
        if upload.run.documents.get(name) != digest
    ]
    told = {a.sha256: a for a in upload.run.attempts}
    sent = [sha256_of(raw) for raw in upload.reports]
    problems += [
        f"the report of {_id_of(raw)} is not one that the run left" for raw, digest in zip(upload.reports, sent) if digest not in told
    ]
    problems += [f"attempt {a.n} at trial {a.trial} is missing" for digest, a in told.items() if digest not in sent]
    if len(set(sent)) < len(sent):
        problems.append("a report is there twice")
    elif not problems and sent != [a.sha256 for a in upload.run.attempts]:
        problems.append("the reports are not in the order in which the attempts ended")
    return problems


def _foreign(run: SelfRun) -> list[str]:
    """What belongs to another job, or to none of its trials."""
    offer = run.offer
    trials = {t.id for t in offer.plan.trials}
    problems = [] if offer.job_id == run.index.job_id else [f"{JOB} is of job {offer.job_id}, {RUN} of {run.index.job_id}"]
    if offer.lease != NO_LEASE:
        problems.append("the job was given out by a server, which has its results already")
    for report in run.reports:
        if (report.job_id, report.lease) != (offer.job_id, offer.lease):
            problems.append(f"attempt {report.attempt_id} is of job {report.job_id}")
        if report.trial not in trials:
            problems.append(f"attempt {report.attempt_id} is at trial {report.trial!r}, which the plan doesn't have")
        if report.protocol != PROTOCOL:
            problems.append(f"attempt {report.attempt_id} was reported in protocol {report.protocol}, {PROTOCOL} is spoken here")
    return problems


def _plan_faults(run: SelfRun) -> list[str]:
    """The plan must be the one that follows from the experiment and its seed: nobody chose prompts or order."""
    offer = run.offer
    hashes = {name: w.content_hash() for name, w in run.workloads.items()}
    if problems := [
        f"workload {name!r} is not the one that the plan was made for" for name, h in offer.plan.workloads.items() if hashes.get(name) != h
    ]:
        return problems
    try:
        planned = plan_job(offer.spec, run.workloads)
    except SpecError as error:
        return [f"the experiment can't be planned: {error.message}"]
    if planned != offer.plan:
        return ["the plan is not the one that follows from the experiment: it was changed, or another release made it"]
    return []


def _gaps(run: SelfRun) -> list[str]:
    """Attempts that a run of this outcome must have and this one hasn't."""
    offer, reports = run.offer, run.reports
    problems = []
    numbers: dict[str, list[int]] = {}
    for r in reports:
        numbers.setdefault(r.trial, []).append(r.n)
    for trial, given in numbers.items():
        if given != list(range(1, len(given) + 1)):
            problems.append(f"the attempts at trial {trial} are numbered {', '.join(map(str, given))}")
    if run.index.outcome == "completed":
        blocks = _blocks(offer)
        begun = {blocks[r.trial] for r in reports}
        left = [t for t, _ in next_trials(offer.spec, offer.plan, outcomes(offer, reports), run.index.decided)]
        owed = [t.id for t in left if run.index.budget_s is None or t.block in begun]
        if owed:
            problems.append(f"trials without an attempt that decides them: {', '.join(owed[:10])}{', …' if len(owed) > 10 else ''}")
    problems += _odd_decisions(offer, run.index.decided)
    if not reports:
        problems.append("the run has no attempt")
    return problems


def _odd_decisions(offer: JobOffer, decided: Mapping[str, int]) -> list[str]:
    """What no early look can have decided. Whether the numbers do decide it is told with the comparison, which has them."""
    if decided and not offer.spec.sequential:
        return ["arms were left out as decided early, and the experiment does not stop early"]
    arms = {a.name for a in offer.spec.arms if not a.is_baseline and not a.control}
    return [
        f"arm {arm!r} was left out as decided after block {block}: "
        + ("early looks decide arms with speculation only" if arm not in arms else f"the first look is after block {MIN_BLOCKS}")
        for arm, block in decided.items()
        if arm not in arms or block < MIN_BLOCKS
    ]


def _decoded(model: type[Any], raw: Any, name: str, problems: list[str]) -> Any:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        problems.append(f"{name} can't be read: {'.'.join(map(str, first['loc']))}: {first['msg']}")
        return None


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise RunInvalid("the run can't be taken: " + "; ".join(problems[:3]) + more, problems=list(problems[:100]))


def _id_of(raw: Mapping[str, Any]) -> str:
    return f"attempt {str(raw.get('attempt_id', '?'))[:36]} at trial {str(raw.get('trial', '?'))[:80]}"


def _unexplained() -> ErrorBody:
    return ErrorBody(code="attempt_failed", message="the attempt failed and named no reason", blame="engine")

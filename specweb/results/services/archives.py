"""Takes an archive that another server made, whole or not at all, as an experiment marked *imported*."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from speccore.errors import EngineError, ErrorBody, NotAllowed, NotPossible, SpecError
from speccore.inventory import HostInventory as Inventory
from speccore.jobstate import JobState
from speccore.protocol import JobPlan
from speccore.spec import ExperimentSpec
from speccore.workload import Workload as WorkloadContent

from specweb import queue
from specweb.accounts.models import Team, User
from specweb.accounts.tokens import new_secret
from specweb.experiments.models import Experiment, HostInventory, Job, Lease, Model, Origin, Runtime, Visibility, Workload
from specweb.experiments.services.hosts import foreign_host
from specweb.experiments.services.jobs import fail_job, move_job
from specweb.experiments.services.submission import seed_workload, store_experiment
from specweb.experiments.text import storable
from specweb.results import archive_format as form
from specweb.results.archive_checks import faults, spec_of
from specweb.results.archive_reading import Archive, ArchiveInvalid, opened
from specweb.results.models import ArchiveImport, Attempt, Blob, EvidenceFile, Trial
from specweb.results.store import forget_files, held_blob, store_blob

from .comparing import compare_job
from .parsing import parse_attempt
from .reports import create_trials

_TIMES = ("queued_at", "claimed_at", "running_at", "stalled_at", "completed_at", "ended_at")


@dataclass(frozen=True)
class TakenArchive:
    """``created`` is False for one that was here before."""

    experiment: Experiment
    created: bool


def take_archive(path: Path, team: Team, user: User | None, now: datetime, visibility: Visibility = Visibility.TEAM) -> TakenArchive:
    """Stores an archive as an experiment of ``team``, without its numbers, which are to be computed anew from the evidence.

    The same archive again is the experiment that it made before. Raises :class:`ArchiveInvalid`; :class:`NotAllowed` or
    :class:`NotPossible` for an experiment that is here otherwise. Nothing is stored then.
    """
    with opened(path) as archive:
        spec = spec_of(archive)
        if problems := list(faults(archive, spec)):
            raise ArchiveInvalid(*problems)
        if known := _known(archive, team):
            return known
        hashes = sorted(archive.evidence)
        before = set(Blob.objects.filter(pk__in=hashes).values_list("pk", flat=True))
        try:
            with transaction.atomic():
                _one_at_a_time(archive)
                if known := _known(archive, team):
                    return known
                return TakenArchive(_Import(archive, spec, team, user, now).store(visibility), created=True)
        except BaseException as error:
            forget_files([sha256 for sha256 in hashes if sha256 not in before])
            if isinstance(error, DatabaseError):
                raise ArchiveInvalid(f"a value in it can't be stored: {str(error).splitlines()[0][:200]}") from error
            raise


def _one_at_a_time(archive: Archive) -> None:
    """Until the transaction ends, no other import of the same experiment goes on: who comes second finds what the first one made."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"archive {archive.experiment.id}"])


def _known(archive: Archive, team: Team) -> TakenArchive | None:
    pk = archive.experiment.id
    found = Experiment.objects.filter(pk=pk).select_related("team").first()
    if found is None:
        taken = Attempt.objects.filter(pk__in=[a.id for a in archive.attempts]).exists()
        if taken or Job.objects.filter(pk__in=[j.id for j in archive.jobs]).exists():
            raise NotAllowed("jobs or attempts of this archive are here already, as those of another experiment")
        return None
    if found.team_id != team.pk:
        raise NotAllowed("this experiment is here already, and not as one of your team", remedy="Ask who imported it.")
    came = ArchiveImport.objects.filter(experiment=found).first()
    if came is None:
        raise NotPossible("this experiment was measured here and needs no import", remedy=f"Look at experiment {pk}.")
    if came.manifest_sha256 != archive.manifest.sha256:
        raise NotPossible(
            "another archive of this experiment was imported before, and what is imported stays as it is",
            remedy="Import it on another server, or as it was then.",
        )
    return TakenArchive(found, created=False)


class _Import:
    def __init__(self, archive: Archive, spec: ExperimentSpec, team: Team, user: User | None, now: datetime) -> None:
        self.archive, self.spec, self.team, self.user, self.now = archive, spec, team, user, now
        server = urlsplit(archive.manifest.server).netloc or archive.manifest.server
        self.server = re.sub(r"[^A-Za-z0-9.:-]+", "-", server)[:50] or "another-server"
        self.by = f"import by {user.get_username()}"[:150] if user else "import"
        self.extensions = [j.id for j in archive.jobs if j.extends]

    def store(self, visibility: Visibility) -> Experiment:
        archive, told = self.archive, self.archive.experiment
        workloads = {name: self._workload(name, w) for name, w in archive.workloads.items()}
        for sha256 in sorted(archive.evidence):
            if held_blob(sha256, self.team) is None:
                with archive.open_evidence(sha256) as stream:
                    store_blob(sha256, stream, self.team, zstd=True, max_bytes=settings.SPECWEB_MAX_BLOB_BYTES)
        experiment = store_experiment(
            self.spec, self.team, self.user, visibility, workloads, submission_key=told.id, origin=Origin.IMPORTED, pk=told.id
        )
        kept = {"spec": storable(told.spec), "spec_hash": told.spec_hash[:64], "created_at": told.created_at}
        Experiment.objects.filter(pk=experiment.pk).update(**kept)
        experiment.refresh_from_db()
        self._remember(experiment)
        for job in self._in_order():
            self._job(experiment, job)
        for attempt in archive.attempts:
            transaction.on_commit(lambda pk=str(attempt.id): queue.send("parse_attempt", pk) and None)
        for job in archive.jobs:
            transaction.on_commit(lambda pk=str(job.id): queue.send("compare_job", pk) and None)
        return experiment

    def _workload(self, name: str, told: form.WorkloadOf) -> Workload:
        found = Workload.objects.of_team(self.team).filter(content_hash=told.content_hash).order_by("team_id").first()
        if found is not None:
            return found
        if told.content is None:
            remedy = "Ask somebody of the experiment's team who may read the workload for the archive."
            raise ArchiveInvalid(f"the prompts of workload {name[:80]!r} are not in it, and not here either", remedy=remedy)
        content = WorkloadContent.model_validate(told.content)
        if Workload.objects.filter(team=None, name=content.name).exists():
            remedy = "Bring both services to the same release."
            raise ArchiveInvalid(f"workload {content.ref!r} is not the one that this service has under that name", remedy=remedy)
        try:
            return seed_workload(content, self.team, self.user)
        except SpecError as error:
            raise ArchiveInvalid(error.message, remedy="Import it for another team: this one has a workload of that name.") from error

    def _remember(self, experiment: Experiment) -> None:
        archive, m = self.archive, self.archive.manifest
        ArchiveImport.objects.create(
            experiment=experiment,
            server=storable(m.server),
            measured_on=storable(archive.experiment.measured_on or m.server)[:300],
            manifest_sha256=m.sha256,
            imported_by=self.user,
            imported_at=self.now,
            facts={str(j.id): {"shares_machine": j.shares_machine, "floors": j.floors} for j in archive.jobs},
            told=storable(
                {
                    "parser_version": m.parser_version,
                    "analysis_version": m.analysis_version,
                    "analyses": {str(pk): a.numbers for pk, a in archive.analyses.items()},
                    "measurements": {str(pk): list(read) for pk, read in archive.measurements.items()},
                }
            ),
            lacking=[x.model_dump(mode="json") for x in m.lacking if x.sha256 not in archive.evidence],
        )

    def _in_order(self) -> list[form.JobOf]:
        """Each behind the ones that it names."""
        left, done = sorted(self.archive.jobs, key=lambda j: j.id), []
        while left:
            ids = {j.id for j in left}
            ready = [j for j in left if not {j.retry_of, j.extends} & ids]
            if not ready:
                raise ArchiveInvalid("its jobs name each other in a circle")
            done += ready
            left = [j for j in left if j not in ready]
        return done

    def _job(self, experiment: Experiment, told: form.JobOf) -> None:
        job = Job.objects.create(
            pk=told.id,
            experiment=experiment,
            reason="is being imported",
            blocks=told.blocks,
            block_runs=told.block_runs,
            looked_after=told.looked_after,
            decided=told.decided,
            retry_of_id=told.retry_of,
            extends_id=told.extends,
        )
        if told.plan is not None:
            leases = self._as_if_run(job, told)
            self._attempts(job, [a for a in self.archive.attempts if a.job == told.id], leases)
        self._end(job, told)
        moments = {name: told.moments[name] for name in _TIMES if told.moments.get(name)}
        Job.objects.filter(pk=job.pk).update(created_at=told.moments.get("created_at") or self.now, **moments)

    def _inventory(self, host: str, key: str) -> HostInventory:
        inventory = Inventory.model_validate(self.archive.inventories[key])
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", host or inventory.hostname)[:28] or "host"
        return foreign_host(self.team, f"{name}@{self.server}", inventory, key, self.now)

    def _as_if_run(self, job: Job, told: form.JobOf) -> dict[int, Lease]:
        inventory = self._inventory(told.host, told.inventory)
        steps = {"now": self.now, "by": self.by}
        move_job(
            job.pk,
            JobState.QUEUED,
            reason=f"ran on {inventory.host.name}",
            host=inventory.host,
            inventory=inventory,
            runtime=Runtime.objects.filter(manifest_hash=told.runtime_hash).first(),
            target=Model.objects.filter(manifest_hash=told.target_hash).first(),
            draft_hashes=told.draft_hashes,
            device_uuids=told.device_uuids,
            commands=storable(told.commands),
            plan=storable(told.plan),
            **steps,
        )
        job.refresh_from_db()
        create_trials(job, JobPlan.model_validate(job.plan))
        move_job(job.pk, JobState.CLAIMED, **steps)
        leases = {
            x.n: Lease.objects.create(
                job=job,
                n=x.n,
                host=inventory.host,
                inventory=self._inventory(told.host, x.inventory) if x.inventory else inventory,
                token_hash=new_secret("lease")[1],
                granted_at=x.granted_at,
                taken_up_at=x.taken_up_at,
                released_at=x.released_at or self.now,
            )
            for x in told.leases
        }
        move_job(job.pk, JobState.RUNNING, **steps)
        return leases

    def _attempts(self, job: Job, told: Sequence[form.AttemptOf], leases: dict[int, Lease]) -> None:
        trials = {t.plan_id: t for t in Trial.objects.filter(job=job)}
        own = ("n", "outcome", "block_run", "counted", "accepted", "void_reason", "error", "boot_id", "durations_s")
        when = ("started_at", "ended_at", "received_at")
        for a in told:
            fields = {name: storable(getattr(a, name)) for name in own} | {name: getattr(a, name) for name in when}
            Attempt.objects.create(pk=a.id, trial=trials[a.trial], lease=leases[a.lease], **fields)
        # Only what came with the archive: by its hash alone nobody gets at a file that a teammate keeps private.
        EvidenceFile.objects.bulk_create(
            EvidenceFile(attempt_id=a.id, name=f.name, kind=f.kind, blob_id=f.sha256, private=f.private)
            for a in told
            for f in a.evidence
            if f.sha256 in self.archive.evidence
        )

    def _end(self, job: Job, told: form.JobOf) -> None:
        steps = {"now": self.now, "by": self.by}
        if told.state in (JobState.PROCESSED, JobState.COMPLETED) and told.plan is not None:
            move_job(job.pk, JobState.COMPLETED, reason=f"imported from {self.server}; the numbers are being computed", **steps)
            # Of the jobs that add to an answer one alone may be under way; the numbers of all come with the last one.
            if told.id in self.extensions[:-1]:
                move_job(job.pk, JobState.PROCESSED, reason="", **steps)
        elif told.state is JobState.FAILED:
            error = ErrorBody.model_validate(told.error) if told.error else EngineError("the job failed and named no reason").body()
            fail_job(job.pk, ErrorBody.model_validate(storable(error.model_dump(mode="json"))), **steps)
        else:
            ended = told.state is JobState.CANCELLED
            reason = told.reason if ended else f"had not ended when it was exported: it was {told.state.value}"
            move_job(job.pk, JobState.CANCELLED, reason=storable(reason), **steps)


def compute_numbers(experiment: Experiment, now: datetime) -> None:
    """Reads the evidence of an imported experiment and compares its jobs now, without waiting for the workers."""
    for pk in Attempt.objects.filter(trial__job__experiment=experiment).order_by("received_at").values_list("pk", flat=True):
        parse_attempt(pk)
    for pk, extends in experiment.jobs.order_by("id").values_list("pk", "extends"):
        compare_job(pk, now, again=extends is not None)


def has_several_extensions(experiment: Experiment) -> bool:
    """Then the workers, who compare a job once, would not see all of them together."""
    return experiment.jobs.exclude(extends=None).count() > 1

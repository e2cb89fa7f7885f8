"""Archives of experiments with more than one job, two imports at once, and files that an archive has the hash of only."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connections
from django.http import StreamingHttpResponse
from django.test import RequestFactory, override_settings
from django.utils import timezone
from django.utils.module_loading import import_string
from speccore.errors import EngineError
from speccore.jobstate import JobState

from specweb.accounts.models import AuditEntry, Membership, Role
from specweb.experiments.models import Experiment, Job, Workload
from specweb.experiments.services.jobs import fail_job, move_job, retry_job
from specweb.experiments.services.more import add_blocks
from specweb.results import archive_format as form
from specweb.results.import_queries import imported
from specweb.results.models import ArchiveImport, Attempt, EvidenceFile
from specweb.results.services.archives import TakenArchive, compute_numbers, take_archive
from specweb.results.services.comparing import compare_job
from specweb.results.services.continuing import run_the_rest
from tests.web import sample
from tests.web.people_api import Program
from tests.web.test_archives import SMALL, another_server, archived, parts, rebuilt, shown

pytestmark = pytest.mark.django_db


def ran(run: sample.Run, job: Job) -> None:
    """The job taken by its host, run to its end, compared."""
    more = sample.claimed(run.experiment, run.lease.host)
    assert more.job.pk == job.pk
    sample.play(more)
    move_job(job.pk, JobState.COMPLETED, now=datetime.now(UTC), by="test")
    assert compare_job(job.pk, datetime.now(UTC))


def failed(them: sample.People, n_trials: int) -> sample.Run:
    host = sample.host_with_inventory(them.team)
    run = sample.claimed(sample.submitted(them.team, them.owner, sample.spec(**SMALL | {"blocks": 5})), host)
    sample.play(run, n_trials=n_trials)
    fail_job(run.job.pk, EngineError("the host was lost").body(), now=datetime.now(UTC), by="test")
    compare_job(run.job.pk, datetime.now(UTC))
    run.job.refresh_from_db()
    return run


def _joined(them: sample.People) -> sample.Run:
    run = sample.finished(them.team, them.owner, sample.spec(**SMALL))
    for _ in range(2):
        ran(run, add_blocks(Job.objects.get(pk=run.job.pk), 2, by="owner"))
    return run


def _rest(them: sample.People) -> sample.Run:
    run = failed(them, 7)
    ran(run, run_the_rest(run.job, by="owner"))
    return run


def _retried(them: sample.People) -> sample.Run:
    run = failed(them, 3)
    ran(run, retry_job(run.job, now=datetime.now(UTC), by="owner"))
    return run


def _addition_retried(them: sample.People) -> sample.Run:
    run = sample.finished(them.team, them.owner, sample.spec(**SMALL))
    job = add_blocks(run.job, 3, by="owner")
    sample.play(sample.claimed(run.experiment, run.lease.host), n_trials=2)
    fail_job(job.pk, EngineError("the engine died").body(), now=datetime.now(UTC), by="test")
    compare_job(job.pk, datetime.now(UTC))
    ran(run, retry_job(job, now=datetime.now(UTC), by="owner"))
    return run


@pytest.mark.parametrize("made", [_joined, _rest, _retried, _addition_retried])
def test_of_several_jobs_the_same_numbers_come_out(made: Callable[[sample.People], sample.Run], tmp_path: Path) -> None:
    them = sample.people()
    run = made(them)
    data = archived(run.experiment, them.owner)
    before = {job.pk: (job.state, job.retry_of_id, job.extends_id, job.blocks, shown(job)) for job in run.experiment.jobs.all()}
    assert len(before) > 1
    with override_settings(SPECWEB_EVIDENCE_DIR=tmp_path / "second"):
        there = another_server()
        answer = Program(there.owner).post("archives/?team=ours", data, "application/zip")
        assert answer.status_code == 201, answer.content
        experiment = Experiment.objects.get()
        compute_numbers(experiment, timezone.now())
        found = imported(experiment)
        assert found is not None
        assert (found.differences, found.same) == ([], True)
        after = {job.pk: (job.state, job.retry_of_id, job.extends_id, job.blocks, shown(job)) for job in experiment.jobs.all()}
        assert after == before
        entry = AuditEntry.objects.get(action="experiment.import")
        assert (entry.actor, entry.object_id, entry.via) == ("owner", str(experiment.pk), "token")


@pytest.mark.django_db(transaction=True)
def test_two_imports_of_one_archive_at_once_are_one_experiment(tmp_path: Path) -> None:
    them = sample.people()
    run = sample.finished(them.team, them.owner, sample.spec(**SMALL))
    path = tmp_path / "it.zip"
    path.write_bytes(archived(run.experiment, them.owner))
    with override_settings(SPECWEB_EVIDENCE_DIR=tmp_path / "second"):
        there = another_server()
        gate, found = threading.Barrier(2), []

        def take() -> None:
            gate.wait()
            try:
                found.append(take_archive(path, there.team, there.owner, timezone.now()))
            except Exception as error:  # told below
                found.append(error)
            finally:
                connections.close_all()

        threads = [threading.Thread(target=take) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert all(isinstance(f, TakenArchive) for f in found), found
        assert sorted(f.created for f in found) == [False, True]
        assert (Experiment.objects.count(), ArchiveImport.objects.count()) == (1, 1)
        assert Attempt.objects.count() == len(run.attempts)
        for blob in {f.blob for f in EvidenceFile.objects.select_related("blob")}:
            assert (tmp_path / "second" / blob.path).is_file()


def test_by_a_hash_alone_nobody_gets_at_what_a_teammate_keeps_private(tmp_path: Path) -> None:
    """Who may not read an experiment's texts knows their hashes, and may write an archive that names them."""
    them = sample.people()
    run = sample.finished(them.team, them.owner, sample.spec(**SMALL))
    Workload.objects.filter(name="count").update(team=them.team, owner=them.owner, private=True)
    Membership.objects.filter(user=them.mate).update(role=Role.SUBMITTER)
    data = archived(run.experiment, them.mate)
    lacking = {x["sha256"] for x in json.loads(parts(data)[form.MANIFEST])["lacking"]}
    assert lacking
    ids = [run.experiment.pk, *run.experiment.jobs.values_list("pk", flat=True), *Attempt.objects.values_list("pk", flat=True)]
    new = {str(pk): str(uuid.uuid4()) for pk in ids}

    def renamed(text: str) -> str:
        for old, other in new.items():
            text = text.replace(old, other)
        return text

    files = {renamed(n): c if n.startswith("evidence/") else renamed(c.decode()).encode() for n, c in parts(data).items()}
    path = tmp_path / "it.zip"
    path.write_bytes(rebuilt(files))
    taken = take_archive(path, them.team, them.mate, timezone.now())
    assert taken.created
    mine = EvidenceFile.objects.filter(attempt__trial__job__experiment=taken.experiment)
    assert mine.exists()
    assert not mine.filter(blob_id__in=lacking).exists()
    assert {x["sha256"] for x in ArchiveImport.objects.get(experiment=taken.experiment).lacking} == lacking


def test_who_asks_for_the_head_of_a_file_lets_nothing_be_read() -> None:
    read: list[str] = []

    def pieces() -> Iterator[bytes]:
        read.append("all")
        yield b"x"

    serve = import_string(next(name for name in settings.MIDDLEWARE if name.endswith("nothing_is_streamed")))
    for method, body in (("HEAD", b""), ("GET", b"x")):
        answer = serve(lambda request: StreamingHttpResponse(pieces(), headers={"X-Kept": "yes"}))(RequestFactory().generic(method, "/"))
        assert (b"".join(answer), answer["X-Kept"], bool(read)) == (body, "yes", bool(body))

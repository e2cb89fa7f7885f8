"""A real agent whose build changes on the disk: what is watched is measured again once, by the workers' own task."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from specweb.experiments.models import Host, Job
from specweb.experiments.services.dispatch import dispatch_waiting
from specweb.experiments.services.hosts import create_enrolment_code
from specweb.results.services.reports import create_trials
from specweb.watching.models import Repeat
from specweb.watching.services.repeating import repeat_due
from specweb.watching.services.watches import watch
from tests.e2e.test_changed_build import WORK, Machine, offered
from tests.web import sample

pytestmark = pytest.mark.django_db(transaction=True)
ONLINE = timedelta(minutes=5)


def test_a_build_that_changes_on_the_disk_is_measured_again_once(live_server: Any, settings: Any, tmp_path: Path) -> None:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path / "evidence"
    people, machine = sample.people(), Machine(tmp_path, live_server.url)
    machine.agent("enrol", "--server", live_server.url, "--code", create_enrolment_code(people.team, datetime.now(UTC)))
    machine.agent("once")
    host = Host.objects.get()
    old = offered(host)
    experiment = sample.submitted(people.team, people.owner, sample.spec(**WORK))
    dispatch_waiting(datetime.now(UTC), online_within=ONLINE, on_queued=create_trials)
    machine.agent("once")
    assert Job.objects.get().state == "completed"
    Job.objects.update(state="processed")  # comparing has its own tests
    found = watch(experiment, people.owner, host=host)
    assert repeat_due(datetime.now(UTC), online_within=ONLINE) == []

    with (machine.build / "libllama.so.0").open("ab") as f:
        f.write(b"\0")
    machine.agent("once")
    new = offered(host)
    assert new.manifest_hash != old.manifest_hash
    (repeat,) = repeat_due(datetime.now(UTC), online_within=ONLINE)
    assert repeat_due(datetime.now(UTC), online_within=ONLINE) == []
    dispatch_waiting(datetime.now(UTC), online_within=ONLINE, on_queued=create_trials)
    machine.agent("once")
    job = repeat.experiment.jobs.get()
    assert (job.state, job.error) == ("completed", None)
    assert job.runtime is not None
    assert job.runtime.manifest_hash == new.manifest_hash
    Job.objects.update(state="processed")
    machine.agent("once")
    assert repeat_due(datetime.now(UTC), online_within=ONLINE) == []
    assert list(Repeat.objects.values_list("watch", "runtime__manifest_hash", "cause")) == [(found.pk, new.manifest_hash, "build")]

"""Watches: what is repeated and when, what raises an alert, who may begin and end one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from speccore.errors import NotAllowed, NotPossible

from specweb.accounts.models import AuditEntry, Membership, Role
from specweb.accounts.services import set_role
from specweb.experiments.models import Experiment, Host, Job
from specweb.experiments.services.dispatch import dispatch_waiting
from specweb.experiments.services.hosts import store_inventory
from specweb.experiments.services.jobs import claim_next_job
from specweb.experiments.services.submission import submit
from specweb.results.models import Listing
from specweb.results.services.reports import create_trials
from specweb.watching.models import Alert, Repeat, Watch
from specweb.watching.services.looking import look_at_ended
from specweb.watching.services.repeating import repeat_due
from specweb.watching.services.watches import acknowledge, pause, resume, stop, watch
from tests.web import sample
from tests.web.watched import SMALL, Watched, add_history, add_run, offer, watched

pytestmark = pytest.mark.django_db
ONLINE = timedelta(minutes=5)


@pytest.fixture
def it(db: Any) -> Watched:
    return watched()


def tick(after: timedelta = timedelta()) -> list[Repeat]:
    """A look of the worker; a host that is online stays so."""
    now = datetime.now(UTC) + after
    if after:
        Host.objects.update(last_seen_at=now)
    return repeat_due(now, online_within=ONLINE)


def end_of(repeats: list[Repeat]) -> None:
    Job.objects.filter(experiment__repeat__in=repeats).update(state="processed", processed_at=datetime.now(UTC))


def note(it: Watched) -> str:
    it.watch.refresh_from_db()
    return it.watch.note


def test_nothing_is_repeated_on_the_build_that_was_measured(it: Watched) -> None:
    assert tick() == []
    assert tick() == []
    assert Experiment.objects.count() == 1
    assert note(it) == ""


def test_a_new_build_is_measured_once_on_its_host_and_pinned_to_it(it: Watched) -> None:
    offer(it.host, "a", "d")
    (repeat,) = tick()
    spec = repeat.experiment.parsed_spec
    assert (spec.runtime.manifest_hash, spec.placement.hosts) == ("d" * 64, [it.host.name])
    assert spec.arms == it.run.experiment.parsed_spec.arms
    assert (repeat.experiment.team, repeat.experiment.visibility) == (it.people.team, it.run.experiment.visibility)
    assert tick() == []
    end_of([repeat])
    assert tick() == []
    offer(it.host, "a")
    assert tick() == []
    offer(it.host, "d", "a")
    assert tick() == []
    assert Repeat.objects.count() == 1


def test_a_repeat_that_failed_is_not_asked_again_by_itself(it: Watched) -> None:
    offer(it.host, "d")
    (repeat,) = tick()
    Job.objects.filter(experiment=repeat.experiment).update(state="failed")
    assert tick() == []


def test_a_busy_host_is_left_alone_and_the_watch_says_so(it: Watched) -> None:
    submit(sample.spec(**SMALL), it.people.team, it.people.owner)
    dispatch_waiting(datetime.now(UTC), online_within=ONLINE, on_queued=create_trials)
    offer(it.host, "a", "d")
    assert tick() == [], list(Job.objects.values_list("state", "reason", "host__name"))
    assert "busy" in note(it)
    Job.objects.exclude(pk=it.run.job.pk).update(state="processed")
    assert len(tick()) == 1
    assert note(it) == ""


def test_people_s_work_that_comes_later_is_handed_out_before_a_repeat(it: Watched) -> None:
    offer(it.host, "a", "d")
    (repeat,) = tick()
    dispatch_waiting(datetime.now(UTC), online_within=ONLINE, on_queued=create_trials)
    other = submit(sample.spec(**SMALL), it.people.team, it.people.owner)
    dispatch_waiting(datetime.now(UTC), online_within=ONLINE, on_queued=create_trials)
    claimed = claim_next_job(it.host, datetime.now(UTC))
    assert claimed is not None
    assert claimed[0].experiment_id == other.pk
    Job.objects.filter(pk=claimed[0].pk).update(state="processed")
    then = claim_next_job(it.host, datetime.now(UTC))
    assert then is not None
    assert then[0].experiment_id == repeat.experiment_id


def test_an_offline_a_draining_and_a_revoked_host_wait_with_the_reason(it: Watched) -> None:
    offer(it.host, "a", "d")
    Host.objects.update(last_seen_at=datetime.now(UTC) - timedelta(hours=1))
    assert tick() == []
    assert "offline" in note(it)
    Host.objects.update(last_seen_at=datetime.now(UTC), drain_requested_at=datetime.now(UTC))
    assert tick() == []
    assert "draining" in note(it)
    Host.objects.update(revoked_at=datetime.now(UTC))
    assert tick() == []
    assert "revoked" in note(it)


def test_a_model_that_is_gone_is_named(it: Watched) -> None:
    offer(it.host, "a", "d")
    it.host.refresh_from_db()
    told = it.host.inventory.parsed  # type: ignore[union-attr]
    store_inventory(it.host, told.model_copy(update={"models": []}), datetime.now(UTC))
    assert tick() == []
    assert "demo-draft" in note(it)


def test_days_repeat_the_same_build(db: Any) -> None:
    watched(every_days=7)
    assert tick() == []
    (first,) = tick(timedelta(days=7, minutes=1))
    assert (first.cause, first.runtime.manifest_hash) == ("time", "a" * 64)
    end_of([first])
    assert tick(timedelta(days=8)) == []
    (second,) = tick(timedelta(days=14, minutes=2))
    assert second.experiment_id != first.experiment_id


def test_labels_reach_every_host_that_has_them(it: Watched) -> None:
    other = sample.host_with_inventory(it.people.team, "second")
    Host.objects.filter(pk__in=[it.host.pk, other.pk]).update(labels={"room": "b"})
    stop(it.watch, it.people.owner)
    found = watch(it.run.experiment, it.people.owner, labels={"room": "b"})
    (repeat,) = tick()  # the second host has measured nothing yet
    assert (repeat.watch, repeat.host) == (found, other)
    Host.objects.update(labels={})
    tick()
    found.refresh_from_db()
    assert "room=b" in found.note


def test_a_team_s_repeats_of_a_day_are_bounded(it: Watched, settings: Any) -> None:
    settings.SPECWEB_WATCH_RUNS_PER_DAY = 1
    offer(it.host, "a", "d", "e")
    end_of(tick())
    assert tick() == []
    assert "used up" in note(it)
    assert len(tick(timedelta(days=1, minutes=1))) == 1


def test_a_paused_watch_rests_and_a_stopped_one_has_ended(it: Watched) -> None:
    owner = it.people.owner
    assert pause(it.watch, owner)
    offer(it.host, "a", "d")
    assert tick() == []
    assert not pause(it.watch, owner)
    assert resume(it.watch, owner)
    end_of(tick())
    assert stop(it.watch, owner)
    assert not resume(it.watch, owner)
    offer(it.host, "e")
    assert tick() == []
    actions = AuditEntry.objects.filter(kind="watch").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["watch.create", "watch.pause", "watch.resume", "watch.stop"]


def test_a_watch_of_somebody_who_left_rests(it: Watched) -> None:
    Membership.objects.create(user=it.people.stranger, team=it.people.team, role=Role.MAINTAINER)
    set_role(it.people.team, it.people.owner, None)
    offer(it.host, "a", "d")
    assert tick() == []
    assert "may no longer submit" in note(it)
    assert it.watch.state == "paused"


def test_who_may_watch(it: Watched) -> None:
    stop(it.watch, it.people.owner)
    for user in (it.people.mate, it.people.stranger):
        with pytest.raises(NotAllowed):
            watch(it.run.experiment, user, host=it.host)
        with pytest.raises(NotAllowed):
            resume(it.watch, user)
    set_role(it.people.team, it.people.mate, Role.SUBMITTER)
    assert watch(it.run.experiment, it.people.mate, host=it.host).state == "active"
    assert list(Watch.objects.visible_to(it.people.stranger)) == []


def test_what_cannot_be_watched_is_refused_in_words(it: Watched, settings: Any) -> None:
    owner, experiment = it.people.owner, it.run.experiment
    theirs = sample.host_with_inventory(it.people.other, "theirs")
    for words, asked in {
        "watched there already": {"host": it.host},
        "neither a host nor labels": {},
        "takes no jobs of team": {"host": theirs},
        "every_days is 0": {"host": it.host, "every_days": 0},
        "smallest is 2": {"host": it.host, "smallest": 2.0},
        "labels are too many": {"labels": {str(n): "x" for n in range(20)}},
    }.items():
        with pytest.raises(NotPossible, match=words):
            watch(experiment, owner, **asked)  # type: ignore[arg-type]
    offer(it.host, "a", "d")
    (repeat,) = tick()
    with pytest.raises(NotPossible, match="itself a repeat"):
        watch(repeat.experiment, owner, host=it.host)
    settings.SPECWEB_WATCHES_PER_TEAM = 1
    with pytest.raises(NotPossible, match="as many as it may"):
        watch(experiment, owner, labels={"room": "b"})


def look() -> list[Alert]:
    return look_at_ended(datetime.now(UTC))


def test_a_lasting_loss_alerts_once_with_its_builds_and_runs(it: Watched) -> None:
    jobs = add_history(it, [2.0] * 12)
    assert look() == []
    later = add_history(it, [1.7] * 4, start=13)
    (alert,) = look()
    assert (alert.metric, alert.better, alert.arm) == ("ratio", False, "draft-3")
    assert (alert.job_before, alert.job_after) == (jobs[-1], later[0])
    assert (alert.numbers["build_before"], alert.numbers["build_after"]) == ("build 12", "build 13")
    assert alert.change["low"] < 0.85 < alert.change["high"] < 1
    add_history(it, [1.7] * 6, start=17)
    assert look() == []
    assert Alert.objects.count() == 1


def test_a_gain_is_told_as_one_and_the_baseline_s_speed_apart(it: Watched) -> None:
    add_history(it, [2.0] * 12)
    add_history(it, [2.0] * 4, start=13, baselines=[75.0] * 4)
    (alert,) = look()
    assert (alert.metric, alert.better, alert.arm) == ("baseline", True, "")


def test_one_noisy_run_and_invalid_runs_raise_nothing(it: Watched) -> None:
    add_history(it, [2.0] * 12)
    add_run(it, 13, ratio=0.9, baseline=20, acceptance=0.1)
    for n in range(14, 20):
        add_run(it, n, ratio=0.5, baseline=60, verdict="invalid")
    bad = [add_run(it, n, ratio=0.5, baseline=60) for n in range(20, 26)]
    Listing.objects.filter(comparison__job__in=bad).update(integrity={"failed": 1})
    assert look() == []


def test_an_alert_is_seen_by_somebody_once(it: Watched) -> None:
    add_history(it, [2.0] * 12 + [1.6] * 4)
    (alert,) = look()
    with pytest.raises(NotAllowed):
        acknowledge(alert, it.people.mate, datetime.now(UTC))
    assert acknowledge(alert, it.people.owner, datetime.now(UTC), "bisected: 4f2c")
    assert not acknowledge(alert, it.people.owner, datetime.now(UTC), "again")
    assert alert.acknowledged_note == "bisected: 4f2c"
    assert list(Alert.objects.visible_to(it.people.mate)) == [alert]
    assert list(Alert.objects.visible_to(it.people.stranger)) == []


def test_a_watch_that_can_not_be_looked_at_keeps_no_other_from_its_turn(it: Watched) -> None:
    """As one whose experiment an older release stored in a way that this one doesn't read."""
    odd = submit(sample.spec(**SMALL | {"name": "odd"}), it.people.team, it.people.owner)
    Job.objects.filter(experiment=odd).update(state="cancelled")
    Watch.objects.filter(pk=it.watch.pk).update(experiment=odd)
    other = watch(it.run.experiment, it.people.owner, host=it.host)  # its turn comes after the odd one's
    Experiment.objects.filter(pk=odd.pk).update(spec={"arms": 7})
    offer(it.host, "a", "d")
    assert [r.watch_id for r in tick()] == [other.pk]
    assert "can't be looked at" in note(it)

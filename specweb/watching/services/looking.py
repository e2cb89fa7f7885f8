"""Looking at a watch's runs once one more has ended: what changed for good becomes an alert, once."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from speccore.changes import Change, changes
from speccore.jobstate import FINAL
from speccore.measurement import Withheld

from specweb.experiments.models import Job
from specweb.watching.history import Key, rows_of, series_of
from specweb.watching.models import Alert, Repeat, Watch

from .notices import tell_of_alerts


def look_at_ended(now: datetime) -> list[Alert]:
    """Looks at each watch of which a repeat has ended since; returns the alerts that it raised."""
    ended = Repeat.objects.filter(looked_at=None).exclude(experiment__jobs__in=Job.objects.exclude(state__in=[s.value for s in FINAL]))
    raised: list[Alert] = []
    by_watch: dict[UUID, list[int]] = {}
    for pk, watch in ended.values_list("pk", "watch_id"):
        by_watch.setdefault(watch, []).append(pk)
    for watch_id, repeats in by_watch.items():
        watch = Watch.objects.select_related("team", "experiment").get(pk=watch_id)
        with transaction.atomic():
            new = look_at_watch(watch, now)
            Repeat.objects.filter(pk__in=repeats).update(looked_at=now)
            tell_of_alerts(watch, new, now)
        raised += new
    return raised


def look_at_watch(watch: Watch, now: datetime) -> list[Alert]:
    """Raises what is new. One worker at a time looks at a watch, so that a change is told once."""
    Watch.objects.select_for_update(of=("self",), no_key=True).get(pk=watch.pk)
    known = list(Alert.objects.filter(watch=watch))
    raised = []
    for key, runs in series_of(rows_of(watch)).items():
        found = changes(runs, smallest=watch.smallest)
        if isinstance(found, Withheld):
            continue
        for change in found:
            if not any(_same(old, key, change) for old in known):
                raised.append(_raise(watch, key, change, now))
    return raised


def _same(old: Alert, key: Key, change: Change) -> bool:
    """Whether an alert tells of this change: recomputed numbers may move by a run where it began."""
    where = (old.host_id, old.arm, old.point, old.metric) == (key.host, key.arm, key.point, key.metric)
    return where and old.better == change.better and bool(set(old.numbers["after_jobs"]) & set(change.after_keys))


def _raise(watch: Watch, key: Key, change: Change, now: datetime) -> Alert:
    return Alert.objects.create(
        watch=watch,
        host_id=key.host,
        arm=key.arm,
        point=key.point,
        metric=key.metric,
        better=change.better,
        shape=change.shape,
        numbers=_numbers(change),
        job_before_id=UUID(change.last_before),
        job_after_id=UUID(change.first_after),
        created_at=now,
    )


def _numbers(change: Change) -> dict[str, Any]:
    return {
        "before": asdict(change.before),
        "after": asdict(change.after),
        "change": asdict(change.change),
        "p": change.p,
        "before_jobs": list(change.before_keys),
        "after_jobs": list(change.after_keys),
        "found_with_job": change.found_at,
        "build_before": change.build_before,
        "build_after": change.build_after,
    }

"""Repeating what is watched: once for each new build of a host, and after so many days, while the host has nothing else to do."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Q
from speccore.errors import SpecWebError
from speccore.inventory import RuntimeInfo
from speccore.jobstate import HELD, JobState
from speccore.spec import ExperimentSpec, Placement, RuntimeSelector

from specweb.accounts.services import may_submit
from specweb.experiments.models import Host, HostRuntime, Job, Runtime, Visibility
from specweb.experiments.services.placement import NoFit, describe, fit, has_labels, selects
from specweb.experiments.services.submission import submit_once
from specweb.watching.models import Cause, Repeat, Watch, WatchState

from .watches import pause_for

#: Work that a host has before a repeat's turn comes; of jobs that any host may take so many are asked whether this one could.
MOST_WAITING = 20
log = logging.getLogger(__name__)
BUSY = [JobState.QUEUED.value, *(s.value for s in HELD)]


@dataclass(frozen=True)
class Due:
    runtime: RuntimeInfo
    cause: Cause


def repeat_due(now: datetime, *, online_within: timedelta) -> list[Repeat]:
    """Asks again what is due, at most one experiment for a host at a time. Every watch that waits keeps the reason in words."""
    made: list[Repeat] = []
    found = Watch.objects.filter(state=WatchState.ACTIVE).select_related("experiment__team", "team", "host__inventory", "created_by")
    for watch in found.order_by("id"):
        if watch.created_by is None or not may_submit(watch.created_by, watch.team):
            pause_for(watch, "who began it may no longer submit for the team: stop it and begin it anew")
            continue
        try:
            made += _repeat(watch, now, now - online_within)
        except DatabaseError:
            raise  # the next look tries again
        except Exception:
            log.exception("watch %s can't be looked at", watch.pk)  # the others are looked at all the same
            _note(watch, "it can't be looked at: the service's log says why", watch.settled)
    return made


def watched_selector(spec: ExperimentSpec) -> RuntimeSelector:
    """Any build of the engine: what pinned the first run to one is left out, since a watch is there for the next ones."""
    return spec.runtime.model_copy(update={"version": None, "source_commit": None, "manifest_hash": None})


def hosts_of_watch(watch: Watch) -> list[Host]:
    """Those that it names and are still the team's."""
    if watch.host:
        return [watch.host] if watch.host.revoked_at is None else []
    hosts = Host.objects.filter(team_id=watch.team_id, revoked_at=None).select_related("inventory").order_by("name")
    return [h for h in hosts if has_labels(h, watch.labels)]


def _repeat(watch: Watch, now: datetime, seen_since: datetime) -> list[Repeat]:
    hosts, words, made, settled = hosts_of_watch(watch), [], [], dict(watch.settled)
    if not hosts:
        _note(watch, f"its host {watch.host} was revoked" if watch.host else f"no host of the team is among {watch.where}", settled)
        return []
    for host in hosts:
        if host.inventory_id is None:
            words.append(f"{host.name} has not said yet what it offers")
            continue
        if settled.get(str(host.pk)) == host.inventory_id and not _days_are_over(watch, host, now):
            continue
        due = _due(watch, host, now)
        if isinstance(due, str):
            words.append(due)
        elif due is None:
            settled[str(host.pk)] = host.inventory_id
        elif why := _not_now(watch, host, now, seen_since):
            words.append(f"{host.name} has build {due.runtime.version[:60]} to measure: {why}")
        else:
            try:
                made.append(_ask_again(watch, host, due, now))
            except SpecWebError as error:
                words.append(f"{host.name}: {error.message}")
    _note(watch, "; ".join(words), settled)
    return made


def _note(watch: Watch, words: str, settled: dict[str, int]) -> None:
    if (words := words[:500]) != watch.note or settled != watch.settled:
        Watch.objects.filter(pk=watch.pk, state=WatchState.ACTIVE).update(note=words, settled=settled)


def _jobs_on(watch: Watch, host: Host) -> list[tuple[str, datetime]]:
    """Build and time of each job of the watch that was given to the host."""
    mine = Q(experiment_id=watch.experiment_id) | Q(experiment__repeat__watch=watch)
    jobs = Job.objects.filter(mine, host=host).exclude(runtime=None)
    return list(jobs.values_list("runtime__manifest_hash", "created_at"))


def _days_are_over(watch: Watch, host: Host, now: datetime) -> bool:
    if watch.every_days is None:
        return False
    times = [at for _, at in _jobs_on(watch, host)]
    times += Repeat.objects.filter(watch=watch, host=host).values_list("created_at", flat=True)
    return not times or max(times) <= now - timedelta(days=watch.every_days)


def _due(watch: Watch, host: Host, now: datetime) -> Due | str | None:
    """What the host shall measure next for the watch; in words why its builds can't; None if there is nothing to do."""
    assert host.inventory is not None
    spec, inventory = watch.experiment.parsed_spec, host.inventory.parsed
    selector = watched_selector(spec)
    offered = [r for r in inventory.runtimes if selects(selector, r)]
    if not offered:
        return f"{host.name} has no engine build that is {describe(selector)}"
    asked = set(Repeat.objects.filter(watch=watch, host=host).values_list("runtime__manifest_hash", flat=True))
    measured = asked | {build for build, _ in _jobs_on(watch, host)}
    seen = HostRuntime.objects.filter(host=host, first_seen_at__gt=watch.created_at)
    new = set(seen.values_list("runtime__manifest_hash", flat=True)) - measured
    fresh = [r for r in offered if r.manifest_hash in new] or ([] if measured else offered)
    reason = ""
    for runtime, cause in [*((r, Cause.BUILD) for r in fresh), *((r, Cause.TIME) for r in offered if _days_are_over(watch, host, now))]:
        answer = fit(_pinned(spec, host, runtime), inventory)
        if not isinstance(answer, NoFit):
            return Due(runtime, cause)
        reason = reason or f"{host.name} {answer.reason}"
    return reason or None


def _pinned(spec: ExperimentSpec, host: Host, runtime: RuntimeInfo) -> ExperimentSpec:
    selector = watched_selector(spec).model_copy(update={"manifest_hash": runtime.manifest_hash})
    return spec.model_copy(update={"runtime": selector, "placement": Placement(hosts=[host.name])})


def _not_now(watch: Watch, host: Host, now: datetime, seen_since: datetime) -> str:
    """In words why the host can't measure it now; empty if it can."""
    if host.last_seen_at is None or host.last_seen_at < seen_since:
        return "the host is offline"
    if host.takes_no_jobs:
        return "the host takes no new jobs (draining)"
    here = Q(host=host, state__in=BUSY) | Q(wanted_host=host, state=JobState.WAITING.value)
    if Job.objects.filter(here).exists() or _may_come_here(host):
        return "the host is busy, and other work comes first"
    today = Repeat.objects.filter(watch__team_id=watch.team_id, created_at__gt=now - timedelta(days=1)).count()
    if today >= settings.SPECWEB_WATCH_RUNS_PER_DAY:
        return f"the team's {settings.SPECWEB_WATCH_RUNS_PER_DAY} repeats of 24 hours are used up"
    return ""


def _may_come_here(host: Host) -> bool:
    """Whether a job that waits for any host that fits could be given to this one."""
    waiting = Job.objects.filter(state=JobState.WAITING.value, wanted_host=None, experiment__team_id=host.team_id)
    assert host.inventory is not None
    offered = host.inventory.parsed
    specs = (j.experiment.parsed_spec for j in waiting.select_related("experiment")[:MOST_WAITING])
    return any(has_labels(host, s.placement.labels) and not isinstance(fit(s, offered), NoFit) for s in specs)


def _ask_again(watch: Watch, host: Host, due: Due, now: datetime) -> Repeat:
    """The same key is drawn for the same build, so that two workers at once make one experiment."""
    spec = watch.experiment.parsed_spec
    suffix = f" · {due.runtime.version}"
    name = spec.name[: 120 - min(len(suffix), 60)] + suffix[:60]
    pinned = _pinned(spec, host, due.runtime).model_copy(update={"name": name.strip()})
    last = Repeat.objects.filter(watch=watch, host=host).order_by("-id").values_list("pk", flat=True).first()
    why = due.runtime.manifest_hash if due.cause == Cause.BUILD else f"after {last}"
    key = uuid.uuid5(watch.pk, f"{host.pk}:{why}")
    with transaction.atomic():
        asked, new = submit_once(pinned, watch.team, watch.created_by, Visibility(watch.experiment.visibility), submission_key=key)
        if new:
            Job.objects.filter(experiment=asked).update(gives_way=True, reason=f"waits to be dispatched, for a watch: {due.cause.label}")
        made, _ = Repeat.objects.get_or_create(
            experiment=asked,
            defaults={
                "watch": watch,
                "host": host,
                "runtime": Runtime.objects.get(manifest_hash=due.runtime.manifest_hash),
                "cause": due.cause,
                "created_at": now,
            },
        )
    return made

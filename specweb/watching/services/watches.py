"""Watching a configuration, letting a watch rest, ending it, and taking note of its alerts."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db import IntegrityError, transaction
from speccore.errors import NotAllowed, NotPossible

from specweb.accounts import audit
from specweb.accounts.models import Team, User
from specweb.accounts.services import may_submit
from specweb.experiments.models import Experiment, Host, Origin
from specweb.experiments.text import storable
from specweb.watching.models import Alert, Repeat, Watch, WatchState

#: Bounds of what people may ask for; the form, the program's address and the service share them.
LEAST_DAYS, MOST_DAYS = 1, 365
LEAST_SMALLEST, MOST_SMALLEST = 0.005, 0.5
MOST_LABELS, LONGEST_LABEL = 8, 100
MOST_NOTE = 500


def watch(
    experiment: Experiment,
    user: User,
    *,
    host: Host | None = None,
    labels: dict[str, str] | None = None,
    every_days: int | None = None,
    smallest: float = 0.02,
) -> Watch:
    """Begins to watch an experiment on a host of its team, or on all with the labels.

    Raises :class:`NotAllowed`, or :class:`NotPossible` that names what is at fault.
    """
    _refuse_unless_submits(user, experiment.team)
    labels = dict(sorted((labels or {}).items())) if host is None else {}
    _refuse_what_cannot_be(experiment, host, labels, every_days, smallest)
    try:
        with transaction.atomic():
            # Two that begin at once are counted one after the other.
            Team.objects.select_for_update(no_key=True).get(pk=experiment.team_id)
            most = settings.SPECWEB_WATCHES_PER_TEAM
            if Watch.objects.filter(team=experiment.team).exclude(state=WatchState.STOPPED).count() >= most:
                raise NotPossible(f"team {experiment.team.slug} has {most} watches, as many as it may", remedy="Stop one first.")
            made = Watch.objects.create(
                team=experiment.team,
                experiment=experiment,
                created_by=user,
                host=host,
                labels=labels,
                every_days=every_days,
                smallest=smallest,
            )
            _recorded(made, "create", user, after=f"on {made.where}" + (f", every {every_days} days" if every_days else ""))
    except IntegrityError:
        raise NotPossible("it is watched there already", remedy="Look at /watches/; stop that watch first to change it.") from None
    return made


def _refuse_what_cannot_be(
    experiment: Experiment, host: Host | None, labels: dict[str, str], every_days: int | None, smallest: float
) -> None:
    if experiment.origin != Origin.SERVICE:
        raise NotPossible("it did not run on hosts of this service", remedy="Submit it here, then watch that.")
    if first := Repeat.objects.filter(experiment=experiment).select_related("watch").first():
        raise NotPossible("it is itself a repeat of a watch", remedy=f"Watch the first one: experiment {first.watch.experiment_id}.")
    if host is None and not labels:
        raise NotPossible("neither a host nor labels are named", remedy="Name one host, or labels as their owner set them.")
    if host is not None and (host.team_id != experiment.team_id or host.revoked_at or host.self_run):
        raise NotPossible(f"{host.name} takes no jobs of team {experiment.team.slug}", remedy="Name a host of the experiment's team.")
    if len(labels) > MOST_LABELS or any(not k or len(k) > LONGEST_LABEL or len(v) > LONGEST_LABEL for k, v in labels.items()):
        raise NotPossible(
            "labels are too many or too long", remedy=f"At most {MOST_LABELS}, each name and value up to {LONGEST_LABEL} characters."
        )
    if every_days is not None and not LEAST_DAYS <= every_days <= MOST_DAYS:
        raise NotPossible(f"every_days is {every_days}", remedy=f"{LEAST_DAYS} to {MOST_DAYS}, or nothing: on new builds alone.")
    if not LEAST_SMALLEST <= smallest <= MOST_SMALLEST:
        raise NotPossible(f"smallest is {smallest:g}", remedy=f"{LEAST_SMALLEST:g} to {MOST_SMALLEST:g}: 0.02 is 2 %.")


def pause(found: Watch, user: User) -> bool:
    """Lets it rest: it repeats nothing until it is resumed. False if it rested or was stopped."""
    return _to(found, WatchState.PAUSED, (WatchState.ACTIVE,), "pause", user, f"paused by {user.get_username()}")


def resume(found: Watch, user: User) -> bool:
    return _to(found, WatchState.ACTIVE, (WatchState.PAUSED,), "resume", user, "")


def stop(found: Watch, user: User) -> bool:
    """Ends it for good; its runs and alerts stay. False if it was stopped."""
    return _to(found, WatchState.STOPPED, (WatchState.ACTIVE, WatchState.PAUSED), "stop", user, f"stopped by {user.get_username()}")


def pause_for(found: Watch, reason: str) -> bool:
    """The service's own pause, with the reason in words."""
    with transaction.atomic():
        paused = Watch.objects.filter(pk=found.pk, state=WatchState.ACTIVE).update(state=WatchState.PAUSED, note=reason[:500])
        if paused:
            _recorded(found, "pause", "the service", reason=reason)
    return bool(paused)


def _to(found: Watch, state: WatchState, sources: tuple[WatchState, ...], verb: str, user: User, note: str) -> bool:
    _refuse_unless_submits(user, found.team)
    with transaction.atomic():
        moved = Watch.objects.filter(pk=found.pk, state__in=sources).update(state=state, note=note, settled={})
        if moved:
            _recorded(found, verb, user)
    found.refresh_from_db()
    return bool(moved)


def acknowledge(alert: Alert, user: User, now: datetime, note: str = "") -> bool:
    """Somebody has seen it. False if somebody had before."""
    _refuse_unless_submits(user, alert.watch.team)
    note = storable(note.strip())
    if len(note) > MOST_NOTE:
        raise NotPossible(f"the note has {len(note)} characters", remedy=f"At most {MOST_NOTE}.")
    with transaction.atomic():
        done = Alert.objects.filter(pk=alert.pk, acknowledged_at=None).update(
            acknowledged_at=now, acknowledged_by=user, acknowledged_note=note
        )
        if done:
            _recorded(alert.watch, "acknowledge", user, after=f"alert {alert.pk}", reason=note)
    alert.refresh_from_db()
    return bool(done)


def _refuse_unless_submits(user: User, team: Team) -> None:
    if not may_submit(user, team):
        raise NotAllowed(f"your role in team {team.slug} may read only", remedy="Ask a maintainer of the team for the role submitter.")


def _recorded(found: Watch, verb: str, by: User | str, **words: str) -> None:
    audit.record(f"watch.{verb}", found.pk, found.experiment.name_to_maintainers, team=found.team, by=by, **words)

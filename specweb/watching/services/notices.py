"""What a team's channels are told: alerts, ended experiments, silent hosts. Writes rows; the workers send them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.urls import reverse
from speccore.jobstate import FINAL, JobState

from specweb import queue
from specweb.accounts.models import Team
from specweb.experiments.models import Experiment, Host, JobMove, Visibility
from specweb.watching.models import Alert, Channel, Delivery, Heard, Metric, Watch
from specweb.watching.notice_models import Event

#: Moves that are read again, since one that was numbered earlier may become visible later.
READ_AGAIN = 200
MOST_MOVES = 5_000
#: A host that fell silent longer ago is no news.
OLD_NEWS = timedelta(days=1)


def tell(team: Team, event: Event, key: str, subject: str, body: dict[str, Any], now: datetime) -> int:
    """One notice for each channel of the team that wants such; what was told before under the key is not told again."""
    wanted = Channel.objects.filter(team=team, disabled_at=None, events__contains=[event.value])
    return _queued([_delivery(c, event.value, key, subject, body, now) for c in wanted])


def send_test(channel: Channel, now: datetime, by: str) -> Delivery:
    """A notice that says it is a test, also to a channel that is disabled."""
    subject = f"A test of {channel.name}, asked for by {by}"
    body = {"event": "test", "team": channel.team.slug, "text": subject, "url": _url("notices")}
    made = _delivery(channel, "test", f"test:{now.isoformat()}", subject, body, now)
    _queued([made])
    return made


def _delivery(channel: Channel, event: str, key: str, subject: str, body: dict[str, Any], now: datetime) -> Delivery:
    return Delivery(channel=channel, event=event, key=key[:160], subject=subject[:300], body=body, created_at=now, next_try_at=now)


def _queued(rows: Sequence[Delivery]) -> int:
    if not rows:
        return 0
    made = Delivery.objects.bulk_create(rows, ignore_conflicts=True)
    transaction.on_commit(lambda: [queue.send("deliver", str(d.pk)) for d in made])
    return len(made)


def tell_of_alerts(watch: Watch, raised: Sequence[Alert], now: datetime) -> None:
    """All that one look found is one notice: a build that moves five numbers is one message, not five."""
    if not raised or watch.experiment.visibility == Visibility.PRIVATE:
        return  # what a private experiment is about is its submitter's alone
    lines = [in_words(a) for a in raised]
    worse = sum(not a.better for a in raised)
    subject = f"{watch.experiment.name}: {worse} worse, {len(raised) - worse} better"
    body = {
        "event": Event.ALERT.value,
        "team": watch.team.slug,
        "watch": str(watch.pk),
        "experiment": str(watch.experiment_id),
        "text": "\n".join([subject, *lines, _url("watch", watch.pk)]),
        "url": _url("watch", watch.pk),
        "alerts": [_alert(a) for a in raised],
    }
    tell(watch.team, Event.ALERT, f"alerts:{raised[0].pk}", subject, body, now)


def in_words(alert: Alert) -> str:
    """``mtp-5 on count@1 (c=1): speed-up worse, 2.41 → 2.21 (×0.92, 0.90–0.94) between build a and build b on xeon``."""
    n = alert.numbers
    digits = 3 if alert.metric == Metric.ACCEPTANCE else 2
    what = f"{alert.arm} at {alert.point}" if alert.arm else alert.point
    change = n["change"]
    return (
        f"{what}: {Metric(alert.metric).label} {alert.word}, {n['before']['estimate']:.{digits}f} → {n['after']['estimate']:.{digits}f} "
        f"(×{change['estimate']:.3f}, {change['low']:.3f}–{change['high']:.3f}) between {n['build_before'] or 'a build'} "
        f"and {n['build_after'] or 'a build'} on {alert.host.name}"
    )


def _alert(alert: Alert) -> dict[str, Any]:
    n = alert.numbers
    names = {name: n[name] for name in ("before", "after", "change", "build_before", "build_after")}
    return {
        "id": str(alert.pk),
        "host": alert.host.name,
        "arm": alert.arm,
        "point": alert.point,
        "metric": alert.metric,
        "better": alert.better,
        "shape": alert.shape,
        "job_before": str(alert.job_before_id),
        "job_after": str(alert.job_after_id),
    } | names


def _url(name: str, *args: Any) -> str:
    return settings.SPECWEB_BASE_URL + reverse(name, args=args)


def tell_of_ended(now: datetime) -> int:
    """Reads the moves of jobs since the last time; an experiment is told of when the last of its jobs has ended."""
    with transaction.atomic():
        Heard.objects.get_or_create(pk=1, defaults={"move": _newest_move()})
        heard = Heard.objects.select_for_update().get(pk=1)
        moves = JobMove.objects.filter(pk__gt=heard.move - READ_AGAIN, dst__in=[s.value for s in FINAL]).order_by("pk")
        found = list(moves.values_list("job__experiment_id", "at")[:MOST_MOVES])
        Heard.objects.filter(pk=1).update(move=max(heard.move, _newest_move()))
        teams = {c.team_id for c in Channel.objects.filter(disabled_at=None, events__contains=[Event.FINISHED.value])}
        asked = Experiment.objects.filter(pk__in={pk for pk, _ in found}, team__in=teams, repeat=None).exclude(
            visibility=Visibility.PRIVATE
        )
        rows: list[Delivery] = []
        for experiment in asked.select_related("team").prefetch_related("jobs"):
            if experiment.state in FINAL:
                rows += _of_ended(experiment, max(at for pk, at in found if pk == experiment.pk), now)
        return _queued(rows)


def _newest_move() -> int:
    return JobMove.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def _of_ended(experiment: Experiment, ended_at: datetime, now: datetime) -> list[Delivery]:
    words = "is finished" if experiment.state == JobState.PROCESSED else f"ended: {experiment.state.value}"
    subject = f"{experiment.name} {words}"
    url = _url("experiment", experiment.pk)
    body = {
        "event": Event.FINISHED.value,
        "team": experiment.team.slug,
        "experiment": str(experiment.pk),
        "state": experiment.state.value,
        "text": f"{subject}\n{url}",
        "url": url,
    }
    wanted = Channel.objects.filter(
        team=experiment.team, disabled_at=None, events__contains=[Event.FINISHED.value], created_at__lte=ended_at
    )
    last = max(str(j.pk) for j in experiment.jobs.all())
    return [_delivery(c, Event.FINISHED.value, f"finished:{experiment.pk}:{last}", subject, body, now) for c in wanted]


def tell_of_lost_hosts(now: datetime, *, silent_for: timedelta) -> int:
    """Of hosts that are silent for so long, once for each silence. Who drains a host expects its silence."""
    channels = Channel.objects.filter(disabled_at=None, events__contains=[Event.LOST.value]).select_related("team")
    by_team: dict[int, list[Channel]] = {}
    for channel in channels:
        by_team.setdefault(channel.team_id, []).append(channel)
    silent = Host.objects.filter(
        team__in=by_team, revoked_at=None, drain_requested_at=None, draining=False, last_seen_at__lt=now - silent_for
    ).filter(last_seen_at__gt=now - OLD_NEWS)
    rows: list[Delivery] = []
    for host in silent:
        assert host.last_seen_at is not None
        subject = f"{host.name} has not been heard of since {host.last_seen_at:%Y-%m-%d %H:%M} UTC"
        url = _url("host", host.pk)
        for channel in by_team[host.team_id]:
            if channel.created_at < host.last_seen_at:
                body = {"event": Event.LOST.value, "team": channel.team.slug, "host": host.name, "text": f"{subject}\n{url}", "url": url}
                key = f"lost:{host.pk}:{host.last_seen_at.isoformat()}"
                rows.append(_delivery(channel, Event.LOST.value, key, subject, body, now))
    return _queued(rows)

"""What the pages of watches show. No database access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from speccore.changes import LEAST_AFTER, LEAST_BEFORE
from speccore.questions import arm_words

from specweb.results.models import Listing
from specweb.watching.models import Alert, Metric, Watch, WatchState

from . import compare_history
from .chart_frame import Chart

#: Units of the metrics; a ratio and a share have none.
UNIT = {Metric.BASELINE: "tokens/s"}


@dataclass(frozen=True)
class AlertCard:
    """An alert in words, with links to both runs and to what each number was computed from."""

    alert: Alert
    what: str
    metric: str
    unit: str
    before: str
    before_range: str
    after: str
    after_range: str
    change: str
    change_range: str
    before_href: str
    after_href: str
    build_before: str
    build_after: str
    n_before: int
    n_after: int


def card(alert: Alert) -> AlertCard:
    n, metric = alert.numbers, Metric(alert.metric)
    digits = 3 if metric == Metric.ACCEPTANCE else 2
    return AlertCard(
        alert=alert,
        what=f"{alert.arm} at {alert.point}" if alert.arm else f"the baseline at {alert.point}",
        metric=metric.label,
        unit=UNIT.get(metric, ""),
        before=f"{n['before']['estimate']:.{digits}f}",
        before_range=_range(n["before"], digits),
        after=f"{n['after']['estimate']:.{digits}f}",
        after_range=_range(n["after"], digits),
        change=f"{100 * (n['change']['estimate'] - 1):+.1f} %",
        change_range=f"{100 * (n['change']['low'] - 1):+.1f} to {100 * (n['change']['high'] - 1):+.1f} %",
        before_href=_numbers(alert, alert.job_before_id),
        after_href=_numbers(alert, alert.job_after_id),
        build_before=n["build_before"] or "not told",
        build_after=n["build_after"] or "not told",
        n_before=len(n["before_jobs"]),
        n_after=len(n["after_jobs"]),
    )


def _range(level: dict[str, Any], digits: int) -> str:
    return f"{level['low']:.{digits}f}–{level['high']:.{digits}f}"


def _numbers(alert: Alert, job: Any) -> str:
    """The page of a run's numbers, where each leads to the lines of its raw files."""
    if not alert.arm:
        return reverse("evidence-list", args=[job])
    name = {Metric.RATIO: "speedup", Metric.ACCEPTANCE: "acceptance_rate"}[Metric(alert.metric)]
    return reverse("numbers", args=[job]) + "?" + urlencode({"arm": alert.arm, "point": alert.point}) + f"#{name}"


def trouble_of(watch: Watch, now: datetime, online_within: timedelta) -> str:
    """In words what keeps a watch from repeating anything; empty if nothing does."""
    if watch.state != WatchState.ACTIVE:
        return watch.note
    host = watch.host
    if host is not None and host.revoked_at:
        return f"{host.name} is gone: it was revoked. Stop this watch, and watch the experiment on another host."
    if host is not None and (host.last_seen_at is None or host.last_seen_at < now - online_within):
        seen = f"since {host.last_seen_at:%Y-%m-%d %H:%M} UTC" if host.last_seen_at else "and was never seen"
        return f"{host.name} is offline {seen}"
    return watch.note


@dataclass(frozen=True)
class Line:
    """One series to choose: an arm at a point on a host."""

    words: str
    href: str
    current: bool


def lines(found: Sequence[Listing], chosen: Sequence[Listing]) -> list[Line]:
    """The series that a watch has, in the order of the newest run's table."""
    seen: dict[tuple[Any, ...], Listing] = {}
    for shown in found:
        seen[_series(shown)] = shown
    here = _series(chosen[-1]) if chosen else None
    many = len({key[0] for key in seen}) > 1
    made = []
    for key, shown in seen.items():
        names = {shown.target_hash: shown.target, str(shown.question.get("arm.draft", "")): shown.helper}
        host = f" on {shown.host.name}" if many and shown.host else ""
        at = f", {shown.concurrency} at once" if shown.concurrency > 1 else ""
        asked = urlencode({"host": str(key[0]), "arm": key[1], "point": key[2]})
        made.append(Line(f"{shown.title}{at}: {arm_words(shown.question, names)}{host}", f"?{asked}#history", key == here))
    return made


def chosen_of(found: Sequence[Listing], asked: dict[str, str], first: Sequence[Alert]) -> list[Listing]:
    """The runs of one series: the one asked for, else that of the newest alert, else the recommended one's."""
    alert = next((a for a in first if a.arm), None)
    if asked.get("arm"):
        wanted = (asked.get("host", ""), asked["arm"], asked.get("point", ""))
    elif alert is not None:
        wanted = (str(alert.host_id), alert.arm, alert.point)
    else:
        best = next((s for s in reversed(found) if s.recommended), found[-1] if found else None)
        wanted = tuple(map(str, _series(best))) if best else ("", "", "")  # type: ignore[assignment]
    return [s for s in found if tuple(map(str, _series(s))) == wanted]


def _series(shown: Listing) -> tuple[Any, str, str]:
    return shown.host_id, shown.comparison.arm.name, shown.comparison.point.key


def history_of(found: Sequence[Listing]) -> compare_history.History | None:
    """As on Compare, of the watch's own runs alone."""
    if not found:
        return None
    shown = compare_history.history(found, more=False)
    need = LEAST_BEFORE + LEAST_AFTER
    empty = f"A history begins with the second run; alerts need {need} valid ones. The next new build on the host brings one."
    return replace(shown, chart=replace(shown.chart, empty=empty, remedy="", remedy_href=""))


def no_history() -> Chart:
    return Chart(
        name="history",
        title="Speed-up of each run",
        caption="in the order of time",
        label="Nothing yet",
        empty="No run of this watch has numbers yet. They come with the end of the first one.",
    )

"""The tasks: thin, short, idempotent. Each calls a service with the time and the limits."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from specweb import queue
from specweb.experiments.services.dispatch import dispatch_waiting
from specweb.experiments.services.silence import Limits, expire_silent_jobs
from specweb.results.partials import sweep_incoming
from specweb.results.queries import left_to_compare, left_to_parse
from specweb.results.services.comparing import compare_job
from specweb.results.services.looking import look_at_job
from specweb.results.services.parsing import parse_attempt, wake_comparison
from specweb.results.services.reports import create_trials
from specweb.watching.services.looking import look_at_ended
from specweb.watching.services.notices import tell_of_ended, tell_of_lost_hosts
from specweb.watching.services.repeating import repeat_due
from specweb.watching.services.sending import deliver as deliver_one
from specweb.watching.services.sending import due
from workers.app import app

#: What a message should have started long ago.
OVERDUE = timedelta(seconds=10)


@app.task(name=queue.TASKS["dispatch"])
def dispatch() -> None:
    dispatch_waiting(timezone.now(), online_within=timedelta(seconds=settings.SPECWEB_STALLED_AFTER_S), on_queued=create_trials)


@app.task(name=queue.TASKS["parse_attempt"])
def parse(attempt_id: str) -> None:
    if parse_attempt(UUID(attempt_id)):
        wake_comparison(UUID(attempt_id))


@app.task(name=queue.TASKS["compare_job"])
def compare(job_id: str) -> None:
    look_at_job(UUID(job_id))
    compare_job(UUID(job_id), timezone.now())


@app.task(name=queue.TASKS["sweep"])
def sweep() -> None:
    """Does what time asks for, and starts again what a lost message left."""
    now = timezone.now()
    limits = Limits(
        stalled_after=timedelta(seconds=settings.SPECWEB_STALLED_AFTER_S),
        host_lost_after=timedelta(seconds=settings.SPECWEB_HOST_LOST_AFTER_S),
        waiting_for=timedelta(seconds=settings.SPECWEB_WAITING_FOR_S),
    )
    expire_silent_jobs(now, limits)
    for attempt_id in left_to_parse(now - OVERDUE):
        queue.send("parse_attempt", str(attempt_id))
    for job_id in left_to_compare():
        queue.send("compare_job", str(job_id))
    sweep_incoming(now)


@app.task(name=queue.TASKS["watch"])
def watch() -> None:
    """Repeats what is watched, looks at what has ended, and tells who wants to know."""
    now = timezone.now()
    repeat_due(now, online_within=timedelta(seconds=settings.SPECWEB_STALLED_AFTER_S))
    look_at_ended(now)
    tell_of_ended(now)
    tell_of_lost_hosts(now, silent_for=timedelta(seconds=settings.SPECWEB_HOST_SILENT_S))
    for delivery_id in due(now):
        queue.send("deliver", str(delivery_id))


@app.task(name=queue.TASKS["deliver"])
def deliver(delivery_id: str) -> None:
    deliver_one(UUID(delivery_id), timezone.now())

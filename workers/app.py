"""The Celery application and its timetable; the database row is the truth, a message only wakes a worker."""

from __future__ import annotations

import os

import django
from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "specweb.settings")
django.setup()

from django.conf import settings  # noqa: E402  needs the line above

from specweb.queue import TASKS  # noqa: E402

app = Celery("specweb", broker=settings.BROKER_URL, include=["workers.tasks"])
app.conf.update(
    broker_connection_retry_on_startup=True,
    # A task whose worker was killed comes back after this; longer than any task may take.
    broker_transport_options={"visibility_timeout": 300},
    task_time_limit=240,
    task_soft_time_limit=210,
    task_acks_late=True,  # tasks are idempotent
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    beat_schedule={
        "dispatch": {"task": TASKS["dispatch"], "schedule": 5.0, "options": {"expires": 5}},
        "sweep": {"task": TASKS["sweep"], "schedule": 10.0, "options": {"expires": 10}},
        "watch": {
            "task": TASKS["watch"],
            "schedule": settings.SPECWEB_WATCH_EVERY_S,
            "options": {"expires": settings.SPECWEB_WATCH_EVERY_S},
        },
    },
)

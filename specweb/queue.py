"""Wakes the workers by task name, without importing them.

The database row is the truth and beat sweeps what a lost message left; so a broker that is away is logged, never raised.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from celery import Celery
from django.conf import settings
from kombu.exceptions import OperationalError

log = logging.getLogger(__name__)

TASKS = {
    "dispatch": "specweb.dispatch",
    "parse_attempt": "specweb.parse_attempt",
    "compare_job": "specweb.compare_job",
    "sweep": "specweb.sweep",
    "watch": "specweb.watch",
    "deliver": "specweb.deliver",
}
#: A request waits at most this long for a broker that is away.
CONNECT_S = 2


def send(task: str, *args: Any) -> bool:
    """Queues a task. ``args`` are JSON-able. Returns False if the broker didn't take it."""
    try:
        _producer().send_task(TASKS[task], args=args, retry=False, ignore_result=True)
    except (OperationalError, OSError) as error:
        log.warning("the broker didn't take %s%r, the sweep will find the work: %s", task, args, error)
        return False
    return True


@functools.cache
def _producer() -> Celery:
    app = Celery("specweb-sender", broker=settings.BROKER_URL, set_as_current=False)
    app.conf.broker_transport_options = {"socket_connect_timeout": CONNECT_S, "socket_timeout": CONNECT_S, "max_retries": 0}
    app.conf.broker_connection_timeout = CONNECT_S
    return app

"""How long a host may be silent and a job may wait, as the installation sets it."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings

from specweb.experiments.services.silence import Limits


def limits() -> Limits:
    """After how much silence a host is called stalled and lost, and how long a job waits."""
    return Limits(
        stalled_after=timedelta(seconds=settings.SPECWEB_STALLED_AFTER_S),
        host_lost_after=timedelta(seconds=settings.SPECWEB_HOST_LOST_AFTER_S),
        waiting_for=timedelta(seconds=settings.SPECWEB_WAITING_FOR_S),
    )

"""Cancels jobs."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from specweb.experiments.management.named import BY, for_each_job
from specweb.experiments.services.jobs import request_cancel


class Command(BaseCommand):
    help = "Cancels a job; one that runs is stopped by its agent within seconds. What was measured is kept."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="id of a job, or of an experiment: all its jobs")

    def handle(self, *args: Any, id: str, **options: Any) -> None:
        for_each_job(self, id, lambda job: request_cancel(job, now=timezone.now(), by=BY), "cancelled, or told to its agent")

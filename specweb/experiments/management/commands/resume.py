"""Ends the rest of jobs."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from specweb.experiments.management.named import BY, for_each_job
from specweb.experiments.services.jobs import resume_job


class Command(BaseCommand):
    help = "Ends a job's pause."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="id of a job, or of an experiment: all its jobs")

    def handle(self, *args: Any, id: str, **options: Any) -> None:
        for_each_job(self, id, lambda job: resume_job(job, now=timezone.now(), by=BY), "goes on")

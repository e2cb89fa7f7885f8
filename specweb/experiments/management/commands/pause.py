"""Lets jobs rest."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from specweb.experiments.management.named import BY, for_each_job
from specweb.experiments.services.jobs import request_pause


class Command(BaseCommand):
    help = "Lets a job rest until resume: its agent stops between two trials, a waiting one is not handed out."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="id of a job, or of an experiment: all its jobs")

    def handle(self, *args: Any, id: str, **options: Any) -> None:
        for_each_job(self, id, lambda job: request_pause(job, now=timezone.now(), by=BY), "rests, or will after the trial that runs")

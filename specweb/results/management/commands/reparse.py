"""Reads an experiment's evidence again with today's parser, and compares again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from specweb.results.models import Attempt
from specweb.results.services.comparing import compare_job
from specweb.results.services.parsing import parse_attempt

from .report import find_experiment


class Command(BaseCommand):
    help = "Adds a measurement set to each attempt of an experiment and a new analysis to each of its jobs; the old ones stay."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="id of an experiment or of a job")

    def handle(self, *args: Any, id: str, **options: Any) -> None:
        experiment = find_experiment(id)
        attempts = list(Attempt.objects.filter(trial__job__experiment=experiment).values_list("pk", flat=True))
        n_parsed = sum(parse_attempt(pk, again=True) for pk in attempts)
        n_compared = sum(compare_job(pk, timezone.now(), again=True) for pk in experiment.jobs.values_list("pk", flat=True))
        self.stdout.write(f"{n_parsed} of {len(attempts)} attempts read again, {n_compared} jobs compared again")
        for attempt in Attempt.objects.filter(pk__in=attempts, parse_error__isnull=False):
            error = attempt.parse_error or {}
            self.stderr.write(f"attempt {attempt.pk}: {error.get('message', '')} {error.get('remedy', '')}".rstrip())

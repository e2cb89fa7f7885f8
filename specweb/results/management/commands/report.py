"""Prints an experiment's comparisons: with their evidence as JSON, or as a table for people."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Q
from django.urls import reverse

from specweb.experiments.models import Experiment
from specweb.results.queries import experiment_report, experiment_text


class Command(BaseCommand):
    help = "Prints the comparisons and the evidence of an experiment (or of a job's experiment) as JSON, or with --table the comparisons as text."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="id of an experiment or of a job")
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="as it is without it; named so that scripts stay clear")
        form.add_argument("--table", action="store_true", help="as a table, with the answers and the failed checks")

    def handle(self, *args: Any, id: str, **options: Any) -> None:
        experiment = find_experiment(id)
        url = settings.SPECWEB_BASE_URL + reverse("experiment", args=[experiment.pk])
        if options["table"]:
            self.stdout.write(experiment_text(experiment) or "nothing is compared yet")
            return
        self.stdout.write(json.dumps(experiment_report(experiment, url), indent=2, allow_nan=False))


def find_experiment(text: str) -> Experiment:
    """The experiment with this id, or the one whose job has it."""
    try:
        wanted = UUID(text)
    except ValueError:
        raise CommandError(f"{text!r} is no id: give the UUID of an experiment or of a job", returncode=2) from None
    experiment = Experiment.objects.filter(Q(pk=wanted) | Q(jobs__pk=wanted)).first()
    if experiment is None:
        raise CommandError(f"there is no experiment and no job {wanted}", returncode=2)
    return experiment

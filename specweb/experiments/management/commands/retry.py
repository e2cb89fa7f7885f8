"""Tries failed jobs again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from speccore.errors import NotPossible

from specweb.experiments.management.named import BY, NOTHING_DONE, jobs_named
from specweb.experiments.services.jobs import retry_job


class Command(BaseCommand):
    help = "Puts a new job in the place of one that failed or was cancelled, and prints its id; the old one stays as history."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="id of a job, or of an experiment: all its jobs that failed or were cancelled")

    def handle(self, *args: Any, id: str, **options: Any) -> None:
        n_retried = 0
        for job in jobs_named(id):
            try:
                self.stdout.write(str(retry_job(job, now=timezone.now(), by=BY).pk))
                n_retried += 1
            except NotPossible as error:
                self.stderr.write(f"{error.message}. {error.remedy_text}")
        if not n_retried:
            raise CommandError("nothing was retried", returncode=NOTHING_DONE)

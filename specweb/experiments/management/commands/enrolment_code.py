"""Makes a one-time code with which a machine becomes a host."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from specweb.experiments.management.named import team_named
from specweb.experiments.services.hosts import create_enrolment_code


class Command(BaseCommand):
    help = "Prints a code with which one machine may become a host of the team, once and within a day: specweb-agent enrol."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--team", default="", help="short name of the team (default: the only one)")

    def handle(self, *args: Any, **options: Any) -> None:
        team = team_named(options["team"])
        self.stdout.write(create_enrolment_code(team, timezone.now()))
        self.stderr.write(f"On the new host of {team.slug}: specweb-agent enrol --server {settings.SPECWEB_BASE_URL} --code CODE")

"""Takes an archive that another server made, computes its numbers from its evidence, and tells what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse
from django.utils import timezone
from speccore.errors import SpecWebError

from specweb.accounts.models import Team, User
from specweb.experiments.models import Visibility
from specweb.results.import_queries import imported
from specweb.results.services.archives import compute_numbers, take_archive


class Command(BaseCommand):
    help = "Imports an archive of an experiment: every hash is checked first, and it is stored whole or not at all."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE")
        parser.add_argument("--team", required=True, metavar="SLUG", help="whose it becomes")
        parser.add_argument("--by", metavar="USER", help="who imports it: private workloads in it become theirs")
        parser.add_argument("--visibility", choices=Visibility.values, default=Visibility.TEAM.value)

    def handle(self, *args: Any, file: str, team: str, by: str | None, visibility: str, **options: Any) -> None:
        where = Team.objects.filter(slug=team).first()
        if where is None:
            known = ", ".join(Team.objects.order_by("slug").values_list("slug", flat=True)[:20]) or "none"
            raise CommandError(f"there is no team {team!r}; there are: {known}")
        user = User.objects.filter(username=by).first() if by else None
        if by and user is None:
            raise CommandError(f"there is no user {by!r}")
        now = timezone.now()
        try:
            taken = take_archive(Path(file), where, user, now, Visibility(visibility))
        except SpecWebError as error:
            problems = error.details.get("problems", [])[3:]
            raise CommandError("\n".join([f"{error.message}. {error.remedy_text}", *map(str, problems)])) from None
        except OSError as error:
            raise CommandError(f"{file} can't be read: {error.strerror or error}") from None
        compute_numbers(taken.experiment, now)
        url = settings.SPECWEB_BASE_URL + reverse("experiment", args=[taken.experiment.pk])
        self.stdout.write(f"{'imported' if taken.created else 'was here'}: {url}")
        found = imported(taken.experiment)
        assert found is not None
        self.stdout.write(f"measured on {found.row.measured_on}; evidence that the archive lacks: {found.lacking} files")
        self.stdout.write("the numbers computed here are those of the archive" if found.same else f"{found.n_differences} differ:")
        for d in found.differences:
            place = ", ".join(filter(None, (d.point, d.arm)))
            self.stdout.write(f"  {place}{': ' if place else ''}{d.what}: {d.there} there, {d.here} here")

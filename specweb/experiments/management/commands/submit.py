"""Submits an experiment from a YAML or JSON file."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse
from speccore.errors import SpecError
from speccore.jobstate import FINAL, JobState
from speccore.spec import ExperimentSpec, problem_lines

from specweb.accounts.models import Role, Team, User
from specweb.experiments.management.named import BAD_INPUT, team_named
from specweb.experiments.models import Experiment, Job, Visibility
from specweb.experiments.services.checking import check_yaml
from specweb.experiments.services.submission import submit

NOT_MEASURED = 3


class Command(BaseCommand):
    help = "Submits the experiment in FILE and prints its address. Exit codes: 0 done, 2 bad input, 3 with --wait: not measured."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help="the experiment, in YAML or JSON")
        parser.add_argument("--team", default="", help="short name of the team (default: the only one)")
        parser.add_argument("--user", default="", help="login name of the person who asks")
        parser.add_argument("--public", action="store_true", help="let everybody read the experiment")
        parser.add_argument(
            "--wait", action="store_true", help="wait until every job has ended, telling each change, then print the comparisons"
        )
        parser.add_argument("--json", action="store_true", help="print JSON on stdout")

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        team = team_named(options["team"])
        user = self._user(options["user"], team)
        spec = self._spec(file, team, user)
        try:
            experiment = submit(spec, team, user, Visibility.PUBLIC if options["public"] else Visibility.TEAM)
        except SpecError as error:  # what changed since it was checked
            raise CommandError(f"{file}: {error.message}", returncode=BAD_INPUT) from None
        url = settings.SPECWEB_BASE_URL + reverse("experiment", args=[experiment.pk])
        jobs = [str(pk) for pk in experiment.jobs.values_list("pk", flat=True)]
        if options["json"]:
            self.stdout.write(json.dumps({"experiment": str(experiment.pk), "url": url, "jobs": jobs}))
        else:
            self.stdout.write(f"{experiment.pk}\n{url}")
        if options["wait"]:
            self._wait(experiment, "" if options["json"] else url)

    def _spec(self, file: Path, team: Team, user: User | None) -> ExperimentSpec:
        try:
            text = file.read_bytes()
        except OSError as error:
            raise CommandError(f"{file} can't be read: {error.strerror}", returncode=BAD_INPUT) from None
        checked = check_yaml(text, team, user)
        if checked.spec is None:
            raise CommandError("\n".join([f"{file} is no valid experiment:", *problem_lines(checked.problems)]), returncode=BAD_INPUT)
        return checked.spec

    def _user(self, username: str, team: Team) -> User | None:
        if not username:
            return None
        user = User.objects.filter(username=username, is_active=True).first()
        if user is None:
            raise CommandError(f"--user: there is no active user {username!r}", returncode=BAD_INPUT)
        if user.role_in(team.pk) not in (Role.SUBMITTER, Role.MAINTAINER):
            raise CommandError(f"--user: {username} may not submit for team {team.slug}", returncode=BAD_INPUT)
        return user

    def _wait(self, experiment: Experiment, url: str) -> None:
        """With ``url`` it prints the comparisons at the end, and where they stand."""
        told: dict[Any, tuple[str, str]] = {}
        while True:
            jobs = list(Job.objects.current().filter(experiment=experiment).select_related("host"))
            for job in jobs:
                if told.get(job.pk) != (job.state, job.reason):
                    told[job.pk] = (job.state, job.reason)
                    where = f" on {job.host.name}" if job.host else ""
                    told_already = job.reason in ("", f"{job.state}{where}")
                    self.stderr.write(f"{job.state}{where}{'' if told_already else f': {job.reason}'}")
            if all(JobState(job.state) in FINAL for job in jobs):
                break
            time.sleep(1)
        if url:
            # By its name: what was asked for knows nothing of the package that keeps what came back.
            call_command("report", str(experiment.pk), table=True, stdout=self.stdout)
            self.stdout.write(url)
        if any(job.state != JobState.PROCESSED.value for job in jobs):
            raise CommandError("not every job was measured", returncode=NOT_MEASURED)

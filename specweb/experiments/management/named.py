"""What the commands' arguments name: a team, a host, the jobs of an experiment."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Q

from specweb.accounts.models import Team
from specweb.experiments.models import Host, Job

BAD_INPUT = 2
NOTHING_DONE = 3
#: Who did it, in the records of what a command changed.
BY = "manage.py"


def team_named(slug: str) -> Team:
    """The team, or the only one there is where none is named."""
    known = {t.slug: t for t in Team.objects.all()}
    if not slug and len(known) == 1:
        return next(iter(known.values()))
    if slug not in known:
        asked = f"there is no team {slug!r}" if slug else "name the team with --team"
        raise CommandError(f"{asked}; teams: {', '.join(known) or 'none, run bootstrap first'}", returncode=BAD_INPUT)
    return known[slug]


def host_named(name: str, team: str) -> Host:
    hosts = Host.objects.filter(**({"team": team_named(team)} if team else {})).select_related("team").order_by("team__slug", "name")
    found = [h for h in hosts if name in (h.name, str(h.pk))]
    if not found:
        known = ", ".join(h.name for h in hosts if not h.revoked_at) or "none"
        raise CommandError(f"there is no host {name!r}; hosts: {known}", returncode=BAD_INPUT)
    if len(found) > 1:
        teams = ", ".join(h.team.slug for h in found)
        raise CommandError(f"several teams have a host {name!r} ({teams}): name one with --team", returncode=BAD_INPUT)
    return found[0]


def jobs_named(text: str) -> list[Job]:
    """The job with this id, or the jobs of the experiment with this id, without those that a retry replaced."""
    try:
        wanted = UUID(text)
    except ValueError:
        raise CommandError(f"{text!r} is no id: give the UUID of an experiment or of a job", returncode=BAD_INPUT) from None
    jobs = list(Job.objects.filter(Q(pk=wanted) | Q(experiment=wanted, retry=None)))
    if not jobs:
        raise CommandError(f"there is no experiment and no job {wanted}", returncode=BAD_INPUT)
    return jobs


def for_each_job(command: BaseCommand, text: str, change: Callable[[Job], bool], done: str) -> None:
    """Changes the jobs that ``text`` names and tells each; an error if there was nothing to change."""
    changed = []
    for job in jobs_named(text):
        if change(job):
            changed.append(job)
            command.stdout.write(f"job {job.pk}: {done}")
        else:
            command.stderr.write(f"job {job.pk} is {job.state}: nothing to change")
    if not changed:
        raise CommandError("nothing was changed", returncode=NOTHING_DONE)

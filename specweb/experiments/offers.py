"""What somebody can choose from when they ask: a team's hosts with what these offer, workloads, earlier experiments."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db.models import F, IntegerField
from django.db.models.expressions import Func

from specweb.accounts.models import Membership, Role, Team
from specweb.experiments.models import Experiment, Host, Viewer, Workload


@dataclass(frozen=True)
class WorkloadOffer:
    name: str
    version: int
    title: str
    n_items: int
    own: bool  # the team's, not a built-in one


def maintainers_by_team(user: Viewer) -> dict[str, list[str]]:
    """The names of a person's teams, each with the login names of its maintainers (2 statements)."""
    teams = dict(Team.objects.filter(memberships__user_id=user.pk).order_by("name").values_list("pk", "name"))
    found: dict[str, list[str]] = {name: [] for name in teams.values()}
    rows = Membership.objects.filter(team__in=list(teams), role=Role.MAINTAINER, user__is_active=True).order_by("user__username")
    for team_id, username in rows.values_list("team_id", "user__username"):
        found[teams[team_id]].append(username)
    return found


def hosts_of(team: Team) -> list[Host]:
    """A team's hosts that are not revoked, with their newest inventories (1 statement)."""
    return list(Host.objects.filter(team=team, revoked_at=None).select_related("inventory").order_by("name"))


def workloads_of(team: Team, user: Viewer = None) -> list[WorkloadOffer]:
    """What a person of a team may ask with, by name, newest version first, without the prompts (1 statement)."""
    count = Func(F("content__items"), function="jsonb_array_length", output_field=IntegerField())
    rows = Workload.objects.offered_to(user, team).annotate(n_items=count).order_by("name", "-version", F("team_id").asc(nulls_last=True))
    return [WorkloadOffer(*row[:4], own=row[4] is not None) for row in rows.values_list("name", "version", "title", "n_items", "team_id")]


def recent_experiments(user: Viewer, n: int) -> list[Experiment]:
    """The newest that a person may read, without their specs (1 statement)."""
    return list(Experiment.objects.visible_to(user).defer("spec").order_by("-id")[:n])


def experiment_to_copy(user: Viewer, experiment_id: UUID) -> Experiment | None:
    return Experiment.objects.visible_to(user).filter(pk=experiment_id).first()

"""Prompt sets that experiments ask with: built-in ones and a team's own."""

from __future__ import annotations

from django.db import models
from speccore.workload import Workload as WorkloadContent

from specweb.accounts.models import Role, Team, User

from .viewer import Viewer, teams_of


class WorkloadQuerySet(models.QuerySet["Workload"]):
    def visible_to(self, user: Viewer) -> WorkloadQuerySet:
        """What a person may know of: what they may read, and as maintainers of a team that somebody there has a private one."""
        maintained = Team.objects.filter(memberships__user_id=user.pk, memberships__role=Role.MAINTAINER)
        return self.filter(_readable(user) | models.Q(team__in=maintained if user.pk else Team.objects.none()))

    def readable_to(self, user: Viewer) -> WorkloadQuerySet:
        """Whose prompts a person may read: built-in workloads, those that their teams share, their own."""
        return self.filter(_readable(user))

    def of_team(self, team: Team) -> WorkloadQuerySet:
        """Built-in workloads and all of a team's, whoever may read them: for its hosts, never for a person."""
        return self.filter(models.Q(team=None) | models.Q(team=team))

    def offered_to(self, user: Viewer, team: Team) -> WorkloadQuerySet:
        """What a person (None: anybody of the team) may ask with: built-in workloads, the team's shared ones, their own; none that is archived."""
        own = models.Q(owner_id=user.pk) if user is not None and user.pk else models.Q(pk=None)
        return self.of_team(team).filter(models.Q(private=False) | own, archived_at=None)


def _readable(user: Viewer) -> models.Q:
    shared = models.Q(private=False) | models.Q(owner_id=user.pk) if user.pk else models.Q(private=False)
    return models.Q(team=None) | models.Q(team__in=teams_of(user)) & shared


class Workload(models.Model):
    """One version of a workload. ``team`` None means built-in.

    Its content never changes. ``private``: for its owner only, until it is shared. ``archived_at``: offered no more.
    ``owner`` None: the team's, or of somebody who is gone.
    """

    team = models.ForeignKey(Team, on_delete=models.PROTECT, null=True, related_name="workloads")
    name = models.CharField(max_length=80)
    version = models.PositiveIntegerField()
    title = models.CharField(max_length=120)
    content_hash = models.CharField(max_length=64, db_index=True)
    content = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)
    owner = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    private = models.BooleanField(default=False)
    archived_at = models.DateTimeField(null=True)

    objects = WorkloadQuerySet.as_manager()

    class Meta:
        ordering = ["name", "-version"]
        constraints = [
            models.UniqueConstraint(fields=["team", "name", "version"], nulls_distinct=False, name="workload_version_once"),
            models.UniqueConstraint(fields=["team", "content_hash"], nulls_distinct=False, name="workload_content_once"),
        ]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def parsed(self) -> WorkloadContent:
        return WorkloadContent.model_validate(self.content)

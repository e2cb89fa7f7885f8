"""The audit log: one row for each change that somebody made, which nothing changes or removes any more."""

from __future__ import annotations

from typing import Any

from django.db import models


class AuditQuerySet(models.QuerySet["AuditEntry"]):
    def visible_to(self, user: Any) -> AuditQuerySet:
        """What happened in the teams that a person maintains, and what they did themselves."""
        if not user.pk or not user.is_active:
            return self.none()
        maintained = user.memberships.filter(role="maintainer").values_list("team_id", flat=True)
        return self.filter(models.Q(team_id__in=list(maintained)) | models.Q(actor_id=user.pk))


class AuditEntry(models.Model):
    """Who did what to which thing. People, teams and things are named by id and by what they were called then.

    No row refers to another by a foreign key: what is deleted leaves its history whole. The database refuses to change
    or delete a row (migration 0002).
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    actor_id = models.BigIntegerField(null=True)  # None: a program of the service's own, or nobody who is logged in
    actor = models.CharField(max_length=150, blank=True)
    via = models.CharField(max_length=20)  # page, token, agent, command
    token = models.CharField(max_length=100, blank=True)  # name and first characters of the token that was used
    action = models.CharField(max_length=60)  # kind.verb
    kind = models.CharField(max_length=30)
    object_id = models.CharField(max_length=64, blank=True)
    name = models.CharField(max_length=200, blank=True)
    team_id = models.BigIntegerField(null=True)
    team = models.CharField(max_length=120, blank=True)
    before = models.TextField(blank=True)
    after = models.TextField(blank=True)
    reason = models.TextField(blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    address = models.CharField(max_length=45, blank=True)

    objects = AuditQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["team_id", "-id"], name="audit_of_team"),
            models.Index(fields=["actor_id", "-id"], name="audit_of_actor"),
        ]

    def __str__(self) -> str:
        return f"{self.actor or 'the service'}: {self.action} {self.name or self.object_id}"

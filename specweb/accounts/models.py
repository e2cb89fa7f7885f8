"""Who: people, their teams and roles, and the secrets that stand for a person."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils import timezone

from .audit_models import AuditEntry as AuditEntry
from .people_models import Invitation as Invitation
from .people_models import OidcIdentity as OidcIdentity
from .scopes import all_scopes


class User(AbstractUser):
    """A person. What one may do follows from memberships, never from ``is_staff``."""

    email_confirmed_at = models.DateTimeField(null=True, blank=True)  # when mail to ``email`` was seen to reach this person

    def role_in(self, team_id: int) -> str | None:
        """The role in a team, or None for a stranger."""
        return self.memberships.filter(team_id=team_id).values_list("role", flat=True).first()


class Team(models.Model):
    slug = models.SlugField(max_length=60, unique=True)
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(auto_now_add=True)
    members = models.ManyToManyField(User, through="Membership", related_name="teams")

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    VIEWER = "viewer", "viewer"
    SUBMITTER = "submitter", "submitter"
    MAINTAINER = "maintainer", "maintainer"

    @property
    def may(self) -> str:
        """What the role allows, in words."""
        return {
            "viewer": "read experiments, their evidence and the hosts",
            "submitter": "read; submit experiments; cancel, pause, resume and retry their jobs",
            "maintainer": "all that a submitter may; add, drain and revoke hosts; give and take roles",
        }[self.value]


class Membership(models.Model):
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=12, choices=Role, default=Role.VIEWER)
    by_group = models.BooleanField(default=False)  # follows from a group at the identity provider, and goes with it

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "team"], name="membership_once")]

    @property
    def may(self) -> str:
        return Role(self.role).may


class ApiToken(models.Model):
    """A person's token: shown once, stored as prefix and hash. Without ``expires_at`` it stands until it is revoked."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=12)
    hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    scopes = models.JSONField(default=all_scopes)
    expires_at = models.DateTimeField(null=True)

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= timezone.now()


class LoginLink(models.Model):
    """A one-time way in from the machine itself: a random secret, stored as its hash."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

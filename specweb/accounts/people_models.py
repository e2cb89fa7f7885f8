"""How people come in: invitations to a team, and logins of an identity provider that stand for an account."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models

if TYPE_CHECKING:
    from .models import Team, User


class Invitation(models.Model):
    """Lets who has its secret into a team, ``max_uses`` times until it expires. With ``email`` only an account of that address."""

    team: models.ForeignKey[Team] = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=12)
    email = models.EmailField(blank=True)
    hash = models.CharField(max_length=64, unique=True)
    made_by: models.ForeignKey[User] = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    max_uses = models.PositiveIntegerField(default=1)
    n_used = models.PositiveIntegerField(default=0)
    mailed = models.BooleanField(default=False)  # its secret went to ``email`` by mail and was shown to nobody
    withdrawn_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        constraints = [models.CheckConstraint(condition=models.Q(n_used__lte=models.F("max_uses")), name="invitation_not_overused")]

    def state(self, now: datetime) -> str:
        """In a word what becomes of who uses it now."""
        if self.withdrawn_at:
            return "withdrawn"
        if self.n_used >= self.max_uses:
            return "used up"
        return "expired" if self.expires_at <= now else "open"


class OidcIdentity(models.Model):
    """An account at an identity provider, by what never changes there. E-mail addresses do, so none is ever matched."""

    user: models.ForeignKey[User] = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="oidc_identities")
    issuer = models.CharField(max_length=300)
    subject = models.CharField(max_length=255)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="oidc_identity_once")]

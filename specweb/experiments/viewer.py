"""Who looks: a person, or a visitor without an account."""

from __future__ import annotations

from typing import Any

from django.db import models

from specweb.accounts.models import Team

Viewer = Any  # User or AnonymousUser


def teams_of(user: Viewer) -> models.QuerySet[Team]:
    """None for a visitor: a filter on no user at all would match the teams that have no member."""
    return Team.objects.filter(memberships__user_id=user.pk) if user.pk else Team.objects.none()

"""Writes about people: teams, memberships, one-time login links."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from .models import LoginLink, Membership, Role, Team, User
from .tokens import hash_of, new_secret

LOGIN_LINK_LIFE = timedelta(minutes=10)


def create_login_link(user: User, now: datetime) -> str:
    """A secret that logs its user in once within ten minutes."""
    secret, digest = new_secret("once")
    LoginLink.objects.create(user=user, hash=digest, expires_at=now + LOGIN_LINK_LIFE)
    return secret


def use_login_link(secret: str, now: datetime) -> User | None:
    """The user of a link that is known, in time and unused; the link is used up."""
    link = LoginLink.objects.filter(hash=hash_of(secret), used_at=None, expires_at__gt=now).select_related("user").first()
    if link is None or not LoginLink.objects.filter(pk=link.pk, used_at=None).update(used_at=now):
        return None
    return link.user if link.user.is_active else None


def ensure_member(team_slug: str, team_name: str, username: str, role: Role) -> tuple[Team, User]:
    """Makes team, user and membership where they are missing. A new user has no password: a login link is the way in."""
    team, _ = Team.objects.get_or_create(slug=team_slug, defaults={"name": team_name})
    user, created = User.objects.get_or_create(username=username)
    if created:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    Membership.objects.update_or_create(team=team, user=user, defaults={"role": role})
    return team, user


def role_of(user: Any, team: Team) -> str | None:
    """The role of a person (or visitor) in a team; None for a stranger and for who may not log in."""
    return user.role_in(team.pk) if user.pk and user.is_active else None


def may_submit(user: Any, team: Team) -> bool:
    """Whether somebody may submit experiments for a team, and cancel, pause and retry its jobs."""
    return role_of(user, team) in (Role.SUBMITTER, Role.MAINTAINER)


def may_maintain(user: Any, team: Team) -> bool:
    """Whether somebody may enrol, drain and revoke a team's hosts."""
    return role_of(user, team) == Role.MAINTAINER


def teams_maintained(user: Any) -> QuerySet[Team]:
    """Teams whose hosts a person may enrol, drain and revoke."""
    return Team.objects.filter(memberships__user_id=user.pk, memberships__role=Role.MAINTAINER).order_by("name")

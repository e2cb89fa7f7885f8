"""Writes about people: teams, memberships, one-time login links."""

from __future__ import annotations

from datetime import datetime, timedelta

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

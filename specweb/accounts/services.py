"""Writes about people: teams, memberships, one-time login links, tokens for programs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from . import audit
from .models import ApiToken, Invitation, LoginLink, Membership, Role, Team, User
from .scopes import Scope
from .tokens import hash_of, new_secret

LOGIN_LINK_LIFE = timedelta(minutes=10)
#: Begins every person's token, so that one that lies around is known for what it is.
PEOPLES_KIND = "swt"
PREFIX_LENGTH = 12
#: A token's last use is told to the minute: a write with each request would tell no more.
LAST_USED_STEP = timedelta(minutes=1)
MAX_TOKENS = 50
#: Unless its maker chooses otherwise.
TOKEN_LIFE = timedelta(days=90)
LONGEST_LIFE = timedelta(days=3 * 366)
#: So long an expired token is still shown to its owner, who may wonder what stopped.
EXPIRED_SHOWN = timedelta(days=30)


class AccountError(Exception):
    """What can't be done to an account, a token or a team, in words for the person who asked."""


class TokenRefused(AccountError):
    """A token that was good once: revoked, or of somebody who may not log in any more."""


def create_login_link(user: User, now: datetime) -> str:
    """A secret that logs its user in once within ten minutes."""
    secret, digest = new_secret("once")
    with transaction.atomic():
        LoginLink.objects.create(user=user, hash=digest, expires_at=now + LOGIN_LINK_LIFE)
        audit.record("account.login-link", user.pk, user.get_username(), after=f"until {now + LOGIN_LINK_LIFE:%H:%M:%S} UTC")
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


def create_token(
    user: User, name: str, *, scopes: Sequence[str] = tuple(Scope.values), life: timedelta | None = TOKEN_LIFE
) -> tuple[ApiToken, str]:
    """A token with which a program acts as its user, and the secret, which is shown once and stored as its hash only.

    It does what ``scopes`` name, for as long as ``life``, None: until it is revoked. Raises :class:`AccountError` for a name
    that is empty, too long or taken, for no or unknown scopes, a life that can't be, and for too many tokens.
    """
    _refuse_odd_token(scopes, life)
    now = timezone.now()
    name = " ".join(name.replace("\x00", "").split())
    longest = ApiToken._meta.get_field("name").max_length or 0
    if not name:
        raise AccountError("A token needs a name, such as the machine or program that uses it.")
    if len(name) > longest:
        raise AccountError(f"The name has {len(name)} characters, at most {longest} are kept.")
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=user.pk)  # orders two requests of the same person
        valid = ApiToken.objects.filter(_unexpired(now), user=user, revoked_at=None)
        if valid.filter(name=name).exists():
            raise AccountError(f"You have a token {name!r} already: take another name, or revoke that one first.")
        if valid.count() >= MAX_TOKENS:
            raise AccountError(f"You have {MAX_TOKENS} tokens, which is the most: revoke one first.")
        secret, digest = new_secret(PEOPLES_KIND)
        token = ApiToken.objects.create(
            user=user,
            name=name,
            prefix=secret[:PREFIX_LENGTH],
            hash=digest,
            scopes=[s for s in Scope.values if s in scopes],
            expires_at=now + life if life else None,
        )
        audit.record("token.make", token.pk, f"{name} ({token.prefix}…)", by=user)
    return token, secret


def _refuse_odd_token(scopes: Sequence[str], life: timedelta | None) -> None:
    unknown = [s for s in scopes if s not in Scope.values]
    if unknown:
        raise AccountError(f"{unknown[0][:40]!r} is no scope. Scopes: {', '.join(Scope.values)}.")
    if not scopes:
        raise AccountError(f"A token needs at least one scope: {', '.join(Scope.values)}.")
    if life is not None and not timedelta(0) < life <= LONGEST_LIFE:
        raise AccountError(f"A token lives from 1 to {LONGEST_LIFE.days:,} days, or for ever.")


def _unexpired(now: datetime) -> Q:
    return Q(expires_at=None) | Q(expires_at__gt=now)


def revoke_token(user: User, token_id: int, now: datetime) -> ApiToken | None:
    """Ends a token of this very person for good. None if it is not theirs, or was revoked before."""
    with transaction.atomic():
        if not ApiToken.objects.filter(pk=token_id, user=user, revoked_at=None).update(revoked_at=now):
            return None
        token = ApiToken.objects.get(pk=token_id)
        audit.record("token.revoke", token.pk, f"{token.name} ({token.prefix}…)", by=user)
    return token


def token_of(secret: str, now: datetime) -> ApiToken | None:
    """The token with the person that it stands for, None for an unknown one. Raises :class:`TokenRefused`."""
    token = ApiToken.objects.filter(hash=hash_of(secret)).select_related("user").first()
    if token is None:
        return None
    if token.revoked_at:
        raise TokenRefused(f"the token {token.name!r} was revoked on {token.revoked_at:%Y-%m-%d at %H:%M:%S} UTC")
    if not token.user.is_active:
        raise TokenRefused(f"the account {token.user.get_username()!r} of this token is closed")
    if token.expires_at and token.expires_at <= now:
        raise TokenRefused(f"the token {token.name!r} expired on {token.expires_at:%Y-%m-%d at %H:%M:%S} UTC")
    if token.last_used_at is None or token.last_used_at <= now - LAST_USED_STEP:
        stale = Q(last_used_at=None) | Q(last_used_at__lte=now - LAST_USED_STEP)
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
    audit.acts_by_token(token)
    return token


def set_role(team: Team, user: User, role: Role | None) -> None:
    """Gives a person a role in a team, or with None takes them out of it. Who is no maintainer any more leaves no open invitation.

    Raises :class:`AccountError` if the team would be left without a maintainer who may log in.
    """
    with transaction.atomic():
        Team.objects.select_for_update(no_key=True).get(pk=team.pk)  # two maintainers may take the role from each other at once
        others = Membership.objects.filter(team=team, role=Role.MAINTAINER, user__is_active=True).exclude(user=user)
        was = Membership.objects.filter(team=team, user=user).values_list("role", flat=True).first()
        if was == Role.MAINTAINER and role != Role.MAINTAINER and not others.exists():
            raise AccountError(f"{user.get_username()} is the last maintainer of {team.name}: make somebody else a maintainer first.")
        if role is None:
            Membership.objects.filter(team=team, user=user).delete()
        else:
            Membership.objects.update_or_create(team=team, user=user, defaults={"role": role, "by_group": False})
        if was == Role.MAINTAINER and role != Role.MAINTAINER:
            _withdraw_invitations(team, user)
        if was != role:
            audit.record(
                "member.role", user.pk, user.get_username(), team=team, before=was or "not in the team", after=role or "not in the team"
            )


def _withdraw_invitations(team: Team, user: User) -> None:
    """Those that a person made: with the link of one they could come back."""
    now = timezone.now()
    for invitation in Invitation.objects.filter(team=team, made_by=user, withdrawn_at=None, expires_at__gt=now, n_used__lt=F("max_uses")):
        Invitation.objects.filter(pk=invitation.pk).update(withdrawn_at=now)
        why = f"{user.get_username()} is no maintainer any more"
        audit.record("invitation.withdraw", invitation.pk, team=team, reason=why)


def end_sessions(user: User, *, but: str | None, now: datetime) -> int:
    """Logs a person out in every browser, but in the one whose session key is given. Returns how many that were."""
    open_ = Session.objects.filter(expire_date__gt=now).exclude(session_key=but)
    theirs = [s.session_key for s in open_.iterator() if s.get_decoded().get(SESSION_KEY) == str(user.pk)]
    Session.objects.filter(session_key__in=theirs).delete()
    audit.record("account.end-sessions", user.pk, user.get_username(), after=f"{len(theirs)} ended")
    return len(theirs)


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


def teams_submitted(user: Any) -> QuerySet[Team]:
    """Teams for which a person may submit experiments."""
    may = [Role.SUBMITTER, Role.MAINTAINER]
    return Team.objects.filter(memberships__user_id=user.pk, memberships__role__in=may).order_by("name")


def team_of(user: Any, slug: str) -> Team | None:
    """A person's team by its slug; None also for one of others."""
    return Team.objects.filter(slug=slug, memberships__user_id=user.pk).first()


def memberships_of(user: Any) -> list[Membership]:
    """A person's teams with their role in each (1 statement)."""
    return list(Membership.objects.filter(user_id=user.pk).select_related("team").order_by("team__name"))


def members_of(team: Team) -> list[Membership]:
    """Who is in a team, maintainers first (1 statement)."""
    order = [Role.MAINTAINER, Role.SUBMITTER, Role.VIEWER]
    rows = Membership.objects.filter(team=team).select_related("user")
    return sorted(rows, key=lambda m: (order.index(Role(m.role)), m.user.get_username()))


def tokens_of(user: User) -> list[ApiToken]:
    """A person's tokens that are not revoked, newest first; those that expired long ago are left out (1 statement)."""
    return list(ApiToken.objects.filter(_unexpired(timezone.now() - EXPIRED_SHOWN), user=user, revoked_at=None).order_by("-pk"))

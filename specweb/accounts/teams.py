"""Making, renaming and leaving teams, and closing accounts."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from . import audit
from .models import ApiToken, Invitation, Membership, Role, Team, User
from .services import AccountError, end_sessions

#: Words of addresses, which no team may be called.
TAKEN_SLUGS = {"new"}


def may_make_teams(user: User) -> bool:
    return bool(user.pk and user.is_active and settings.SPECWEB_USERS_MAKE_TEAMS)


def create_team(by: User, name: str, slug: str) -> Team:
    """A team whose first maintainer is who makes it. Raises :class:`AccountError` that names the field."""
    if not may_make_teams(by):
        raise AccountError(
            "Whoever runs the service makes the teams here: manage.py member NAME TEAM maintainer --team-name 'NAME OF TEAM'"
        )
    team = Team(slug=slug.replace("\x00", "").strip().lower(), name=_clean_name(name))
    if team.slug in TAKEN_SLUGS:
        raise AccountError(f"slug: {team.slug!r} is a word of SpecWeb's own addresses: take another.")
    _check(team)
    try:
        with transaction.atomic():
            team.save()
            Membership.objects.create(team=team, user=by, role=Role.MAINTAINER)
            audit.record("team.make", team.pk, team.name, team=team, by=by, after=f"{team.name} ({team.slug})")
    except IntegrityError:  # another request was first
        raise AccountError(f"slug: there is a team {team.slug!r} already.") from None
    return team


def rename_team(team: Team, name: str) -> None:
    """Gives a team another name; its short name stays, since addresses and programs hold it."""
    with transaction.atomic():
        row = Team.objects.select_for_update(no_key=True).get(pk=team.pk)
        was, row.name = row.name, _clean_name(name)
        _check(row)
        if row.name == was:
            return
        row.save(update_fields=["name"])
        audit.record("team.rename", row.pk, row.name, team=row, before=was, after=row.name)
    team.name = row.name


def _clean_name(name: str) -> str:
    return " ".join(name.replace("\x00", "").split())


def _check(team: Team) -> None:
    try:
        team.full_clean()
    except ValidationError as error:
        raise AccountError("; ".join(f"{field}: {' '.join(texts)}" for field, texts in error.message_dict.items())) from None


def close_account(user: User, now: datetime) -> None:
    """Ends somebody's logins, tokens and invitations at once and for good; what they did stays under their name.

    Raises :class:`AccountError` if a team would be left without a maintainer who may log in.
    """
    with transaction.atomic():
        theirs = Team.objects.filter(memberships__user=user, memberships__role=Role.MAINTAINER).order_by("pk")
        for team in Team.objects.select_for_update(no_key=True).filter(pk__in=list(theirs.values_list("pk", flat=True))).order_by("pk"):
            others = team.memberships.exclude(user=user)
            if others.exists() and not others.filter(role=Role.MAINTAINER, user__is_active=True).exists():
                raise AccountError(f"{user.get_username()} is the last maintainer of {team.name}: make somebody else a maintainer first.")
        if not User.objects.filter(pk=user.pk, is_active=True).update(is_active=False):
            return
        n_tokens = ApiToken.objects.filter(user=user, revoked_at=None).update(revoked_at=now)
        Invitation.objects.filter(made_by=user, withdrawn_at=None, expires_at__gt=now).update(withdrawn_at=now)
        n_sessions = end_sessions(user, but=None, now=now)
        after = f"closed; {n_sessions} logins and {n_tokens} tokens ended"
        audit.record("account.close", user.pk, user.get_username(), before="open", after=after)
        for team in Team.objects.filter(memberships__user=user):
            audit.record("account.close", user.pk, user.get_username(), team=team, before="open", after=after)
    user.is_active = False


def reopen_account(user: User) -> bool:
    """Lets somebody log in again, with their memberships; tokens stay revoked. False if the account was open."""
    with transaction.atomic():
        if not User.objects.filter(pk=user.pk, is_active=False).update(is_active=True):
            return False
        audit.record("account.reopen", user.pk, user.get_username(), before="closed", after="open")
    user.is_active = True
    return True

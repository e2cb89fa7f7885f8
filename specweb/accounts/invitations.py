"""Inviting people into a team by a link whose secret is stored as its hash only, and accounts made with one."""

from __future__ import annotations

import smtplib
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import F
from django.urls import reverse

from . import audit
from .mail_rates import refuse_too_much
from .models import Invitation, Membership, Role, Team, User
from .services import AccountError
from .tokens import hash_of, new_secret

SECRET_KIND = "invite"  # noqa: S105 the first letters of a secret, not one
DAYS = range(1, 91)
USES = range(1, 101)
MOST_OPEN = 100
_RANK = [Role.VIEWER, Role.SUBMITTER, Role.MAINTAINER]


class InvitationRefused(AccountError):
    """An invitation that nobody, or not this person, can use."""


@dataclass(frozen=True)
class Made:
    """``url`` is there for whoever shall pass the link on; empty where it went by mail. ``mail_error``: why it didn't."""

    invitation: Invitation
    url: str
    mail_error: str = ""


def mail_works() -> bool:
    """Whether this service has an SMTP server to send with."""
    return bool(settings.EMAIL_HOST)


def invite(team: Team, by: User, *, role: str, now: datetime, email: str = "", days: int = 7, uses: int = 1) -> Made:
    """An invitation. With an address and where mail works the link goes there and is shown to nobody.

    Raises :class:`AccountError` that names what is wrong.
    """
    email = email.replace("\x00", "").strip()
    _check(role, email, days, uses)
    if email and mail_works():
        refuse_too_much(by, email)
    secret, digest = new_secret(SECRET_KIND)
    with transaction.atomic():
        Team.objects.select_for_update(no_key=True).get(pk=team.pk)
        if len([i for i in team.invitations.filter(withdrawn_at=None, expires_at__gt=now) if i.state(now) == "open"]) >= MOST_OPEN:
            raise AccountError(f"{team.name} has {MOST_OPEN} open invitations, which is the most: withdraw some first.")
        made = Invitation.objects.create(
            team=team, role=role, email=email, hash=digest, made_by=by, expires_at=now + timedelta(days=days), max_uses=uses
        )
        whom = email or (f"{uses} people" if uses > 1 else "one person")
        after = f"{role}, for {whom}, until {made.expires_at:%Y-%m-%d %H:%M} UTC"
        audit.record("invitation.make", made.pk, team=team, by=by, after=after)
    url = settings.SPECWEB_BASE_URL + reverse("join", args=[secret])
    if not (email and mail_works()):
        return Made(made, url)
    error = _mailed(email, team, by, role, url, made.expires_at)
    if not error:
        Invitation.objects.filter(pk=made.pk).update(mailed=True)
        made.mailed = True
    return Made(made, "" if made.mailed else url, error)


def _check(role: str, email: str, days: int, uses: int) -> None:
    if role not in Role.values:
        raise AccountError(f"role: {role[:40]!r} is no role; roles: {', '.join(Role.values)}.")
    if days not in DAYS:
        raise AccountError(f"days: {days} is not from {DAYS[0]} to {DAYS[-1]}: an invitation lasts that long.")
    if uses not in USES:
        raise AccountError(f"uses: {uses} is not from {USES[0]} to {USES[-1]}: so many people can use one link.")
    if email:
        try:
            validate_email(email)
        except ValidationError:
            raise AccountError(f"email: {email[:80]!r} is no e-mail address.") from None
        if uses != 1:
            raise AccountError("uses: an invitation to one address is for one person; leave the number at 1.")


def _mailed(email: str, team: Team, by: User, role: str, url: str, until: datetime) -> str:
    """Sends the link; why that failed, or nothing."""
    text = (
        f"{by.get_username()} invites you to the team {team.name} as {role}.\n\nOpen this to join:\n{url}\n\n"
        f"It works once, until {until:%Y-%m-%d %H:%M} UTC. If you didn't expect it, leave it be: nothing happens then.\n"
    )
    subject = " ".join(f"Invitation to {team.name} on SpecWeb".split())
    try:
        EmailMessage(subject, text, to=[email]).send()
    except (OSError, smtplib.SMTPException) as error:
        return f"the mail could not be sent ({type(error).__name__}): pass the link on yourself"
    return ""


def withdraw(team: Team, invitation_id: int, now: datetime) -> bool:
    """Ends an invitation that is still open. False if there is none, or it had ended."""
    with transaction.atomic():
        open_ = Invitation.objects.filter(pk=invitation_id, team=team, withdrawn_at=None, n_used__lt=F("max_uses"), expires_at__gt=now)
        if not open_.update(withdrawn_at=now):
            return False
        audit.record("invitation.withdraw", invitation_id, team=team)
    return True


def invitation_of(secret: str, now: datetime) -> Invitation:
    """The open invitation behind a secret. Raises :class:`InvitationRefused`, in words."""
    found = Invitation.objects.filter(hash=hash_of(secret)).select_related("team", "made_by").first()
    if found is None:
        raise InvitationRefused("This invitation is unknown here. See whether the whole link was copied.")
    state = found.state(now)
    if state != "open":
        raise InvitationRefused(f"This invitation is {state}. Ask a maintainer of the team for a new one.")
    return found


def accept(secret: str, user: User, now: datetime) -> Membership:
    """Takes a person into the team. Who has that role or a higher one already uses nothing up.

    Raises :class:`InvitationRefused` if it is used up, withdrawn or too old by now, or bound to another address.
    """
    invitation = invitation_of(secret, now)
    if invitation.email and not _reaches(user, invitation.email):
        raise InvitationRefused(
            f"This invitation is for {invitation.email}, and your account has no such confirmed address. "
            "Confirm it on your account page, or log out and make an account with the link."
        )
    with transaction.atomic():
        return _take_in(invitation, user, now)


def _reaches(user: User, email: str) -> bool:
    return user.email.casefold() == email.casefold() and user.email_confirmed_at is not None


def _take_in(invitation: Invitation, user: User, now: datetime) -> Membership:
    team = Team.objects.select_for_update(no_key=True).get(pk=invitation.team_id)  # orders it with changes of roles
    there = Membership.objects.filter(team=team, user=user).first()
    if there is not None and _RANK.index(Role(there.role)) >= _RANK.index(Role(invitation.role)):
        return there
    use = Invitation.objects.filter(pk=invitation.pk, withdrawn_at=None, expires_at__gt=now, n_used__lt=F("max_uses"))
    if not use.update(n_used=F("n_used") + 1):
        raise InvitationRefused("Somebody else has just used this invitation up. Ask a maintainer of the team for a new one.")
    joined, _ = Membership.objects.update_or_create(team=team, user=user, defaults={"role": invitation.role, "by_group": False})
    was = there.role if there else "not in the team"
    why = f"invitation {invitation.pk}" + (f" of {invitation.made_by.get_username()}" if invitation.made_by else "")
    audit.record("member.join", user.pk, user.get_username(), team=team, by=user, before=was, after=joined.role, reason=why)
    return joined


def sign_up(username: str, password: str, email: str, now: datetime, *, secret: str = "") -> User:
    """A new account, with an invitation taken into its team. Raises :class:`InvitationRefused`, and then nothing is made.

    The caller has checked name and password. An address is confirmed only if the invitation went there by mail.
    """
    if not secret and not settings.SPECWEB_OPEN_SIGNUP:
        raise InvitationRefused("An account is made with an invitation to a team.")
    with transaction.atomic():
        invitation = invitation_of(secret, now) if secret else None
        bound = invitation.email if invitation else ""
        user = User(username=username, email=bound or email)
        user.email_confirmed_at = now if invitation and bound and invitation.mailed else None
        user.set_password(password)
        user.save()
        audit.record("account.make", user.pk, username, by=user, after="by invitation" if invitation else "signed up")
        if invitation:
            _take_in(invitation, user, now)
    return user


def invitations_of(team: Team, now: datetime) -> list[Invitation]:
    """The open ones, newest first (1 statement)."""
    rows = team.invitations.filter(withdrawn_at=None, expires_at__gt=now, n_used__lt=F("max_uses")).select_related("made_by")
    return list(rows)

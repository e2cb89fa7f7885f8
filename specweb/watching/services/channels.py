"""Making, changing and removing channels; only a team's maintainers do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from speccore.errors import NotAllowed, NotPossible

from specweb.accounts import audit
from specweb.accounts.invitations import mail_works
from specweb.accounts.models import Team, User
from specweb.accounts.services import may_maintain
from specweb.experiments.text import storable
from specweb.watching import outside, signing
from specweb.watching.models import Channel, Delivery
from specweb.watching.notice_models import Event, Kind
from specweb.watching.queries import may_get_mail

from .notices import send_test

MOST_CHANNELS = 20
LONGEST_NAME = 80
#: Tests of one channel that may be sent in the time.
MOST_TESTS, TESTS_WITHIN = 5, timedelta(minutes=10)


def create_channel(team: Team, user: User, *, kind: str, name: str, target: str, events: Sequence[str]) -> Channel:
    """A new channel; its ``secret`` is to be shown once. Raises :class:`NotAllowed`, or :class:`NotPossible` that names the field."""
    _refuse_unless_maintains(user, team)
    name, target, events = storable(name.strip()), storable(target.strip()), list(dict.fromkeys(events))
    if kind not in Kind.values:
        raise NotPossible(f"kind is {kind[:40]!r}", remedy=f"Known: {', '.join(Kind.values)}.")
    if not name or len(name) > LONGEST_NAME:
        raise NotPossible(f"name has {len(name)} characters", remedy=f"1 to {LONGEST_NAME}.")
    if not events or (odd := [e for e in events if e not in Event.values]):
        raise NotPossible(f"events: {odd[0][:40]!r} is none" if events else "events are none", remedy=f"Known: {', '.join(Event.values)}.")
    _refuse_target(team, kind, target)
    secret = "" if kind == Kind.EMAIL else signing.new_secret()
    try:
        with transaction.atomic():
            Team.objects.select_for_update(no_key=True).get(pk=team.pk)
            if Channel.objects.filter(team=team).count() >= MOST_CHANNELS:
                raise NotPossible(f"the team has {MOST_CHANNELS} channels, as many as it may", remedy="Remove one first.")
            made = Channel.objects.create(team=team, kind=kind, name=name, target=target, secret=secret, events=events, created_by=user)
            audit.record("channel.create", made.pk, name, team=team, by=user, after=f"{kind} to {made.shown_target}: {', '.join(events)}")
    except IntegrityError:
        raise NotPossible(f"name: the team has a channel {name!r}", remedy="Give it another name.") from None
    return made


def _refuse_target(team: Team, kind: str, target: str) -> None:
    if kind != Kind.EMAIL:
        try:
            outside.checked_url(target, settings.SPECWEB_NOTICE_ALLOW)
        except outside.Refused as error:
            raise NotPossible(f"target: {error}", remedy="Give an https:// address on the public Internet.") from None
        return
    if not mail_works():
        raise NotPossible("kind: this service has no mail", remedy="Whoever runs it sets EMAIL_HOST; a webhook needs none.")
    try:
        validate_email(target)
    except ValidationError:
        raise NotPossible(f"target: {target[:80]!r} is no e-mail address", remedy="Give one address.") from None
    if not may_get_mail(team, target):
        raise NotPossible(
            f"target: {target[:80]!r} is no confirmed address of a member of the team",
            remedy="Its owner confirms it on the account page, or whoever runs the service allows its domain (SPECWEB_NOTICE_MAIL_DOMAINS).",
        )


def enable_channel(channel: Channel, user: User) -> bool:
    """Tries again with a channel that was disabled. False if it was not."""
    _refuse_unless_maintains(user, channel.team)
    with transaction.atomic():
        done = Channel.objects.filter(pk=channel.pk).exclude(disabled_at=None).update(disabled_at=None, disabled_reason="", n_failed=0)
        if done:
            audit.record("channel.enable", channel.pk, channel.name, team=channel.team, by=user)
    channel.refresh_from_db()
    return bool(done)


def delete_channel(channel: Channel, user: User) -> None:
    """With its log."""
    _refuse_unless_maintains(user, channel.team)
    with transaction.atomic():
        audit.record(
            "channel.delete", channel.pk, channel.name, team=channel.team, by=user, before=f"{channel.kind} to {channel.shown_target}"
        )
        channel.delete()


def test_channel(channel: Channel, user: User, now: datetime) -> Delivery:
    _refuse_unless_maintains(user, channel.team)
    recent = Delivery.objects.filter(channel=channel, event="test", created_at__gt=now - TESTS_WITHIN).count()
    if recent >= MOST_TESTS:
        raise NotPossible(f"{recent} tests were sent within ten minutes", remedy="Wait a little.")
    with transaction.atomic():
        audit.record("channel.test", channel.pk, channel.name, team=channel.team, by=user)
        return send_test(channel, now, user.get_username())


def _refuse_unless_maintains(user: User, team: Team) -> None:
    if not may_maintain(user, team):
        raise NotAllowed(f"your role in team {team.slug} is not maintainer", remedy="Ask a maintainer of the team.")

"""Sending a notice, trying again what may come right, and giving up on channels that never take any."""

from __future__ import annotations

import json
import smtplib
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import F

from specweb.accounts import audit
from specweb.accounts.invitations import mail_works
from specweb.watching import outside, signing
from specweb.watching.models import Channel, Delivery
from specweb.watching.notice_models import DeliveryState, Kind
from specweb.watching.queries import may_get_mail

#: After the first try, the second, …; with the last one a notice is given up.
AGAIN_AFTER = [timedelta(minutes=m) for m in (1, 5, 30, 120, 360)]
#: A worker that took a notice has so long; then another may.
TAKEN_FOR = timedelta(minutes=3)
#: Notices in a row that were given up, until a channel is disabled.
MOST_FAILED = 5
#: Statuses that a later try may mend; of the others below 500 none does.
COMES_RIGHT = (408, 425, 429)
GONE = 410


@dataclass(frozen=True)
class Outcome:
    """``error`` empty: it was taken. ``permanent``: no later try will do. ``gone``: nor will any other notice."""

    error: str = ""
    status: int | None = None
    permanent: bool = False
    gone: bool = False


def due(now: datetime) -> list[UUID]:
    """Notices whose time has come, which a lost message or an earlier failure left."""
    waiting = Delivery.objects.filter(state=DeliveryState.WAITING, next_try_at__lte=now)
    return list(waiting.order_by("next_try_at").values_list("pk", flat=True)[:200])


def deliver(delivery_id: UUID, now: datetime) -> bool:
    """One try. False if it is not its time, or somebody else has it."""
    mine = Delivery.objects.filter(pk=delivery_id, state=DeliveryState.WAITING, next_try_at__lte=now)
    if mine.update(next_try_at=now + TAKEN_FOR, n_tries=F("n_tries") + 1) != 1:
        return False
    delivery = Delivery.objects.select_related("channel__team").get(pk=delivery_id)
    channel = delivery.channel
    if channel.disabled_at and delivery.event != "test":
        outcome = Outcome(f"the channel was disabled: {channel.disabled_reason}", permanent=True)
    else:
        outcome = _mailed(delivery) if channel.kind == Kind.EMAIL else _posted(delivery, now)
    _settle(delivery, outcome, now)
    return True


def _mailed(delivery: Delivery) -> Outcome:
    if not mail_works():
        return Outcome("this service has no mail: EMAIL_HOST is not set", permanent=True)
    if not may_get_mail(delivery.channel.team, delivery.channel.target):
        return Outcome("it is no confirmed address of a member of the team any more", permanent=True)
    text = f"{delivery.body.get('text', delivery.subject)}\n\nYou get this since {delivery.channel.name} of {delivery.channel.team.name} "
    text += f"is a channel for notices: {settings.SPECWEB_BASE_URL}/notices/\n"
    subject = " ".join(f"[SpecWeb] {delivery.subject}".split())
    headers = {"Auto-Submitted": "auto-generated", "X-SpecWeb-Delivery": str(delivery.pk)}
    try:
        EmailMessage(subject, text, to=[delivery.channel.target], headers=headers).send()
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        return Outcome(f"the mail server refuses the address ({codes[0]})", permanent=all(code >= 500 for code in codes))
    except smtplib.SMTPResponseException as error:
        return Outcome(f"the mail server answered {error.smtp_code}", permanent=error.smtp_code >= 500)
    except (OSError, smtplib.SMTPException) as error:
        return Outcome(f"the mail could not be sent ({type(error).__name__})")
    return Outcome()


def _posted(delivery: Delivery, now: datetime) -> Outcome:
    channel = delivery.channel
    content = {"text": delivery.body.get("text", delivery.subject)} if channel.kind == Kind.SLACK else delivery.body
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    sent_at = int(now.timestamp())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "SpecWeb",
        signing.EVENT: delivery.event,
        signing.DELIVERY: str(delivery.pk),
        signing.TIMESTAMP: str(sent_at),
        signing.SIGNATURE: signing.signature(channel.secret, sent_at, body),
    }
    try:
        answer = outside.post(channel.target, body, headers, allowed=settings.SPECWEB_NOTICE_ALLOW)
    except outside.Refused as error:
        return Outcome(str(error), permanent=True)
    except outside.Failed as error:
        return Outcome(str(error))
    if 200 <= answer.status < 300:
        return Outcome(status=answer.status)
    words = "it answered with a redirect, which is not followed" if 300 <= answer.status < 400 else f"it answered {answer.status}"
    told = " ".join(answer.text.split())[:120]
    lasting = answer.status < 500 and answer.status not in COMES_RIGHT
    return Outcome(f"{words}{': ' + told if told else ''}", answer.status, permanent=lasting, gone=answer.status == GONE)


def _settle(delivery: Delivery, outcome: Outcome, now: datetime) -> None:
    """Writes how it went; the end of a notice counts for its channel."""
    told = {"status": outcome.status, "error": outcome.error.replace("\x00", "")[:300]}
    mine = Delivery.objects.filter(pk=delivery.pk, state=DeliveryState.WAITING)
    with transaction.atomic():
        if not outcome.error:
            mine.update(state=DeliveryState.SENT, sent_at=now, next_try_at=None, **told)
            Channel.objects.filter(pk=delivery.channel_id).update(n_failed=0)
        elif outcome.permanent or delivery.n_tries > len(AGAIN_AFTER):
            mine.update(state=DeliveryState.FAILED, next_try_at=None, **told)
            if delivery.event != "test":
                _count_against(delivery.channel, outcome, now)
        else:
            mine.update(next_try_at=now + AGAIN_AFTER[delivery.n_tries - 1], **told)


def _count_against(channel: Channel, outcome: Outcome, now: datetime) -> None:
    row = Channel.objects.select_for_update().filter(pk=channel.pk).first()
    if row is None:
        return  # it was removed meanwhile
    row.n_failed += 1
    row.save(update_fields=["n_failed"])
    if row.disabled_at or not (outcome.gone or row.n_failed >= MOST_FAILED):
        return
    why = "its address is gone for good" if outcome.gone else f"{row.n_failed} notices in a row were given up"
    reason = f"{why}; the last: {outcome.error}"[:300]
    Channel.objects.filter(pk=channel.pk).update(disabled_at=now, disabled_reason=reason)
    audit.record("channel.disable", channel.pk, channel.name, team=channel.team, by="the service", reason=reason)

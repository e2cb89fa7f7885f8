"""An account's e-mail address: set by its owner, confirmed by a link that was mailed there."""

from __future__ import annotations

import smtplib
from datetime import datetime

from django.conf import settings
from django.core import signing
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email
from django.db import transaction
from django.urls import reverse

from . import audit
from .invitations import mail_works
from .mail_rates import refuse_too_much
from .models import User
from .services import AccountError

_SALT = "specweb.accounts.email"
CONFIRM_WITHIN_S = 24 * 3600


def set_email(user: User, email: str) -> bool:
    """Stores an address, not confirmed yet. True if a link to confirm it was mailed. Raises :class:`AccountError`."""
    email = email.replace("\x00", "").strip()
    if email:
        try:
            validate_email(email)
        except ValidationError:
            raise AccountError(f"{email[:80]!r} is no e-mail address.") from None
    if email == user.email and (user.email_confirmed_at or not email):
        return False
    if email and mail_works():
        refuse_too_much(user, email)
    with transaction.atomic():
        was = user.email
        User.objects.filter(pk=user.pk).update(email=email, email_confirmed_at=None)
        user.email, user.email_confirmed_at = email, None
        audit.record("account.email", user.pk, user.get_username(), by=user, before=was or "none", after=email or "none")
    return bool(email) and mail_works() and _mail_link(user)


def _mail_link(user: User) -> bool:
    token = signing.dumps([user.pk, user.email], salt=_SALT)
    url = settings.SPECWEB_BASE_URL + reverse("account-email-confirm", args=[token])
    text = f"Open this while you are logged in as {user.get_username()}, within a day, to confirm that this address is yours:\n{url}\n"
    try:
        EmailMessage("Confirm your address on SpecWeb", text, to=[user.email]).send()
    except (OSError, smtplib.SMTPException) as error:
        raise AccountError(f"The address is kept, but the mail to confirm it could not be sent ({type(error).__name__}).") from None
    return True


def confirm_email(user: User, token: str, now: datetime) -> bool:
    """Whether the link is of this person and of the address that the account still has; then that is confirmed."""
    try:
        whose, email = signing.loads(token, salt=_SALT, max_age=CONFIRM_WITHIN_S)
    except (signing.BadSignature, ValueError, TypeError):
        return False
    if whose != user.pk or email != user.email or not email:
        return False
    with transaction.atomic():
        if User.objects.filter(pk=user.pk, email=email, email_confirmed_at=None).update(email_confirmed_at=now):
            audit.record("account.confirm-email", user.pk, user.get_username(), by=user, after=email)
    return True

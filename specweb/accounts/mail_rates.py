"""How much mail people may cause: counted by who asks and by whose mailbox it is, so that nobody's is flooded through us."""

from __future__ import annotations

from django.conf import settings

from .models import User
from .rates import Rate, Standing, count
from .services import AccountError

HOUR_S = 3600
#: One mailbox gets this part of what one person may cause.
MAILBOX_PART = 6


def mailed_too_often(who: str, to: str) -> Standing | None:
    """Counts a mail from ``who`` to an address; where that is one too many, until when to wait."""
    most = settings.SPECWEB_MAILS_PER_HOUR
    if not most:
        return None
    for rate, key in ((Rate("mails", most, HOUR_S), who), (Rate("mails-to", max(1, most // MAILBOX_PART), HOUR_S), to.casefold())):
        standing = count(rate, key)
        if standing is not None and standing.over:
            return standing
    return None


def refuse_too_much(by: User, to: str) -> None:
    """Counts a mail that a person asks for. Raises :class:`AccountError` for one too many."""
    if standing := mailed_too_often(f"user {by.pk}", to):
        raise AccountError(f"email: too many mails were asked for in this hour. Wait {-(-standing.reset_s // 60)} min, then try again.")

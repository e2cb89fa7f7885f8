"""How often a program may ask: by its token, or without one by its address; told in headers, and when to come again."""

from __future__ import annotations

from collections.abc import MutableMapping

from django.conf import settings
from django.http import HttpRequest
from speccore.errors import ServerError

from specweb.accounts.models import ApiToken
from specweb.accounts.rates import Rate, Standing, address_of, count


class TooManyRequests(ServerError):
    code = "too_many_requests"
    retry = True

    def __init__(self, standing: Standing, of: str) -> None:
        words = f"{standing.most:,} requests a minute are answered {of}"
        super().__init__(words, remedy=f"Ask again in {standing.reset_s} s.", retry_after_s=standing.reset_s)


def count_token(token: ApiToken, kind: str) -> Standing | None:
    """``kind``: "requests", or "uploads" of evidence files, of which a run has many."""
    most = settings.SPECWEB_UPLOADS_PER_MINUTE if kind == "uploads" else settings.SPECWEB_REQUESTS_PER_MINUTE
    return count(Rate(f"api-{kind}", most), str(token.pk))


def count_stranger(request: HttpRequest) -> Standing | None:
    return count(Rate("api-open", settings.SPECWEB_OPEN_REQUESTS_PER_MINUTE), address_of(request))


def tell(standing: Standing | None, headers: MutableMapping[str, str]) -> None:
    """Writes the headers of an answer."""
    if standing is not None:
        headers["RateLimit-Limit"] = str(standing.most)
        headers["RateLimit-Remaining"] = str(standing.left)
        headers["RateLimit-Reset"] = str(standing.reset_s)

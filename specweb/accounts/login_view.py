"""The login form: as Django's, and who guesses passwords is slowed down.

Times are counted by name and address together, so that nobody locks somebody else out, and by address for all names.
"""

from __future__ import annotations

import unicodedata
from typing import Any

from django.conf import settings
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse

from .rates import Rate, Standing, address_of, count

#: One address may try so many names more than one name: a team behind one address logs in, too.
NAMES_AT_ONE_ADDRESS = 10


class Login(LoginView):
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        standing = too_often(request)
        if standing is None:
            return super().post(request, *args, **kwargs)
        form = self.get_form_class()(request, initial={"username": request.POST.get("username", "")[:150]})
        answer = self.render_to_response(self.get_context_data(form=form, wait=wait_words(standing)))
        answer.status_code = 429
        answer["Retry-After"] = str(standing.reset_s)
        return answer


def wait_words(standing: Standing) -> str:
    return f"Too many tries from here. Wait {standing.reset_s} s, then try again."


def too_often(request: HttpRequest) -> Standing | None:
    """Counts a try with the name of a form; where that was one too many, until when to wait."""
    # As the form reads names: "ａlice" with a wide letter logs in as alice.
    address, name = address_of(request), unicodedata.normalize("NFKC", request.POST.get("username", "").strip()).casefold()
    most = settings.SPECWEB_LOGINS_PER_MINUTE
    for rate, who in ((Rate("login", most), f"{address} {name}"), (Rate("logins", most * NAMES_AT_ONE_ADDRESS), address)):
        standing = count(rate, who)
        if standing is not None and standing.over:
            return standing
    return None

"""The way to the login provider and back, and linking a login to one's account. Read, call, answer."""

from __future__ import annotations

import logging
from typing import Any

import jwt
import requests
from django.contrib import messages
from django.core.exceptions import SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from mozilla_django_oidc import views as library

from .oidc import LINKING, OidcRefused, is_on, setting
from .views import posted

log = logging.getLogger(__name__)
FAILED = "The login by your provider did not work. Try again, or log in with a password."


class _Start(library.OIDCAuthenticationRequestView):
    get_settings = staticmethod(setting)


class _Callback(library.OIDCAuthenticationCallbackView):
    get_settings = staticmethod(setting)

    def login_failure(self) -> HttpResponse:
        self.request.oidc_refused = getattr(self.request, "oidc_refused", FAILED)
        return super().login_failure()  # type: ignore[no-any-return]


@require_GET
@never_cache
def start(request: HttpRequest) -> HttpResponse:
    """To the provider. It is reached by a link, never by a form: a form may only lead to this service itself."""
    if not is_on():
        raise Http404
    try:
        return _Start.as_view()(request)
    except OidcRefused as error:
        return _back(request, str(error))


@require_GET
@never_cache
def callback(request: HttpRequest) -> HttpResponse:
    """Back from it. Whatever is wrong with what it brings, the login page says so in a sentence, and the log why."""
    if not is_on():
        raise Http404
    linking = request.session.get(LINKING)
    if "error" in request.GET:  # the library would log out whoever is logged in, and any page can send a person here
        log.info("the provider refused a login: %r", request.GET["error"][:80])
        return _back(request, FAILED)
    try:
        answer: HttpResponse = _Callback.as_view()(request)
    except OidcRefused as error:
        return _back(request, str(error))
    except (SuspiciousOperation, requests.RequestException, jwt.PyJWTError, KeyError, ValueError, TypeError) as error:
        log.warning("a login by the provider is refused: %s", error)
        return _back(request, FAILED)
    refused = getattr(request, "oidc_refused", "")
    if refused or not request.user.is_authenticated:
        return _back(request, refused or FAILED)
    if linking:
        messages.success(request, "The login is linked: from now on it leads to this account.")
        return redirect("account")
    return answer


def _back(request: HttpRequest, words: str) -> HttpResponse:
    """A wish to link a login is over with the try that it was for."""
    request.session.pop(LINKING, None)
    messages.error(request, words)
    return redirect("account" if request.user.is_authenticated else "login")


@posted
def link(request: HttpRequest) -> HttpResponse:
    """Notes who asks, and shows the link to the provider."""
    if not is_on():
        raise Http404
    request.session[LINKING] = request.user.pk
    return render(request, "accounts/oidc_link.html")


def context(request: HttpRequest) -> dict[str, Any]:
    """For the templates of login and account."""
    return {"oidc_on": is_on()}

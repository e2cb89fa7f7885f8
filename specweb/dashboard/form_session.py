"""What was typed outlives a session: answers to a form that was sent logged out, with an old token, or too large."""

from __future__ import annotations

import logging
from typing import Any

from django.contrib.auth import login
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import REASON_CSRF_TOKEN_MISSING, REASON_NO_CSRF_COOKIE
from django.shortcuts import render
from django.urls import Resolver404, resolve
from django.utils.encoding import escape_uri_path
from django.views.defaults import bad_request as plain_bad_request
from speccore.yamltext import MAX_BYTES, data_to_yaml

from specweb.accounts.login_view import too_often, wait_words
from specweb.experiments import offers

from .form_data import data_of
from .form_page import read_sent

log = logging.getLogger(__name__)

#: Fields that are not carried on.
_NOT_CARRIED = frozenset({"csrfmiddlewaretoken", "do", "username", "password"})


def log_in_and_go_on(request: HttpRequest) -> HttpResponse | None:
    """For a form that came without a session: logs in with the name and password that came along, or asks for them. None: logged in."""
    if request.POST.get("do") != "login":
        return ended(request)
    if standing := too_often(request):
        answer = ended(request, wait=wait_words(standing))
        answer.status_code, answer["Retry-After"] = 429, str(standing.reset_s)
        return answer
    form = AuthenticationForm(request, data=request.POST)
    if not form.is_valid():
        return ended(request, form)
    login(request, form.get_user())
    # What was asked for before may have been a submission: a person who just logged in sees first what they are about to send.
    request.POST = request.POST.copy()
    request.POST["do"] = "resume"
    return None


def ended(request: HttpRequest, login_form: AuthenticationForm | None = None, wait: str = "") -> HttpResponse:
    """A page that asks to log in and holds all that was typed; for a script, a sentence in the place for notices."""
    if request.headers.get("HX-Request"):
        return _notice(request, "dashboard/_form_ended.html", {})
    context = {"login_form": login_form or AuthenticationForm(request), "carried": _carried(request), "wait": wait}
    return render(request, "dashboard/form_ended.html", context, status=403)


def not_allowed(request: HttpRequest) -> HttpResponse:
    """Says why somebody can't submit, and who can change that."""
    return render(request, "dashboard/form_not_allowed.html", {"teams": offers.maintainers_by_team(request.user)}, status=403)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The token was of an earlier login, or the page came from elsewhere. The experiment form gets its text back, to be sent again by hand."""
    if not _is_form(request) or not _is_ours(request, reason):
        return render(request, "403_csrf.html", status=403)
    if request.headers.get("HX-Request"):
        return _notice(request, "dashboard/_form_ended.html", {"old": True})
    return render(request, "dashboard/form_old.html", {"carried": _carried(request)}, status=403)


def _is_form(request: HttpRequest) -> bool:
    try:
        return resolve(request.path_info).url_name in ("experiment-new", "experiment-preview")
    except Resolver404:
        return False


def _is_ours(request: HttpRequest, reason: str) -> bool:
    """Only the token was wrong: a foreign origin or referrer is refused before the token is looked at, with another reason."""
    return reason in (REASON_NO_CSRF_COOKIE, REASON_CSRF_TOKEN_MISSING) or reason.startswith("CSRF token from POST")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """A form that is too large for the service, in words."""
    if not isinstance(exception, TooManyFieldsSent | TooManyFilesSent | RequestDataTooBig):
        return plain_bad_request(request, exception)
    log.info("POST %s refused, too large: %s", escape_uri_path(request.path), exception)
    context = {"too_many": isinstance(exception, TooManyFieldsSent), "too_many_files": isinstance(exception, TooManyFilesSent)}
    if request.headers.get("HX-Request"):
        return _notice(request, "dashboard/_form_too_large.html", context)
    return render(request, "dashboard/form_too_large.html", context, status=400)


def _notice(request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
    # Status 200, since a script swaps nothing else in; the form itself stays as it is.
    answer = render(request, template, context)
    answer["HX-Retarget"], answer["HX-Reswap"] = "#form-notice", "innerHTML"
    return answer


def _carried(request: HttpRequest) -> list[tuple[str, str]]:
    """What was typed, to be carried on as hidden fields; the text of a chosen file too, since a page can't choose it again."""
    pairs = [(name, text) for name, texts in request.POST.lists() for text in texts if name not in _NOT_CARRIED]
    file = request.FILES.get("file")
    if file is None or file.size > MAX_BYTES:
        return pairs
    before = data_to_yaml(data_of(read_sent(pairs).typed))
    own = {"view": "yaml", "yaml": file.read().decode("utf-8", "replace"), "before": before}
    return [pair for pair in pairs if pair[0] not in own] + list(own.items())

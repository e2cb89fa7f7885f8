"""The one-time login from the machine itself, and what people do to their own accounts. Read, call, answer."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import PasswordChangeForm, SetPasswordForm
from django.contrib.auth.views import redirect_to_login
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from . import audit, token_form
from .invitations import mail_works
from .services import AccountError, create_token, end_sessions, memberships_of, revoke_token, tokens_of, use_login_link
from .teams import may_make_teams

View = Callable[..., HttpResponse]


@require_safe
@never_cache
def login_once(request: HttpRequest, secret: str) -> HttpResponse:
    """Logs in from loopback only. A link preview's HEAD request doesn't use the link up."""
    if request.method == "HEAD":
        return HttpResponse()
    user = use_login_link(secret, timezone.now()) if _is_loopback(request) else None
    if user is None:
        messages.error(request, "This login link is used up, too old, or was opened from another machine. Ask for a new one.")
        return redirect(settings.LOGIN_URL)
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return redirect(settings.LOGIN_REDIRECT_URL)


def _is_loopback(request: HttpRequest) -> bool:
    """By the peer's own address; a proxy in front makes every peer look local, so then nobody is."""
    if "X-Forwarded-For" in request.headers or "Forwarded" in request.headers:
        return False
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


@require_safe
@login_required
@never_cache
def account(request: HttpRequest) -> HttpResponse:
    return account_page(request)


def posted(view: View) -> View:
    """A form of the account page. After the login that a visitor is sent to, the page is the way back: the address takes POST only."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return redirect_to_login(reverse("account"))
        return view(request, *args, **kwargs)

    return require_POST(never_cache(checked))


@posted
def make_token(request: HttpRequest) -> HttpResponse:
    """The token is shown in this one answer and never again."""
    form = token_form.read(request.POST)
    try:
        token, secret = create_token(request.user, form.name, scopes=form.scopes, life=form.life)
    except AccountError as error:
        return account_page(request, 400, **replace(form, error=str(error)).context())
    url = settings.SPECWEB_BASE_URL + reverse("api-me")
    return render(request, "accounts/token_made.html", {"token": token, "secret": secret, "api_url": url})


@posted
def end_token(request: HttpRequest, token_id: int) -> HttpResponse:
    token = revoke_token(request.user, token_id, timezone.now())
    if token is None:
        messages.info(request, "There is no such token of yours, or it was revoked before.")
    else:
        messages.success(request, f"The token {token.name} is revoked: it is refused from now on.")
    return redirect("account")


@posted
def password(request: HttpRequest) -> HttpResponse:
    form = _password_form(request, request.POST)
    if not form.is_valid():
        return account_page(request, 400, password_form=form)
    with transaction.atomic():
        update_session_auth_hash(request, form.save())
        audit.record("account.password", request.user.pk, request.user.get_username())
    messages.success(request, "Your password is changed. Every other browser is logged out; tokens stay valid.")
    return redirect("account")


@posted
def log_out_elsewhere(request: HttpRequest) -> HttpResponse:
    n = end_sessions(request.user, but=request.session.session_key, now=timezone.now())
    messages.success(request, f"Logged out in {n} other {'browser' if n == 1 else 'browsers'}. Tokens stay valid.")
    return redirect("account")


def _password_form(request: HttpRequest, data: Any = None) -> Any:
    """With the old password for who has one; who came by a login link sets a first one."""
    kind = PasswordChangeForm if request.user.has_usable_password() else SetPasswordForm
    form = kind(request.user, data, label_suffix="")
    for bound in form.visible_fields():
        bound.field.widget.attrs.pop("autofocus", None)  # the page is about more than the password
    return form


def account_page(request: HttpRequest, status: int = 200, **fields: Any) -> HttpResponse:
    context = {
        "memberships": memberships_of(request.user),
        "tokens": tokens_of(request.user),
        **token_form.TokenForm().context(),
        "password_form": _password_form(request),
        "mail_works": mail_works(),
        "email_value": request.user.email,
        "may_make_teams": may_make_teams(request.user),
        **fields,
    }
    return render(request, "accounts/account.html", context, status=status)

"""The one-time login from the machine itself."""

from __future__ import annotations

import ipaddress

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from .services import use_login_link


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

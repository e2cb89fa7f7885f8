"""An account's address, and a lost password that is reset by mail. Read, call, answer."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import views as django_views
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import PasswordResetForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse_lazy
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from . import audit
from .emails import confirm_email, set_email
from .invitations import mail_works
from .mail_rates import mailed_too_often
from .rates import address_of
from .services import AccountError
from .views import account_page, posted


@posted
def email(request: HttpRequest) -> HttpResponse:
    address = request.POST.get("email", "")
    try:
        mailed = set_email(request.user, address)
    except AccountError as error:
        return account_page(request, 400, email_value=address, email_error=str(error))
    words = "Your address is kept." if request.user.email else "Your address is gone."
    messages.success(request, f"{words} Open the link that was mailed there to confirm it." if mailed else words)
    return redirect("account")


@require_safe
@login_required
def confirm(request: HttpRequest, token: str) -> HttpResponse:
    if confirm_email(request.user, token, timezone.now()):
        messages.success(request, f"{request.user.email} is confirmed.")
    else:
        messages.error(request, "This link is too old, or of another account or address. Set the address again for a new one.")
    return redirect("account")


class ResetForm(PasswordResetForm):
    """Mails only to addresses that were confirmed, so that nobody is sent what another person typed in."""

    def get_users(self, email: str) -> Any:
        return [user for user in super().get_users(email) if user.email_confirmed_at]


class Reset(django_views.PasswordResetView):
    """Says the same whether the address is known or not; without mail it says who else can help."""

    form_class = ResetForm
    template_name = "accounts/password_reset.html"
    email_template_name = "accounts/password_reset_mail.txt"
    subject_template_name = "accounts/password_reset_subject.txt"
    success_url = reverse_lazy("password-reset-sent")
    extra_email_context = {"base_url": settings.SPECWEB_BASE_URL}  # never the host that the request names

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"mail_works": mail_works()}

    def form_valid(self, form: Any) -> HttpResponse:
        if not mail_works():
            return self.render_to_response(self.get_context_data(form=form))
        standing = mailed_too_often(address_of(self.request), form.cleaned_data["email"])
        if standing is None:
            return super().form_valid(form)
        form.add_error("email", f"Too many mails were asked for in this hour. Wait {-(-standing.reset_s // 60)} min, then try again.")
        answer = self.render_to_response(self.get_context_data(form=form), status=429)
        answer["Retry-After"] = str(standing.reset_s)
        return answer


class ResetConfirm(django_views.PasswordResetConfirmView):
    template_name = "accounts/password_reset_new.html"
    success_url = reverse_lazy("login")

    def form_valid(self, form: Any) -> HttpResponse:
        answer = super().form_valid(form)
        audit.record("account.reset-password", self.user.pk, self.user.get_username(), by=self.user)
        messages.success(self.request, "Your new password is set: log in with it.")
        return answer


_form = require_http_methods(["GET", "HEAD", "POST"])
reset, reset_confirm = _form(Reset.as_view()), _form(ResetConfirm.as_view())

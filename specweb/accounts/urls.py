"""Ways in, the account page, and the page of a team; the login form is a page of the dashboard's."""

from django.contrib.auth.views import PasswordResetDoneView
from django.urls import path

from . import audit_views, mail_views, oidc_views, people_views, team_views, views

urlpatterns = [
    path("login/once/<str:secret>", views.login_once, name="login-once"),
    path("account/", views.account, name="account"),
    path("account/tokens", views.make_token, name="account-token-make"),
    path("account/tokens/<int:token_id>/revoke", views.end_token, name="account-token-revoke"),
    path("account/password", views.password, name="account-password"),
    path("account/sessions/end", views.log_out_elsewhere, name="account-sessions-end"),
    path("audit/", audit_views.audit, name="audit"),
    path("audit.csv", audit_views.audit_csv, name="audit-csv"),
    path("account/email", mail_views.email, name="account-email"),
    path("account/email/confirm/<str:token>", mail_views.confirm, name="account-email-confirm"),
    path("password/reset", mail_views.reset, name="password-reset"),
    path(
        "password/reset/sent",
        PasswordResetDoneView.as_view(template_name="accounts/password_reset_sent.html"),
        name="password-reset-sent",
    ),
    path("password/reset/<str:uidb64>/<str:token>/", mail_views.reset_confirm, name="password-reset-new"),
    path("oidc/login/", oidc_views.start, name="oidc_authentication_init"),
    path("oidc/callback/", oidc_views.callback, name="oidc_authentication_callback"),
    path("account/oidc/link", oidc_views.link, name="account-oidc-link"),
    path("sign-up", people_views.open_sign_up, name="sign-up"),
    path("join/<str:secret>", people_views.join, name="join"),
    path("teams/new", people_views.team_new, name="team-new"),
    path("teams/<slug:slug>/rename", people_views.rename, name="team-rename"),
    path("teams/<slug:slug>/leave", people_views.leave, name="team-leave"),
    path("teams/<slug:slug>/invitations", people_views.make_invitation, name="team-invite"),
    path(
        "teams/<slug:slug>/invitations/<int:invitation_id>/withdraw",
        people_views.withdraw_invitation,
        name="team-invitation-withdraw",
    ),
    path("teams/<slug:slug>/", team_views.team, name="team"),
    path("teams/<slug:slug>/members", team_views.change_member, name="team-member"),
]

"""Ways in, the account page, and the page of a team; the login form is a page of the dashboard's."""

from django.urls import path

from . import team_views, views

urlpatterns = [
    path("login/once/<str:secret>", views.login_once, name="login-once"),
    path("account/", views.account, name="account"),
    path("account/tokens", views.make_token, name="account-token-make"),
    path("account/tokens/<int:token_id>/revoke", views.end_token, name="account-token-revoke"),
    path("account/password", views.password, name="account-password"),
    path("account/sessions/end", views.log_out_elsewhere, name="account-sessions-end"),
    path("teams/<slug:slug>/", team_views.team, name="team"),
    path("teams/<slug:slug>/members", team_views.change_member, name="team-member"),
]

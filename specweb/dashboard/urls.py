"""Addresses of the pages; each is a permalink."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from . import evidence_views, views

urlpatterns = [
    path("", views.overview, name="overview"),
    path("login/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("experiments/<uuid:experiment_id>/", views.experiment, name="experiment"),
    path("jobs/<uuid:job_id>/progress", views.progress, name="progress"),
    path("jobs/<uuid:job_id>/numbers", views.numbers, name="numbers"),
    path("jobs/<uuid:job_id>/evidence", evidence_views.evidence_list, name="evidence-list"),
    path("attempts/<uuid:attempt_id>/", evidence_views.attempt, name="attempt"),
    path("attempts/<uuid:attempt_id>/evidence/<str:name>", evidence_views.evidence, name="evidence"),
    path("attempts/<uuid:attempt_id>/raw/<str:name>", evidence_views.raw, name="raw"),
]

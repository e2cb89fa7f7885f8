"""Addresses of the pages; each is a permalink."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from . import (
    compare_views,
    control_views,
    evidence_views,
    form_views,
    host_views,
    live_views,
    overview_views,
    preset_views,
    runtime_views,
    views,
)

urlpatterns = [
    path("", overview_views.overview, name="overview"),
    path("running", overview_views.running_now, name="running"),
    path("login/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("experiments/new", form_views.experiment_new, name="experiment-new"),
    path("experiments/presets", preset_views.presets, name="presets"),
    path("experiments/preview", form_views.experiment_preview, name="experiment-preview"),
    path("experiments/<uuid:experiment_id>/", views.experiment, name="experiment"),
    path("compare/", compare_views.compare, name="compare"),
    path("hosts/", host_views.hosts, name="hosts"),
    path("hosts/enrol", host_views.enrol, name="host-enrol"),
    path("hosts/<uuid:host_id>/", host_views.host, name="host"),
    path("hosts/<uuid:host_id>/revoke", host_views.revoke, name="host-revoke"),
    path("hosts/<uuid:host_id>/drain", host_views.drain, name="host-drain"),
    path("hosts/<uuid:host_id>/undrain", host_views.undrain, name="host-undrain"),
    path("runtimes/", runtime_views.runtimes, name="runtimes"),
    path("runtimes/<str:manifest_hash>/", runtime_views.runtime, name="runtime"),
    path("jobs/<uuid:job_id>/cancel", control_views.cancel, name="job-cancel"),
    path("jobs/<uuid:job_id>/pause", control_views.pause, name="job-pause"),
    path("jobs/<uuid:job_id>/resume", control_views.resume, name="job-resume"),
    path("jobs/<uuid:job_id>/retry", control_views.retry, name="job-retry"),
    path("jobs/<uuid:job_id>/progress", live_views.progress, name="progress"),
    path("jobs/<uuid:job_id>/numbers", views.numbers, name="numbers"),
    path("jobs/<uuid:job_id>/evidence", evidence_views.evidence_list, name="evidence-list"),
    path("attempts/<uuid:attempt_id>/", evidence_views.attempt, name="attempt"),
    path("attempts/<uuid:attempt_id>/evidence/<str:name>", evidence_views.evidence, name="evidence"),
    path("attempts/<uuid:attempt_id>/raw/<str:name>", evidence_views.raw, name="raw"),
]

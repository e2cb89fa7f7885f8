"""Addresses of the pages; each is a permalink."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from specweb.accounts.login_view import Login

from . import (
    compare_views,
    control_views,
    diff_views,
    evidence_views,
    form_views,
    host_views,
    live_views,
    model_views,
    overview_views,
    preset_views,
    runtime_views,
    views,
    workload_views,
)

urlpatterns = [
    path("", overview_views.overview, name="overview"),
    path("running", overview_views.running_now, name="running"),
    path("login/", Login.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("experiments/new", form_views.experiment_new, name="experiment-new"),
    path("experiments/presets", preset_views.presets, name="presets"),
    path("experiments/preview", form_views.experiment_preview, name="experiment-preview"),
    path("experiments/<uuid:experiment_id>/", views.experiment, name="experiment"),
    path("compare/", compare_views.compare, name="compare"),
    path("models/", model_views.models, name="models"),
    path("models/<str:model_hash>/", model_views.model, name="model"),
    path("hardware/", model_views.hardware, name="hardware"),
    path("hosts/", host_views.hosts, name="hosts"),
    path("hosts/enrol", host_views.enrol, name="host-enrol"),
    path("hosts/<uuid:host_id>/", host_views.host, name="host"),
    path("hosts/<uuid:host_id>/revoke", host_views.revoke, name="host-revoke"),
    path("hosts/<uuid:host_id>/drain", host_views.drain, name="host-drain"),
    path("hosts/<uuid:host_id>/undrain", host_views.undrain, name="host-undrain"),
    path("workloads/", workload_views.workloads, name="workloads"),
    path("workloads/new", workload_views.workload_new, name="workload-new"),
    path("workloads/<int:workload_id>/", workload_views.workload, name="workload"),
    path("workloads/<int:workload_id>/file", workload_views.workload_file, name="workload-file"),
    path("workloads/<int:workload_id>/share", workload_views.share, name="workload-share"),
    path("workloads/<int:workload_id>/archive", workload_views.archive, name="workload-archive"),
    path("workloads/<int:workload_id>/restore", workload_views.restore, name="workload-restore"),
    path("workloads/<int:workload_id>/delete", workload_views.delete, name="workload-delete"),
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
    path("attempts/<uuid:attempt_id>/diff", diff_views.diff, name="trial-diff"),
    path("attempts/<uuid:attempt_id>/evidence/<str:name>", evidence_views.evidence, name="evidence"),
    path("attempts/<uuid:attempt_id>/raw/<str:name>", evidence_views.raw, name="raw"),
]

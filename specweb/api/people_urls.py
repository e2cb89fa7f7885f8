"""Addresses of the API for people's programs, version 1."""

from django.urls import path, re_path

from . import people_jobs as jobs
from . import people_views as views
from . import run_views as runs
from . import schema_views
from . import workload_views as workloads
from .agent_views import NothingHere

urlpatterns = [
    path("schema", schema_views.SchemaView.as_view(), name="api-schema"),
    path("docs/", schema_views.docs, name="api-docs"),
    path("me", views.MeView.as_view(), name="api-me"),
    path("experiments/", views.ExperimentsView.as_view(), name="api-experiments"),
    path("experiments/preview", views.PreviewView.as_view(), name="api-preview"),
    path("experiments/<uuid:experiment_id>", views.ExperimentView.as_view(), name="api-experiment"),
    path("experiments/<uuid:experiment_id>/spec.yaml", views.SpecYamlView.as_view(), name="api-spec-yaml"),
    path("jobs/<uuid:job_id>/cancel", jobs.CancelView.as_view(), name="api-job-cancel"),
    path("jobs/<uuid:job_id>/pause", jobs.PauseView.as_view(), name="api-job-pause"),
    path("jobs/<uuid:job_id>/resume", jobs.ResumeView.as_view(), name="api-job-resume"),
    path("jobs/<uuid:job_id>/retry", jobs.RetryView.as_view(), name="api-job-retry"),
    path("jobs/<uuid:job_id>/spec.yaml", jobs.JobSpecView.as_view(), name="api-job-spec"),
    path("jobs/<uuid:job_id>/evidence", jobs.EvidenceListView.as_view(), name="api-evidence-list"),
    path("attempts/<uuid:attempt_id>/evidence/<str:name>", jobs.EvidenceView.as_view(), name="api-evidence"),
    path("hosts/", views.HostsView.as_view(), name="api-hosts"),
    path("workloads/", workloads.WorkloadsView.as_view(), name="api-workloads"),
    path("runs/", runs.RunsView.as_view(), name="api-runs"),
    path("runs/blobs/<str:sha256>", runs.RunBlobView.as_view(), name="api-run-blob"),
    re_path("", NothingHere.as_view(), name="api-nothing"),
]

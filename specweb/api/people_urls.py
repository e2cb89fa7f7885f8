"""Addresses of the API for people's programs, version 1."""

from django.urls import path, re_path

from . import archive_views as archives
from . import catalogue_views as catalogue
from . import compare_views as compared
from . import export_views as exports
from . import host_views as hosts
from . import more_views as more
from . import number_views as numbers
from . import people_jobs as jobs
from . import people_views as views
from . import publish_views as publish
from . import report_views as reports
from . import reported_views as reported
from . import run_views as runs
from . import schema_views, workload_more
from . import start_views as starts
from . import team_views as teams
from . import watch_views as watching
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
    path("jobs/<uuid:job_id>/more", more.MoreView.as_view(), name="api-job-more"),
    path("jobs/<uuid:job_id>/rest", more.RestView.as_view(), name="api-job-rest"),
    path("jobs/<uuid:job_id>/spec.yaml", jobs.JobSpecView.as_view(), name="api-job-spec"),
    path("jobs/<uuid:job_id>/report.md", reports.JobReportView.as_view(), name="api-job-report"),
    path("jobs/<uuid:job_id>/evidence", jobs.EvidenceListView.as_view(), name="api-evidence-list"),
    path("attempts/<uuid:attempt_id>/evidence/<str:name>", jobs.EvidenceView.as_view(), name="api-evidence"),
    path("experiments/check", starts.CheckView.as_view(), name="api-check"),
    path("presets/", starts.PresetsView.as_view(), name="api-presets"),
    path("jobs/<uuid:job_id>", numbers.JobView.as_view(), name="api-job"),
    path("jobs/<uuid:job_id>/numbers", numbers.NumbersView.as_view(), name="api-numbers"),
    path("jobs/<uuid:job_id>/integrity", numbers.IntegrityView.as_view(), name="api-integrity"),
    path("jobs/<uuid:job_id>/analyses", numbers.AnalysesView.as_view(), name="api-analyses"),
    path("jobs/<uuid:job_id>/analyses/<int:analysis_id>", numbers.AnalysisView.as_view(), name="api-analysis"),
    path("jobs/<uuid:job_id>/trials", numbers.TrialsView.as_view(), name="api-trials"),
    path("attempts/<uuid:attempt_id>", numbers.AttemptView.as_view(), name="api-attempt"),
    path("attempts/<uuid:attempt_id>/diff", numbers.AttemptDiffView.as_view(), name="api-attempt-diff"),
    path("compare/", compared.CompareView.as_view(), name="api-compare"),
    path("compare/choices", compared.CompareChoicesView.as_view(), name="api-compare-choices"),
    path("comparisons/", compared.ComparisonsView.as_view(), name="api-comparisons"),
    path("best", catalogue.BestView.as_view(), name="api-best"),
    path("models/", catalogue.ModelsView.as_view(), name="api-models"),
    path("models/<str:model_hash>", catalogue.ModelView.as_view(), name="api-model"),
    path("hardware/", catalogue.HardwareView.as_view(), name="api-hardware"),
    path("runtimes/", catalogue.RuntimesView.as_view(), name="api-runtimes"),
    path("runtimes/<str:manifest_hash>", catalogue.RuntimeView.as_view(), name="api-runtime"),
    path("experiments/<uuid:experiment_id>/visibility", publish.VisibilityView.as_view(), name="api-visibility"),
    path("experiments/<uuid:experiment_id>/publications", publish.PublicationsView.as_view(), name="api-publications"),
    path("experiments/<uuid:experiment_id>/publications/<int:version>", publish.PublicationView.as_view(), name="api-publication"),
    path(
        "experiments/<uuid:experiment_id>/publications/<int:version>/withdraw",
        publish.WithdrawView.as_view(),
        name="api-publication-withdraw",
    ),
    path("teams/", teams.TeamsView.as_view(), name="api-teams"),
    path("teams/<slug:slug>", teams.TeamView.as_view(), name="api-team"),
    path("teams/<slug:slug>/members/<str:user>", teams.MemberView.as_view(), name="api-team-member"),
    path("teams/<slug:slug>/invitations", teams.InvitationsView.as_view(), name="api-invitations"),
    path("teams/<slug:slug>/invitations/<int:invitation_id>", teams.InvitationView.as_view(), name="api-invitation"),
    path("audit", teams.AuditView.as_view(), name="api-audit"),
    path("hosts/", views.HostsView.as_view(), name="api-hosts"),
    path("hosts/enrol", hosts.EnrolCodeView.as_view(), name="api-host-enrol"),
    path("hosts/enrol/<int:code_id>/withdraw", hosts.EnrolCodeWithdrawView.as_view(), name="api-host-enrol-withdraw"),
    path("hosts/<uuid:host_id>", hosts.HostView.as_view(), name="api-host"),
    path("hosts/<uuid:host_id>/drain", hosts.DrainView.as_view(), name="api-host-drain"),
    path("hosts/<uuid:host_id>/undrain", hosts.UndrainView.as_view(), name="api-host-undrain"),
    path("hosts/<uuid:host_id>/revoke", hosts.RevokeView.as_view(), name="api-host-revoke"),
    path("workloads/", workloads.WorkloadsView.as_view(), name="api-workloads"),
    path("workloads/<int:workload_id>", workload_more.WorkloadView.as_view(), name="api-workload"),
    path("workloads/<int:workload_id>/file", workload_more.WorkloadFileView.as_view(), name="api-workload-file"),
    path("workloads/<int:workload_id>/share", workload_more.ShareView.as_view(), name="api-workload-share"),
    path("workloads/<int:workload_id>/archive", workload_more.ArchiveView.as_view(), name="api-workload-archive"),
    path("workloads/<int:workload_id>/restore", workload_more.RestoreView.as_view(), name="api-workload-restore"),
    path("tokens/", starts.TokensView.as_view(), name="api-tokens"),
    path("tokens/<int:token_id>/revoke", starts.TokenRevokeView.as_view(), name="api-token-revoke"),
    path("runs/", runs.RunsView.as_view(), name="api-runs"),
    path("runs/blobs/<str:sha256>", runs.RunBlobView.as_view(), name="api-run-blob"),
    path("reported/", reported.ReportsView.as_view(), name="api-reports"),
    path("reported/templates", reported.MappingTemplatesView.as_view(), name="api-mapping-templates"),
    path("reported/<uuid:report_id>", reported.ReportView.as_view(), name="api-report"),
    path("reported/templates/<int:template_id>", reported.MappingTemplateView.as_view(), name="api-mapping-template"),
    path("reported/<uuid:report_id>/visibility", reported.ReportVisibilityView.as_view(), name="api-report-visibility"),
    path("reported/<uuid:report_id>/file", reported.ReportFileView.as_view(), name="api-report-file"),
    path("exports/comparisons", exports.ComparisonsFileView.as_view(), name="api-export-comparisons"),
    path("exports/experiments", exports.ExperimentsFileView.as_view(), name="api-export-experiments"),
    path("exports/attempts", exports.AttemptsFileView.as_view(), name="api-export-attempts"),
    path("exports/probes", exports.ProbesFileView.as_view(), name="api-export-probes"),
    path("exports/numbers", exports.NumbersFileView.as_view(), name="api-export-numbers"),
    path("exports/evidence", exports.EvidenceFileView.as_view(), name="api-export-evidence"),
    path("exports/hosts", exports.HostsFileView.as_view(), name="api-export-hosts"),
    path("exports/workloads", exports.WorkloadsFileView.as_view(), name="api-export-workloads"),
    path("exports/reported", exports.ReportedFileView.as_view(), name="api-export-reported"),
    path("exports/audit", exports.AuditFileView.as_view(), name="api-export-audit"),
    path("experiments/<uuid:experiment_id>/archive", archives.ExperimentArchiveView.as_view(), name="api-experiment-archive"),
    path("experiments/<uuid:experiment_id>/import", archives.ImportOfView.as_view(), name="api-experiment-import"),
    path("archives/", archives.ArchivesView.as_view(), name="api-archives"),
    path("watches/", watching.WatchesView.as_view(), name="api-watches"),
    path("watches/<uuid:watch_id>", watching.WatchView.as_view(), name="api-watch"),
    path("watches/<uuid:watch_id>/pause", watching.WatchPauseView.as_view(), name="api-watch-pause"),
    path("watches/<uuid:watch_id>/resume", watching.WatchResumeView.as_view(), name="api-watch-resume"),
    path("watches/<uuid:watch_id>/stop", watching.WatchStopView.as_view(), name="api-watch-stop"),
    path("alerts/", watching.AlertsView.as_view(), name="api-alerts"),
    path("alerts/<uuid:alert_id>/acknowledge", watching.AlertAcknowledgeView.as_view(), name="api-alert-acknowledge"),
    path("channels/", watching.ChannelsView.as_view(), name="api-channels"),
    path("channels/<uuid:channel_id>", watching.ChannelView.as_view(), name="api-channel"),
    path("channels/<uuid:channel_id>/test", watching.ChannelTestView.as_view(), name="api-channel-test"),
    path("channels/<uuid:channel_id>/enable", watching.ChannelEnableView.as_view(), name="api-channel-enable"),
    path("channels/<uuid:channel_id>/deliveries", watching.DeliveriesView.as_view(), name="api-deliveries"),
    re_path("", NothingHere.as_view(), name="api-nothing"),
]

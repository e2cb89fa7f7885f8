"""What other tools report: a file that somebody imported, its runs and their numbers. Never part of a comparison or a verdict."""

from __future__ import annotations

from typing import Any

from django.db import models
from speccore.importers import TABLE, TOOLS
from uuid_utils.compat import uuid7

from specweb.accounts.models import Team, User
from specweb.experiments.models import Visibility
from specweb.experiments.viewer import Viewer, teams_of

#: How a reader is told, wherever such a number stands.
MARK = "reported, not verified"


class ReportQuerySet(models.QuerySet["Report"]):
    def visible_to(self, user: Viewer) -> ReportQuerySet:
        """What a person may read: public ones, and of their own teams those that aren't somebody else's private ones."""
        public = models.Q(visibility=Visibility.PUBLIC)
        if not user.pk:
            return self.filter(public)
        not_others = ~models.Q(visibility=Visibility.PRIVATE) | models.Q(imported_by=user.pk)
        return self.filter(public | models.Q(team__in=teams_of(user)) & not_others)


class Report(models.Model):
    """One imported file. ``tool`` is a slug of the importers, or "table" with the ``mapping`` that says what its columns are.

    ``model_words`` and ``hardware_words`` are the first distinct words of its runs, for lists. Nothing here ever changes but ``visibility``.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="reports")
    imported_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    visibility = models.CharField(max_length=8, choices=Visibility, default=Visibility.TEAM)
    tool = models.CharField(max_length=20)
    tool_name = models.CharField(max_length=120)
    tool_version = models.CharField(max_length=120, blank=True)
    title = models.CharField(max_length=200)
    file_name = models.CharField(max_length=200)
    file_sha256 = models.CharField(max_length=64, db_index=True)
    file_bytes = models.PositiveIntegerField()
    reading_hash = models.CharField(max_length=64)  # of the tool and mapping: the same file may be read in two ways
    source_url = models.CharField(max_length=500, blank=True)
    notes = models.TextField(blank=True)
    mapping = models.JSONField(null=True)
    warnings = models.JSONField(default=list)
    model_words = models.JSONField(default=list)
    hardware_words = models.JSONField(default=list)
    n_runs = models.PositiveIntegerField()

    objects = ReportQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.title

    @property
    def is_table(self) -> bool:
        return self.tool == TABLE

    @property
    def tool_title(self) -> str:
        known = TOOLS.get(self.tool)
        return known.title if known else self.tool_name


class RawFile(models.Model):
    """The imported file itself, as zstd: evidence of what was reported, gone with its report."""

    report = models.OneToOneField(Report, on_delete=models.CASCADE, primary_key=True, related_name="raw")
    content = models.BinaryField()


class ReportedRunQuerySet(models.QuerySet["ReportedRun"]):
    def visible_to(self, user: Viewer) -> ReportedRunQuerySet:
        return self.filter(report__in=Report.objects.visible_to(user))


class ReportedRun(models.Model):
    """One setting that a file reports. Texts are its own words; NULL is not told. ``*_key`` are for finding only."""

    report = models.ForeignKey(Report, on_delete=models.CASCADE, related_name="runs")
    index = models.PositiveIntegerField()  # order in the file, from 0
    line = models.PositiveIntegerField(null=True)
    title = models.CharField(max_length=300, blank=True)
    model = models.CharField(max_length=300, blank=True)
    engine = models.CharField(max_length=300, blank=True)
    hardware = models.CharField(max_length=300, blank=True)
    devices = models.JSONField(default=list)
    arm = models.CharField(max_length=300, blank=True)
    concurrency = models.FloatField(null=True)
    prompt_tokens = models.FloatField(null=True)
    output_tokens = models.FloatField(null=True)
    context_tokens = models.FloatField(null=True)
    n_requests = models.PositiveIntegerField(null=True)
    n_failed = models.PositiveIntegerField(null=True)
    at = models.CharField(max_length=300, blank=True)
    contributor = models.CharField(max_length=300, blank=True)
    notes = models.TextField(blank=True)
    settings = models.JSONField(default=dict)
    model_key = models.CharField(max_length=300, blank=True)
    hardware_key = models.CharField(max_length=600, blank=True)

    objects = ReportedRunQuerySet.as_manager()

    class Meta:
        ordering = ["-report_id", "index"]
        constraints = [models.UniqueConstraint(fields=["report", "index"], name="reported_run_once")]


class ReportedNumber(models.Model):
    """A figure as reported: ``value``, or a range from ``low`` to ``high``. The definition is the tool's; ``metric`` the nearest of ours."""

    run = models.ForeignKey(ReportedRun, on_delete=models.CASCADE, related_name="numbers")
    index = models.PositiveIntegerField()
    key = models.CharField(max_length=160)
    name = models.CharField(max_length=160)
    unit = models.CharField(max_length=20, blank=True)
    statistic = models.CharField(max_length=20)
    definition = models.TextField()
    caution = models.TextField(blank=True)
    metric = models.CharField(max_length=60, blank=True)
    value = models.FloatField(null=True)
    low = models.FloatField(null=True)
    high = models.FloatField(null=True)
    written = models.CharField(max_length=120, blank=True)
    note = models.CharField(max_length=160, blank=True)
    line = models.PositiveIntegerField(null=True)

    class Meta:
        ordering = ["run_id", "index"]
        constraints = [models.UniqueConstraint(fields=["run", "index"], name="reported_number_once")]


class MappingTemplate(models.Model):
    """What the columns of a kind of table mean, kept by a team under a name."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=80)
    mapping = models.JSONField()
    made_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="mapping_template_once")]

    def __str__(self) -> str:
        return self.name


class Draft(models.Model):
    """A file on its way in, between choosing and importing it: for its person alone, kept for a day."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField()
    about: Any = models.JSONField()  # what was typed beside it
    content = models.BinaryField()

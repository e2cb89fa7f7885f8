"""What came back: trials, attempts and their evidence, the numbers read from it, and the comparisons."""

from __future__ import annotations

from django.db import models
from django.utils.functional import cached_property
from speccore.measurement import AttemptMeasurement, ComparisonResult, JobAnalysis
from uuid_utils.compat import uuid7

from specweb.accounts.models import Team, User
from specweb.experiments.models import Arm, Experiment, Host, Job, Lease, Point, Viewer

from .import_models import ArchiveImport as ArchiveImport
from .publication_models import Publication as Publication
from .publication_models import Withdrawal as Withdrawal
from .tally_models import ListingTally as ListingTally
from .tally_models import readable_by


class TrialQuerySet(models.QuerySet["Trial"]):
    def visible_to(self, user: Viewer) -> TrialQuerySet:
        return self.filter(job__experiment__in=Experiment.objects.visible_to(user))


class Trial(models.Model):
    """One planned server start, made from the job's plan when the job is queued."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="trials")
    plan_id = models.CharField(max_length=160)
    index = models.PositiveIntegerField()  # order of running, from 0
    block = models.PositiveIntegerField()
    position = models.PositiveIntegerField()
    arm = models.ForeignKey(Arm, on_delete=models.CASCADE, related_name="+")
    points = models.JSONField()  # keys

    objects = TrialQuerySet.as_manager()

    class Meta:
        ordering = ["index"]
        constraints = [
            models.UniqueConstraint(fields=["job", "plan_id"], name="trial_plan_id_once"),
            models.UniqueConstraint(fields=["job", "index"], name="trial_index_once"),
        ]

    def __str__(self) -> str:
        return self.plan_id


class AttemptState(models.TextChoices):
    RECEIVED = "received", "received"
    PARSED = "parsed", "parsed"
    PARSE_FAILED = "parse_failed", "parse failed"


class AttemptQuerySet(models.QuerySet["Attempt"]):
    def visible_to(self, user: Viewer) -> AttemptQuerySet:
        return self.filter(trial__job__experiment__in=Experiment.objects.visible_to(user))


class Attempt(models.Model):
    """One try at a trial, under the agent's own id. Times are the agent's, ``received_at`` is the server's."""

    id = models.UUIDField(primary_key=True)
    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="attempts")
    n = models.PositiveIntegerField()
    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=12, choices=AttemptState, default=AttemptState.RECEIVED, db_index=True)
    outcome = models.CharField(max_length=12)  # ok, failed, cancelled
    block_run = models.PositiveIntegerField(default=1)  # n-th run of the trial's block; only the last one counts
    counted = models.BooleanField()  # it came under the newest lease, while the job was open, and its block was not torn apart
    accepted = models.BooleanField(default=False)
    void_reason = models.TextField(blank=True)  # in words: why its block was run anew, so that it doesn't count
    error = models.JSONField(null=True)  # ErrorBody
    boot_id = models.CharField(max_length=64)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    durations_s = models.JSONField(default=dict)
    received_at = models.DateTimeField()
    parse_error = models.JSONField(null=True)
    n_parse_tries = models.PositiveSmallIntegerField(default=0)
    measurement = models.ForeignKey("MeasurementSet", on_delete=models.SET_NULL, null=True, related_name="+")  # the current set

    objects = AttemptQuerySet.as_manager()

    class Meta:
        ordering = ["received_at"]
        constraints = [models.UniqueConstraint(fields=["trial"], condition=models.Q(accepted=True), name="one_accepted_attempt")]
        # Few fail, and the pages of hosts tell of these.
        indexes = [
            models.Index(fields=["lease"], condition=models.Q(outcome="failed"), name="failed_under_lease"),
            models.Index(fields=["-received_at"], condition=models.Q(outcome="failed"), name="failed_last"),
        ]


class Blob(models.Model):
    """Stored bytes under the SHA-256 of their uncompressed form. ``path`` is relative to the evidence folder.

    ``teams`` have sent these bytes themselves. Hashes are public, so to know one must not be enough to get at the bytes.
    """

    sha256 = models.CharField(max_length=64, primary_key=True)
    bytes = models.BigIntegerField()
    stored_bytes = models.BigIntegerField()
    path = models.CharField(max_length=200)
    encoding = models.CharField(max_length=12, default="zstd")
    created_at = models.DateTimeField(auto_now_add=True)
    teams = models.ManyToManyField(Team, related_name="+")


class EvidenceFile(models.Model):
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="evidence")
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=20)
    blob = models.ForeignKey(Blob, on_delete=models.PROTECT, related_name="files")
    private = models.BooleanField(default=False)  # holds prompt or answer text: for the team only

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["attempt", "name"], name="evidence_name_once")]


class MeasurementSet(models.Model):
    """What one version of the parser read from an attempt's evidence; ``Attempt.measurement`` points at the current one."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="measurements")
    parser_version = models.PositiveIntegerField()
    numbers = models.JSONField()  # AttemptMeasurement
    created_at = models.DateTimeField(auto_now_add=True)

    @cached_property  # a page of a trial reads it three times; rows are never changed
    def parsed(self) -> AttemptMeasurement:
        return AttemptMeasurement.model_validate(self.numbers)


class Probe(models.Model):
    """One timed request, its scalars only: NULL where a number was withheld (the reason is in the measurement set)."""

    measurement = models.ForeignKey(MeasurementSet, on_delete=models.CASCADE, related_name="probes")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="+")
    point = models.ForeignKey(Point, on_delete=models.CASCADE, related_name="+")
    i = models.PositiveIntegerField()  # order in the attempt, from 0
    probe = models.CharField(max_length=240)
    item = models.CharField(max_length=80)
    warmup = models.BooleanField()
    ok = models.BooleanField()
    failure = models.CharField(max_length=60, blank=True)
    failure_message = models.TextField(blank=True)
    finish_reason = models.CharField(max_length=40, blank=True)
    line = models.PositiveIntegerField()  # in records.jsonl, from 1
    ttft_any_s = models.FloatField(null=True)
    ttft_content_s = models.FloatField(null=True)
    e2e_s = models.FloatField(null=True)
    decode_tokens_per_s = models.FloatField(null=True)
    prompt_tokens = models.PositiveIntegerField(null=True)
    tokens = models.PositiveIntegerField(null=True)
    cache_hit_tokens = models.PositiveIntegerField(null=True)
    drafted = models.PositiveIntegerField(null=True)
    accepted = models.PositiveIntegerField(null=True)
    verify_steps = models.PositiveIntegerField(null=True)
    decode_steps = models.PositiveIntegerField(null=True)
    check_passed = models.BooleanField(null=True)
    check_note = models.TextField(blank=True)

    class Meta:
        ordering = ["i"]
        constraints = [models.UniqueConstraint(fields=["measurement", "i"], name="probe_order_once")]


class Analysis(models.Model):
    """Everything computed for one job at one time; the newest counts."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="analyses")
    analysis_version = models.PositiveIntegerField()
    numbers = models.JSONField()  # JobAnalysis
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]

    @property
    def parsed(self) -> JobAnalysis:
        return JobAnalysis.model_validate(self.numbers)


class ComparisonQuerySet(models.QuerySet["Comparison"]):
    def visible_to(self, user: Viewer) -> ComparisonQuerySet:
        return self.filter(job__experiment__in=Experiment.objects.visible_to(user))

    def current(self) -> ComparisonQuerySet:
        return self.filter(superseded_by=None)


class Comparison(models.Model):
    """Arm against baseline at one point of one job. Never changed: a newer one supersedes it."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="comparisons")
    analysis = models.ForeignKey(Analysis, on_delete=models.CASCADE, related_name="comparisons")
    arm = models.ForeignKey(Arm, on_delete=models.CASCADE, related_name="+")
    point = models.ForeignKey(Point, on_delete=models.CASCADE, related_name="+")
    analysis_version = models.PositiveIntegerField()
    numbers = models.JSONField()  # ComparisonResult
    speedup = models.FloatField(null=True)
    ci_low = models.FloatField(null=True)
    ci_high = models.FloatField(null=True)
    n_blocks = models.PositiveIntegerField()
    verdict = models.CharField(max_length=20)
    reason = models.CharField(max_length=80, blank=True)
    recommended = models.BooleanField(default=False)
    superseded_by = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ComparisonQuerySet.as_manager()

    class Meta:
        ordering = ["point__position", "arm__position"]
        constraints = [
            models.UniqueConstraint(fields=["job", "arm", "point"], condition=models.Q(superseded_by=None), name="one_current_comparison")
        ]

    @property
    def parsed(self) -> ComparisonResult:
        return ComparisonResult.model_validate(self.numbers)


class ListingQuerySet(models.QuerySet["Listing"]):
    def visible_to(self, user: Viewer) -> ListingQuerySet:
        return self.filter(readable_by(user))


class Listing(models.Model):
    """A current comparison as the Compare page finds and shows it. Derived, and made anew whenever a job is compared.

    ``team``, ``visibility`` and ``submitter`` are its experiment's, ``recommended`` and ``lower_end`` (of the ratio's interval, or
    the ratio where it has none) its comparison's: written by triggers of the database alone.
    """

    comparison = models.OneToOneField(Comparison, on_delete=models.CASCADE, primary_key=True, related_name="listing")
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="+")
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="+", db_index=False)
    visibility = models.CharField(max_length=8)
    submitter = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    host = models.ForeignKey(Host, on_delete=models.PROTECT, null=True, related_name="+")
    question_key = models.CharField(max_length=64)
    work_key = models.CharField(max_length=64)  # of the question without its arm
    pair_key = models.CharField(max_length=64, blank=True)  # empty: the trials don't share one, or it is not known
    question = models.JSONField()  # what the question key is made of
    target_hash = models.CharField(max_length=80)
    target = models.CharField(max_length=200)  # as its host calls it
    engine = models.CharField(max_length=20)
    workload = models.CharField(max_length=120)  # name@version
    title = models.CharField(max_length=120)
    concurrency = models.PositiveIntegerField()
    occupied_context = models.PositiveIntegerField()
    mode = models.CharField(max_length=40)
    draft_limit = models.PositiveIntegerField(null=True)
    helper = models.CharField(max_length=200, blank=True)
    hardware = models.CharField(max_length=200, blank=True)
    driver = models.CharField(max_length=200, blank=True)
    runtime_hash = models.CharField(max_length=64, blank=True)
    build = models.CharField(max_length=200, blank=True)
    backend = models.CharField(max_length=40, blank=True)
    setup = models.CharField(max_length=400, blank=True)  # in words: what the experiment set of how the engine sits on its host
    not_restarted = models.BooleanField()
    self_run = models.BooleanField()  # nobody here saw it run: uploaded, or imported from another server
    imported = models.BooleanField(default=False)
    judged = models.BooleanField()  # its verdict judges a ratio
    recommended = models.BooleanField(default=False)
    lower_end = models.FloatField(null=True)
    margin = models.FloatField()
    integrity = models.JSONField()
    figures = models.JSONField()
    measured_at = models.DateTimeField()

    objects = ListingQuerySet.as_manager()

    @property
    def origin_mark(self) -> str:
        """What a list says of who ran it; empty for this service."""
        return "imported" if self.imported else "self-run" if self.self_run else ""

    class Meta:
        indexes = [
            models.Index(
                fields=[
                    "workload",
                    "concurrency",
                    "occupied_context",
                    "engine",
                    "target_hash",
                    "work_key",
                    "mode",
                    "draft_limit",
                    "question_key",
                ],
                name="listing_order",
            ),
            models.Index(fields=["target_hash"], name="listing_target"),
            models.Index(fields=["hardware", "target_hash", "workload", "concurrency", "occupied_context"], name="listing_kind"),
            # Holds all that is told of what was measured on some hardware, so that the figures need not be read.
            models.Index(
                fields=["hardware", "experiment"], include=["team", "visibility", "submitter", "measured_at"], name="listing_on_hardware"
            ),
            models.Index(fields=["question_key"], name="listing_question"),
        ]

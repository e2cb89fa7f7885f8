"""What was asked and who runs it: experiments, their jobs, the hosts and what these offer."""

from __future__ import annotations

from typing import Any

from django.db import models
from speccore.inventory import HostInventory as Inventory
from speccore.jobstate import FINAL, HELD, JobState
from speccore.person import STORED
from speccore.spec import ExperimentSpec, read_stored_spec
from speccore.spec import Point as PointSpec
from uuid_utils.compat import uuid7

from specweb.accounts.models import Team, User

from .viewer import Viewer as Viewer
from .viewer import teams_of
from .workload_models import Workload as Workload

JOB_STATES = [(s.value, s.value) for s in JobState]
#: An experiment shows the state of the job that still has most to tell; final ones last.
STATE_ORDER = [
    JobState.RUNNING,
    JobState.STALLED,
    JobState.CLAIMED,
    JobState.COMPLETED,
    JobState.QUEUED,
    JobState.WAITING,
    JobState.PROCESSED,
    JobState.FAILED,
    JobState.CANCELLED,
]


class Visibility(models.TextChoices):
    """Who may read an experiment; ``private``: who submitted it, nobody else."""

    PRIVATE = "private", "private"
    TEAM = "team", "team"
    PUBLIC = "public", "public"


class Origin(models.TextChoices):
    """Who ran it: hosts that polled this service, somebody's own agent that uploaded what it found, or another server."""

    SERVICE = "service", "service"
    SELF_RUN = "self-run", "self-run"
    IMPORTED = "imported", "imported"


class ExperimentQuerySet(models.QuerySet["Experiment"]):
    def visible_to(self, user: Viewer) -> ExperimentQuerySet:
        """What a person may read: public experiments, and of their own teams those that aren't somebody else's private ones."""
        public = models.Q(visibility=Visibility.PUBLIC)
        if not user.pk:
            return self.filter(public)
        not_others = ~models.Q(visibility=Visibility.PRIVATE) | models.Q(created_by=user.pk)
        return self.filter(public | models.Q(team__in=teams_of(user)) & not_others)


class Experiment(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="experiments")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    visibility = models.CharField(max_length=8, choices=Visibility, default=Visibility.TEAM)
    name = models.CharField(max_length=120)
    question = models.CharField(max_length=300, blank=True)
    spec = models.JSONField()
    spec_hash = models.CharField(max_length=64, db_index=True)
    origin = models.CharField(max_length=8, choices=Origin, default=Origin.SERVICE)
    #: Drawn by the sender, so that the same form or request sent twice makes one experiment.
    submission_key = models.UUIDField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ExperimentQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["team", "submission_key"], name="submitted_once")]
        # Who may read what is asked of thousands at a time, and their specs lie between them.
        indexes = [models.Index(fields=["id"], include=["team", "visibility", "created_by"], name="experiment_readable")]

    def __str__(self) -> str:
        return self.name

    @property
    def parsed_spec(self) -> ExperimentSpec:
        return read_stored_spec(self.spec)

    @property
    def name_to_maintainers(self) -> str:
        """As the audit log may call it: what a private one is about is its submitter's alone."""
        return "a private experiment" if self.visibility == Visibility.PRIVATE else self.name

    @property
    def state(self) -> JobState:
        """Derived from its jobs, which callers prefetch; there is always at least one. A retry speaks for the job it retries."""
        jobs = self.jobs.all()
        retried = {job.retry_of_id for job in jobs}
        states = {JobState(job.state) for job in jobs if job.pk not in retried}
        return next(s for s in STATE_ORDER if s in states)


class Arm(models.Model):
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="arms")
    position = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=80)
    mode = models.CharField(max_length=40)
    draft_limit = models.PositiveIntegerField(null=True)
    is_baseline = models.BooleanField()
    settings = models.JSONField()

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["experiment", "name"], name="arm_name_once")]

    def __str__(self) -> str:
        return self.name


class Point(models.Model):
    """``workload`` is the version that the experiment's name was resolved to when it was submitted."""

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="points")
    position = models.PositiveSmallIntegerField()
    key = models.CharField(max_length=200)
    workload = models.ForeignKey(Workload, on_delete=models.PROTECT, related_name="+")
    concurrency = models.PositiveIntegerField()
    occupied_context = models.PositiveIntegerField()
    temperature = models.FloatField()
    max_tokens = models.PositiveIntegerField()
    probes = models.PositiveIntegerField()
    settings = models.JSONField()

    @property
    def parsed(self) -> PointSpec:
        return PointSpec.model_validate(self.settings, context=STORED)

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["experiment", "key"], name="point_key_once")]

    def __str__(self) -> str:
        return self.key


class HostQuerySet(models.QuerySet["Host"]):
    def visible_to(self, user: Viewer) -> HostQuerySet:
        return self.filter(team__in=teams_of(user))


class PollingHosts(models.Manager.from_queryset(HostQuerySet)):  # type: ignore[misc]
    """Hosts that poll for work. Machines of uploaded runs never do, so that nothing may wait for them."""

    def get_queryset(self) -> HostQuerySet:
        return super().get_queryset().filter(self_run=False)


class Host(models.Model):
    """A machine with an agent. ``inventory`` is the newest that it sent; labels are its owner's own.

    ``objects`` leaves out the machines of uploaded runs (``self_run``), which no token stands for; ``every`` has them too.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="hosts")
    name = models.CharField(max_length=80)
    token_hash = models.CharField(max_length=64, unique=True)
    enrolled_at = models.DateTimeField(auto_now_add=True)
    last_seen_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    draining = models.BooleanField(default=False)  # the agent's own word: it is about to end
    drain_requested_at = models.DateTimeField(null=True)  # a person's: it finishes its job and gets no other
    problem = models.JSONField(null=True)  # ErrorBody: what ails it now, as its agent says
    problem_at = models.DateTimeField(null=True)  # since when
    agent_version = models.CharField(max_length=40, blank=True)
    labels = models.JSONField(default=dict)
    inventory = models.ForeignKey("HostInventory", on_delete=models.PROTECT, null=True, related_name="+")
    self_run = models.BooleanField(default=False)

    objects = PollingHosts()
    every = HostQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="host_name_once")]

    def __str__(self) -> str:
        return self.name

    @property
    def takes_no_jobs(self) -> bool:
        """Whether it drains, by its agent's own word or because a person asked."""
        return self.draining or self.drain_requested_at is not None


class EnrolmentCode(models.Model):
    """Lets one machine become a host of a team, once."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="+")
    hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    host = models.ForeignKey(Host, on_delete=models.SET_NULL, null=True, related_name="+")


class HostInventory(models.Model):
    """What a host said that it is and offers, as sent. Immutable."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="inventories")
    hash = models.CharField(max_length=64)
    hardware = models.CharField(max_length=200)
    content = models.JSONField()
    received_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "hash"], name="inventory_once")]

    @property
    def parsed(self) -> Inventory:
        return Inventory.model_validate(self.content)


class CatalogueQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: Viewer) -> CatalogueQuerySet:
        return self.filter(hosts__team__in=teams_of(user)).distinct()


class Runtime(models.Model):
    """An engine build; filled from inventories only."""

    manifest_hash = models.CharField(max_length=64, unique=True)
    engine = models.CharField(max_length=20)
    version = models.CharField(max_length=200)
    source_commit = models.CharField(max_length=64, blank=True)
    backend = models.CharField(max_length=40, blank=True)
    first_seen_at = models.DateTimeField()
    hosts = models.ManyToManyField(Host, through="HostRuntime", related_name="runtimes")

    objects = CatalogueQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.engine} {self.version}"


class HostRuntime(models.Model):
    """A host offers a build, or once did. ``last_seen_at``: when it last told of it, or told that it is gone."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE)
    runtime = models.ForeignKey(Runtime, on_delete=models.CASCADE)
    first_seen_at = models.DateTimeField(null=True)
    last_seen_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "experiments_runtime_hosts"
        unique_together = (("runtime", "host"),)


class Model(models.Model):
    """A model by the hash of its manifest; filled from inventories only."""

    manifest_hash = models.CharField(max_length=64, unique=True)
    format = models.CharField(max_length=20)
    size_bytes = models.BigIntegerField()
    architecture = models.CharField(max_length=80, blank=True)
    quantization = models.CharField(max_length=40, blank=True)
    n_parameters = models.BigIntegerField(null=True)
    n_layers = models.PositiveIntegerField(null=True)
    context_length = models.PositiveIntegerField(null=True)
    vocab_size = models.PositiveIntegerField(null=True)
    has_mtp = models.BooleanField(default=False)
    first_seen_at = models.DateTimeField()
    hosts = models.ManyToManyField(Host, through="HostModel", related_name="models")

    objects = CatalogueQuerySet.as_manager()

    def __str__(self) -> str:
        return self.manifest_hash[:12]


class HostModel(models.Model):
    """A host has, or once had, a model under an alias."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="model_aliases")
    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="aliases")
    alias = models.CharField(max_length=200)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "model", "alias"], name="host_model_once")]


class JobQuerySet(models.QuerySet["Job"]):
    def visible_to(self, user: Viewer) -> JobQuerySet:
        return self.filter(experiment__in=Experiment.objects.visible_to(user))

    def current(self) -> JobQuerySet:
        """Without the jobs in whose place a retry stands."""
        return self.filter(retry=None)

    def read_by(self, user: Viewer) -> JobQuerySet:
        """Each with ``for_team``: whether the person is in its team."""
        return self.annotate(for_team=models.Exists(teams_of(user).filter(pk=models.OuterRef("experiment__team"))))

    def held(self) -> JobQuerySet:
        return self.filter(state__in=list(HELD))


class Job(models.Model):
    """One experiment on one host. ``state`` is written by ``services.jobs.move_job`` alone.

    ``wanted_host`` is set where the placement names hosts; ``host``, ``inventory`` and what follows are frozen when
    the job is queued and never change while a host holds it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="jobs")
    wanted_host = models.ForeignKey(Host, on_delete=models.PROTECT, null=True, related_name="+")
    host = models.ForeignKey(Host, on_delete=models.PROTECT, null=True, related_name="jobs")
    inventory = models.ForeignKey(HostInventory, on_delete=models.PROTECT, null=True, related_name="+")
    runtime = models.ForeignKey(Runtime, on_delete=models.PROTECT, null=True, related_name="+")
    target = models.ForeignKey(Model, on_delete=models.PROTECT, null=True, related_name="+")
    draft_hashes = models.JSONField(default=dict)  # arm: manifest hash
    device_uuids = models.JSONField(default=list)
    commands = models.JSONField(default=dict)  # arm: argv with symbolic bindings
    plan = models.JSONField(null=True)

    state = models.CharField(max_length=12, choices=JOB_STATES, default=JobState.WAITING.value, db_index=True)
    reason = models.TextField(blank=True)  # in words: why it waits, why it failed
    error = models.JSONField(null=True)  # ErrorBody of a failed job
    progress = models.JSONField(null=True)  # the agent's last word on what it does
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_requested_by = models.CharField(max_length=150, blank=True)
    pause_requested_at = models.DateTimeField(null=True)
    pause_requested_by = models.CharField(max_length=150, blank=True)
    #: A failed or cancelled job is tried again as a new one, at most once; the old stays as history.
    retry_of = models.OneToOneField("self", on_delete=models.RESTRICT, null=True, related_name="retry")
    #: A job that adds blocks to the answer of an earlier one, on the same host: see services.more.
    extends = models.ForeignKey("self", on_delete=models.RESTRICT, null=True, related_name="extensions")
    blocks = models.JSONField(null=True)  # the numbers of the blocks that it runs; null: all of the experiment's
    gives_way = models.BooleanField(default=False)  # nobody waits for it: its host takes every other job first
    block_runs = models.JSONField(default=dict)  # block: its run that counts, where that is not the first
    looked_after = models.PositiveIntegerField(default=0)  # the last block with which an early look was taken
    decided = models.JSONField(default=dict)  # by early looks: arm → the block after which it needs no other
    created_at = models.DateTimeField(auto_now_add=True)
    queued_at = models.DateTimeField(null=True)
    claimed_at = models.DateTimeField(null=True)
    running_at = models.DateTimeField(null=True)
    stalled_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    processed_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)  # failed or cancelled

    objects = JobQuerySet.as_manager()
    for_team: bool  # by read_by

    class Meta:
        ordering = ["id"]
        constraints = [
            # While one adds blocks, what it will bring is not known, so nobody else adds any.
            models.UniqueConstraint(
                fields=["extends"],
                condition=~models.Q(state__in=sorted(s.value for s in FINAL)),
                name="blocks_added_once_at_a_time",
            )
        ]
        indexes = [models.Index(fields=["target", "experiment"], name="job_of_target")]  # how often each model was asked

    @property
    def is_final(self) -> bool:
        return JobState(self.state) in FINAL

    @property
    def is_paused(self) -> bool:
        """Whether it rests, or shall rest after the trial that runs. A job that is done can't."""
        return self.pause_requested_at is not None and not self.is_final and self.state != JobState.COMPLETED

    def reason_for(self, *, team: bool) -> str:
        """While no host has the job, the reason tells of all hosts of its team and what they lack, which is for the team."""
        if team or self.host_id is not None:
            return self.reason
        return "waits for a host of its team" if self.state == JobState.WAITING else ""

    def error_for(self, *, team: bool) -> dict[str, Any] | None:
        """The error with which the job failed; of one that no host took, only its kind for who is not in the team."""
        if team or self.host_id is not None or self.error is None:
            return self.error  # type: ignore[no-any-return]
        return self.error | {"message": "no host of its team took the job", "details": {}}

    def run_of(self, block: int) -> int:
        """The run of a block that counts, from 1."""
        return int(self.block_runs.get(str(block), 1))


class JobMove(models.Model):
    """A change of a job's state, one row each."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="moves")
    src = models.CharField(max_length=12)
    dst = models.CharField(max_length=12)
    at = models.DateTimeField()
    by = models.CharField(max_length=150)
    reason = models.TextField(blank=True)

    class Meta:
        ordering = ["id"]


class Lease(models.Model):
    """The right to work on a job; the newest of a job counts, what comes under an older one is kept and not counted."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="leases")
    n = models.PositiveIntegerField()
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="+")
    inventory = models.ForeignKey(HostInventory, on_delete=models.PROTECT, null=True, related_name="+")  # the host's when it was granted
    token_hash = models.CharField(max_length=64, unique=True)
    granted_at = models.DateTimeField()
    taken_up_at = models.DateTimeField(null=True)  # when the agent first said that it works under it
    reported_at = models.DateTimeField(null=True)  # when the last report of an attempt came under it
    released_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["n"]
        constraints = [models.UniqueConstraint(fields=["job", "n"], name="lease_number_once")]

"""What is watched: configurations that are repeated on each new build, their repeats, and the alerts on what changed."""

from __future__ import annotations

from typing import Any

from django.db import models
from uuid_utils.compat import uuid7

from specweb.accounts.models import Team, User
from specweb.experiments.models import Experiment, Host, Job, Runtime, Viewer
from specweb.experiments.viewer import teams_of

from .notice_models import Channel as Channel
from .notice_models import Delivery as Delivery
from .notice_models import Heard as Heard


class WatchState(models.TextChoices):
    ACTIVE = "active", "active"
    PAUSED = "paused", "paused"
    STOPPED = "stopped", "stopped"


class WatchQuerySet(models.QuerySet["Watch"]):
    def visible_to(self, user: Viewer) -> WatchQuerySet:
        """Those of a person's teams, but for those on somebody else's private experiments."""
        return self.filter(team__in=teams_of(user), experiment__in=Experiment.objects.visible_to(user))


class Watch(models.Model):
    """An experiment that is repeated on a host, or on each host with labels, of its team. A stopped one stays as history."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="watches")
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="watches")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    host = models.ForeignKey(Host, on_delete=models.PROTECT, null=True, related_name="+")
    labels = models.JSONField(default=dict)  # where no host is named
    every_days = models.PositiveSmallIntegerField(null=True)  # repeated after so many days too, new build or not
    smallest = models.FloatField(default=0.02)  # a change of less than this share raises no alert
    state = models.CharField(max_length=8, choices=WatchState, default=WatchState.ACTIVE)
    note = models.CharField(max_length=500, blank=True)  # in words: why it rests, or what the last look waits for
    created_at = models.DateTimeField(auto_now_add=True)
    #: Host → its inventory with which nothing was left to repeat, so that the next look need not read it again.
    settled = models.JSONField(default=dict)

    objects = WatchQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["experiment", "host"], condition=~models.Q(state="stopped") & models.Q(host__isnull=False), name="watched_once"
            ),
            models.UniqueConstraint(
                fields=["experiment", "labels"],
                condition=~models.Q(state="stopped") & models.Q(host__isnull=True),
                name="watched_once_by_labels",
            ),
        ]

    def __str__(self) -> str:
        return self.experiment.name

    @property
    def where(self) -> str:
        return self.host.name if self.host else "hosts with " + ", ".join(f"{k}={v}" for k, v in self.labels.items())


class Cause(models.TextChoices):
    BUILD = "build", "a new build"
    TIME = "time", "its days are over"


class Repeat(models.Model):
    """A watched experiment asked again, as an experiment of its own. For each build of a host at most once because of the build."""

    watch = models.ForeignKey(Watch, on_delete=models.CASCADE, related_name="repeats")
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="+")
    runtime = models.ForeignKey(Runtime, on_delete=models.PROTECT, related_name="+")
    experiment = models.OneToOneField(Experiment, on_delete=models.CASCADE, related_name="repeat")
    cause = models.CharField(max_length=5, choices=Cause)
    created_at = models.DateTimeField()
    looked_at = models.DateTimeField(null=True)  # when its end was taken into account

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["watch", "host", "runtime"], condition=models.Q(cause="build"), name="repeated_once_a_build")
        ]
        indexes = [models.Index(fields=["id"], condition=models.Q(looked_at=None), name="repeat_not_looked_at")]


class Metric(models.TextChoices):
    RATIO = "ratio", "speed-up"
    ACCEPTANCE = "acceptance", "acceptance"
    BASELINE = "baseline", "baseline speed"


class AlertQuerySet(models.QuerySet["Alert"]):
    def visible_to(self, user: Viewer) -> AlertQuerySet:
        return self.filter(watch__in=Watch.objects.visible_to(user))


class Alert(models.Model):
    """One lasting change of one number on one host. ``numbers``: before, after and their ratio, with intervals and jobs.

    ``job_before`` and ``job_after`` follow each other: between them it changed.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    watch = models.ForeignKey(Watch, on_delete=models.CASCADE, related_name="alerts")
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="+")
    arm = models.CharField(max_length=80)
    point = models.CharField(max_length=200)
    metric = models.CharField(max_length=10, choices=Metric)
    better = models.BooleanField()
    shape = models.CharField(max_length=5)  # step, drift
    numbers = models.JSONField()
    job_before = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="+")
    job_after = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField()
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    acknowledged_note = models.CharField(max_length=500, blank=True)

    objects = AlertQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["watch", "host", "arm", "point", "metric", "job_after"], name="one_alert_a_change")]

    @property
    def word(self) -> str:
        return "better" if self.better else "worse"

    @property
    def change(self) -> dict[str, Any]:
        """After ÷ before: estimate, low, high."""
        return self.numbers["change"]  # type: ignore[no-any-return]

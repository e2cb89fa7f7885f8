"""Where a team is told, and each notice on its way there."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from uuid_utils.compat import uuid7

from specweb.accounts.models import Team, User
from specweb.experiments.models import Viewer
from specweb.experiments.viewer import teams_of


class Kind(models.TextChoices):
    EMAIL = "email", "e-mail"
    WEBHOOK = "webhook", "signed webhook"
    SLACK = "slack", "Slack-compatible webhook"


class Event(models.TextChoices):
    ALERT = "alert", "a watched number changed for good"
    FINISHED = "finished", "an experiment ended"
    LOST = "lost", "a host fell silent"


class ChannelQuerySet(models.QuerySet["Channel"]):
    def visible_to(self, user: Viewer) -> ChannelQuerySet:
        return self.filter(team__in=teams_of(user))


class Channel(models.Model):
    """An address of a team for notices. ``secret`` signs what a webhook gets; it and the address are shown to nobody again."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="channels")
    kind = models.CharField(max_length=8, choices=Kind)
    name = models.CharField(max_length=80)
    target = models.CharField(max_length=500)  # address of mail, or of HTTP
    secret = models.CharField(max_length=80, blank=True)
    events = models.JSONField(default=list)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    n_failed = models.PositiveIntegerField(default=0)  # notices in a row that were given up
    disabled_at = models.DateTimeField(null=True)
    disabled_reason = models.CharField(max_length=300, blank=True)

    objects = ChannelQuerySet.as_manager()

    class Meta:
        ordering = ["created_at"]
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="channel_name_once")]

    def __str__(self) -> str:
        return self.name

    @property
    def shown_target(self) -> str:
        """What may be shown: the paths of some services' webhooks are secrets."""
        if self.kind == Kind.EMAIL:
            return self.target
        scheme, _, rest = self.target.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}/…"


class DeliveryState(models.TextChoices):
    WAITING = "waiting", "waiting"
    SENT = "sent", "sent"
    FAILED = "failed", "given up"


class Delivery(models.Model):
    """One notice to one channel. ``key`` names what it tells of, so that nothing is told twice."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=8)  # an Event, or "test"
    key = models.CharField(max_length=160)
    subject = models.CharField(max_length=300)
    body = models.JSONField()
    state = models.CharField(max_length=7, choices=DeliveryState, default=DeliveryState.WAITING)
    created_at = models.DateTimeField()
    next_try_at = models.DateTimeField(null=True)
    n_tries = models.PositiveSmallIntegerField(default=0)
    status = models.PositiveSmallIntegerField(null=True)  # the last answer's, of HTTP
    error = models.CharField(max_length=300, blank=True)  # of the last try
    sent_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["channel", "key"], name="told_once")]
        indexes = [models.Index(fields=["next_try_at"], condition=models.Q(state="waiting"), name="delivery_due")]


class Heard(models.Model):
    """How far the moves of jobs have been read for notices. One row."""

    move = models.BigIntegerField(default=0)

"""Published versions of experiments: what was found then, kept as it was. The database refuses to change or remove one."""

from __future__ import annotations

from typing import Any

from django.db import models
from uuid_utils.compat import uuid7

from specweb.experiments.models import Experiment


class Publication(models.Model):
    """One numbered version. ``content`` is all that its page shows, ``content_hash`` the SHA-256 of it as canonical JSON.

    People stand here by name, so that no later change to an account touches the row. A later version corrects an earlier one.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    experiment = models.ForeignKey(Experiment, on_delete=models.PROTECT, related_name="publications")
    version = models.PositiveIntegerField()
    reason = models.TextField(blank=True)  # of a correction: what was wrong with the version before
    published_by = models.CharField(max_length=150)
    published_at = models.DateTimeField()
    content = models.JSONField()
    content_hash = models.CharField(max_length=64)

    class Meta:
        ordering = ["version"]
        constraints = [
            models.UniqueConstraint(fields=["experiment", "version"], name="publication_version_once"),
            models.CheckConstraint(condition=models.Q(version=1) | ~models.Q(reason=""), name="correction_has_a_reason"),
        ]

    def __str__(self) -> str:
        return f"{self.experiment_id} v{self.version}"

    @property
    def withdrawn(self) -> Withdrawal | None:
        return getattr(self, "withdrawal", None)

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return list(self.content["jobs"])


class Withdrawal(models.Model):
    """That a version is no longer shown, and why. It is never taken back: publish a new version."""

    publication = models.OneToOneField(Publication, on_delete=models.PROTECT, primary_key=True, related_name="withdrawal")
    reason = models.TextField()
    withdrawn_by = models.CharField(max_length=150)
    withdrawn_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=~models.Q(reason=""), name="withdrawal_has_a_reason")]

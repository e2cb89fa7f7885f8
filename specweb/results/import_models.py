"""Experiments that were measured on another server and came here as an archive."""

from __future__ import annotations

from django.db import models

from specweb.accounts.models import User
from specweb.experiments.models import Experiment


class ArchiveImport(models.Model):
    """Where an imported experiment came from, and what its archive said, against which stands what was computed here.

    ``facts``: job → what only the other server could know of it (its host's noise floor, whether both shared a machine).
    ``told``: the analyses and the hashes of the measurements. ``lacking``: evidence that the archive didn't hold.
    """

    experiment = models.OneToOneField(Experiment, on_delete=models.CASCADE, primary_key=True, related_name="imported")
    server = models.CharField(max_length=300)  # that made the archive
    measured_on = models.CharField(max_length=300)  # that measured; the same, unless that one had imported it itself
    manifest_sha256 = models.CharField(max_length=64)
    imported_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    imported_at = models.DateTimeField()
    facts = models.JSONField(default=dict)
    told = models.JSONField(default=dict)
    lacking = models.JSONField(default=list)

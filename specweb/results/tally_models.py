"""How many results there are of each kind, so that what can be chosen from is told without counting them all."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from specweb.accounts.models import Team, User
from specweb.experiments.models import Viewer, Visibility
from specweb.experiments.viewer import teams_of


def readable_by(user: Viewer) -> Q:
    """Of rows that carry who may read their experiment: what ``Experiment.objects.visible_to`` says, without asking its table."""
    public = Q(visibility=Visibility.PUBLIC)
    if not user.pk:
        return public
    not_others = ~Q(visibility=Visibility.PRIVATE) | Q(submitter=user.pk)
    return public | Q(team__in=teams_of(user)) & not_others


class ListingTallyQuerySet(models.QuerySet["ListingTally"]):
    def visible_to(self, user: Viewer) -> ListingTallyQuerySet:
        return self.filter(readable_by(user), n__gt=0)


class ListingTally(models.Model):
    """How many listings have one combination of what the Compare page filters by.

    Written by triggers on the listings alone, in the transaction that changes them (see the migration that makes them), so that
    no writer can forget it; ``services.listings.tally_anew`` counts from nothing.
    """

    key = models.CharField(max_length=32, primary_key=True)  # of all that follows but the counts
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="+", db_index=False)
    visibility = models.CharField(max_length=8)
    submitter = models.ForeignKey(User, on_delete=models.CASCADE, null=True, related_name="+", db_index=False)  # of private ones only
    target_hash = models.CharField(max_length=80)
    target = models.CharField(max_length=200)
    engine = models.CharField(max_length=20)
    workload = models.CharField(max_length=120)
    concurrency = models.PositiveIntegerField()
    occupied_context = models.PositiveIntegerField()
    hardware = models.CharField(max_length=200, blank=True)
    mode = models.CharField(max_length=40)
    n = models.PositiveIntegerField()
    n_best = models.PositiveIntegerField(default=0)  # of these recommended

    objects = ListingTallyQuerySet.as_manager()

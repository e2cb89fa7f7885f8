"""Comparisons → what the Compare page lists."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection
from django.db.models import Max
from django.utils import timezone
from speccore.measurement import JobAnalysis

from specweb.experiments.models import Experiment, HostModel, Job, Origin
from specweb.experiments.text import storable
from specweb.results.listing import values_of
from specweb.results.models import Attempt, Comparison, Listing


def _jobs(job: Job, analysis: JobAnalysis) -> list[str]:
    return [str(job.pk), *(part.job for part in analysis.parts if not part.differs)]


def list_comparisons(job: Job, analysis: JobAnalysis, comparisons: Sequence[Comparison]) -> None:
    """Lists a job's newest comparisons in place of those that they supersede."""
    # Who shares an experiment holds it and then its listings; held in this order here too, neither waits for the other for ever.
    Experiment.objects.select_for_update(no_key=True).values_list("pk").get(pk=job.experiment_id)
    Listing.objects.filter(comparison__job=job).exclude(comparison__superseded_by=None).delete()
    points = {p.pk: p for p in job.experiment.points.select_related("workload").defer("workload__content")}
    alias = HostModel.objects.filter(host=job.host_id, model=job.target_id).values_list("alias", flat=True).first() or ""
    ended = Attempt.objects.filter(trial__job__in=_jobs(job, analysis), accepted=True).aggregate(at=Max("ended_at"))["at"] or timezone.now()
    spec, new = job.experiment.parsed_spec, []
    for row, result in zip(comparisons, analysis.comparisons, strict=True):
        values = values_of(spec, job, points[row.point_id], alias, result, analysis.checks, ended)
        if values is not None:
            origin = job.experiment.origin
            marks = {"self_run": origin != Origin.SERVICE, "imported": origin == Origin.IMPORTED}
            listing = Listing(comparison=row, experiment_id=job.experiment_id, host_id=job.host_id, **marks)
            for name, value in storable(values).items():
                setattr(listing, name, value)
            new.append(listing)
    Listing.objects.bulk_create(new)


def tally_anew() -> None:
    """Counts the listings of each kind from nothing, as the database's triggers keep them counted."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT results_tally_anew()")

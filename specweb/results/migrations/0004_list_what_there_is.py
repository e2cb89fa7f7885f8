from django.db import migrations
from django.db.models import Max
from speccore.measurement import ComparisonResult, JobAnalysis
from speccore.spec import read_stored_spec

from specweb.experiments.text import storable
from specweb.results.listing import values_of

CHUNK = 200


def list_comparisons(apps, schema_editor):
    """Those that came before the Compare page. What can't be read any more stays where it is, and is not listed."""
    Comparison, Listing = apps.get_model("results", "Comparison"), apps.get_model("results", "Listing")
    Attempt, HostModel = apps.get_model("results", "Attempt"), apps.get_model("experiments", "HostModel")
    current = Comparison.objects.filter(superseded_by=None).order_by("job_id", "pk")
    rows = current.select_related(
        "job__experiment", "job__inventory", "job__runtime", "job__target", "analysis", "point__workload"
    ).defer("job__plan", "job__commands", "point__workload__content")
    of_job, new = None, []
    for row in rows.iterator(CHUNK):
        job = row.job
        try:
            if of_job is None or of_job[0] != job.pk:
                spec, analysis = read_stored_spec(job.experiment.spec), JobAnalysis.model_validate(row.analysis.numbers)
                alias = HostModel.objects.filter(host=job.host_id, model=job.target_id).values_list("alias", flat=True).first() or ""
                ended = Attempt.objects.filter(trial__job=job, accepted=True).aggregate(at=Max("ended_at"))["at"]
                of_job = job.pk, spec, analysis.checks, alias, ended or row.created_at
            _, spec, checks, alias, ended = of_job
            values = values_of(spec, job, row.point, alias, ComparisonResult.model_validate(row.numbers), checks, ended)
        except (ValueError, LookupError, StopIteration):
            of_job = None
            continue
        if values is not None:
            more = {"self_run": job.experiment.origin == "self-run", "experiment_id": job.experiment_id, "host_id": job.host_id}
            new.append(Listing(comparison=row, **more, **storable(values)))
        if len(new) >= CHUNK:
            Listing.objects.bulk_create(new)
            new = []
    Listing.objects.bulk_create(new)


class Migration(migrations.Migration):

    dependencies = [
        ('results', '0003_listings'),
    ]

    operations = [
        migrations.RunPython(list_comparisons, migrations.RunPython.noop),
    ]

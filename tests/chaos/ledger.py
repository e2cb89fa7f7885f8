"""What must hold when a job has ended, whatever was killed meanwhile: no trial lost or counted twice, no byte changed, nothing left."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from django.db.models import QuerySet
from django.utils import timezone
from speccore.errors import SpecWebError

from specweb.experiments.models import Job
from specweb.results.models import Analysis, Attempt, AttemptState, Comparison, EvidenceFile, Probe
from specweb.results.partials import LIFE, sweep_incoming
from specweb.results.services.comparing import analyse
from specweb.results.store import read_blob

from .rig import Rig


def lost(job: Job) -> list[str]:
    """Trials of the plan without an attempt that counts, and attempts that count and were not read."""
    counted = set(_counted(job).values_list("trial__plan_id", flat=True))
    unread = _counted(job).filter(outcome="ok").exclude(state=AttemptState.PARSED)
    missing = [f"trial {t['id']}: no attempt counts" for t in job.plan["trials"] if t["id"] not in counted]
    uncompared = [] if Comparison.objects.current().filter(job=job).exists() else ["nothing was compared"]
    return missing + [f"attempt {a.pk} at {a.trial.plan_id}: {a.state}" for a in unread] + uncompared


def doubled(job: Job) -> list[str]:
    """Trials with more than one accepted attempt, probes more than once among the numbers that are compared, and comparisons
    that say something else than the accepted attempts do."""
    accepted = Counter(_counted(job).filter(accepted=True).values_list("trial__plan_id", flat=True))
    found = [f"trial {trial}: {n} accepted attempts" for trial, n in accepted.items() if n > 1]
    current = Probe.objects.filter(measurement__in=Attempt.objects.filter(trial__job=job, accepted=True).values("measurement"))
    probes = Counter(current.filter(warmup=False).values_list("attempt__trial__plan_id", "probe"))
    found += [f"probe {probe} of {trial}: {n} times" for (trial, probe), n in probes.items() if n > 1]
    analysis = Analysis.objects.filter(job=job).last()
    if analysis is not None and analysis.parsed.comparisons != analyse(job).comparisons:
        found.append("the stored comparisons are not those of the accepted attempts")
    current_ones = Counter(Comparison.objects.current().filter(job=job).values_list("arm__name", "point__key"))
    return found + [f"comparison {name}: {n} current" for name, n in current_ones.items() if n > 1]


def unmeasured(job: Job) -> list[str]:
    """Trials whose measuring failed for good, so that their attempts count and give no numbers."""
    good = set(_counted(job).filter(accepted=True).values_list("trial__plan_id", flat=True))
    failed = _counted(job).exclude(trial__plan_id__in=good).values_list("trial__plan_id", "error__code")
    return [f"trial {trial}: {code}" for trial, code in failed]


def damaged(job: Job) -> list[str]:
    """Evidence files of any attempt, counted or not, whose bytes are gone or have another hash than they are stored under."""
    found = []
    for file in EvidenceFile.objects.filter(attempt__trial__job=job).select_related("blob", "attempt__trial"):
        try:
            read_blob(file.blob)
        except (OSError, SpecWebError) as error:
            found.append(f"{file.name} of {file.attempt.trial.plan_id}: {error}")
    return found


def leftovers(rig: Rig) -> list[str]:
    """Processes that belong to no part, and files that only a job in work, or an upload under way, may have."""
    sweep_incoming(timezone.now() + LIFE + timedelta(minutes=1))
    spool, evidence = rig.home / "agent" / "spool", rig.home / "evidence"
    files = [
        *(spool / "work").rglob("*"),
        *(spool / "attempts").rglob("*"),
        *(spool / "refused").rglob("*"),
        *(rig.home / "agent" / "engines").rglob("*"),
        *(p for p in (evidence / "incoming").rglob("*") if p.is_file()),
        *(p for p in rig.home.rglob("*.part*") if p.is_file()),
    ]
    return rig.strays() + sorted({f"{p.relative_to(rig.home)}" for p in files})


def _counted(job: Job) -> QuerySet[Attempt]:
    return Attempt.objects.filter(trial__job=job, counted=True).exclude(outcome="cancelled")

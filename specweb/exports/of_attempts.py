"""What was tried and asked, and the files that it left, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

import django_filters as filters
from django.db.models import F, QuerySet
from speccore.measurement import DEFINED_LATER

from specweb.experiments.models import Viewer
from specweb.results.models import Attempt, EvidenceFile, MeasurementSet, Probe
from specweb.results.page_queries import reads_texts

from .table import CHUNK, Table, address, columns, maybe, told
from .texts import Text

#: Numbers of an attempt that may be withheld, and those that may be missing.
_OF_ATTEMPT = ("peak_memory_bytes", "peak_device_bytes", "memory_after_load_bytes", "memory_growth_bytes_per_min", "energy_j_per_1k_tokens")
_PLAIN = ("engaged", "healthy_after_s", "cpu_percent_mean", "temperature_c", "clock_mhz")
#: A probe's columns → where its measurement has the number.
_OF_PROBE = {
    "ttft_any_s": "ttft_any_s",
    "ttft_content_s": "ttft_content_s",
    "e2e_s": "e2e_s",
    "decode_tokens_per_s": "decode_tokens_per_s",
    "prompt_tokens": "prompt_tokens",
    "tokens": "completion_tokens",
    "cache_hit_tokens": "cache_hit_tokens",
    "drafted": "counters.drafted",
    "accepted": "counters.accepted",
    "verify_steps": "counters.verify_steps",
    "decode_steps": "counters.decode_steps",
}


class AttemptsFilter(filters.FilterSet):
    experiment = filters.UUIDFilter("trial__job__experiment_id", label="Of one experiment.")
    job = filters.UUIDFilter("trial__job_id", label="Of one job.")
    host = filters.UUIDFilter("trial__job__host_id", label="Of jobs of one host.")
    team = Text("trial__job__experiment__team__slug", label="Of this team's experiments.")
    arm = Text("trial__arm__name", label="Of this arm.")
    accepted = filters.BooleanFilter(label="That count, or that don't.")

    class Meta:
        model = Attempt
        fields: list[str] = []


def _attempts(user: Viewer) -> QuerySet[Attempt]:
    return Attempt.objects.visible_to(user).order_by("trial__job_id", "trial__index", "received_at", "pk")


def _attempt_lines(rows: QuerySet[Attempt], user: Viewer) -> Iterator[Sequence[Any]]:
    found = rows.select_related("trial__arm", "trial__job__experiment", "trial__job__host")
    found = found.defer("trial__arm__settings", "trial__job__plan", "trial__job__commands", "trial__job__progress")
    found = found.defer("trial__job__experiment__spec")
    numbers = {f"m_{name}": F(f"measurement__numbers__{name}") for name in (*_OF_ATTEMPT, *_PLAIN)}
    for a in found.annotate(**numbers).iterator(CHUNK):
        yield _attempt(a)


def _attempt(a: Any) -> Sequence[Any]:
    t, job, e = a.trial, a.trial.job, a.trial.job.experiment
    error = a.error or {}
    there = a.measurement_id is not None
    read = [maybe(getattr(a, f"m_{name}")) if there else (None, "not parsed") for name in _OF_ATTEMPT]
    engaged, healthy, cpu, warm, clock = (getattr(a, f"m_{name}") for name in _PLAIN)
    low, high = clock or (None, None)
    names = (str(e.pk), e.name, str(job.pk), job.host.name if job.host else None, str(a.pk), t.plan_id, t.index + 1, t.block, t.position)
    what = (t.arm.name, t.arm.mode, a.n, a.state, a.outcome, a.accepted, a.counted, a.void_reason)
    course = (error.get("code"), error.get("message"), a.started_at, a.ended_at, a.received_at, a.durations_s)
    numbers = [part for pair in read for part in pair]
    return (*names, *what, *course, *numbers, engaged, healthy, cpu, warm, low, high, address(f"/attempts/{a.pk}/"))


ATTEMPTS = Table(
    "attempts",
    "Each try at a trial, in the order of running, with what its evidence says of the start as a whole.",
    (
        *columns("id", "experiment"),
        *columns("text", "experiment_name"),
        *columns("id", "job"),
        *columns("text", "host"),
        *columns("id", "attempt"),
        *columns("text", "trial"),
        *columns("integer", "number block position"),
        *columns("text", "arm mode"),
        *columns("integer", "n"),
        *columns("text", "state outcome"),
        *columns("yes or no", "accepted counted"),
        *columns("text", "void_reason error_code error_message"),
        *columns("time", "started_at ended_at received_at"),
        *columns("json", "durations_s"),
        *told(" ".join(_OF_ATTEMPT)),
        *columns("yes or no", "engaged"),
        *columns("number", "healthy_after_s cpu_percent_mean temperature_c clock_mhz_low clock_mhz_high"),
        *columns("text", "url"),
    ),
    AttemptsFilter,
    _attempts,
    _attempt_lines,
)


class ProbesFilter(filters.FilterSet):
    experiment = filters.UUIDFilter("attempt__trial__job__experiment_id", label="Of one experiment.")
    job = filters.UUIDFilter("attempt__trial__job_id", label="Of one job.")
    attempt = filters.UUIDFilter("attempt_id", label="Of one attempt.")
    team = Text("attempt__trial__job__experiment__team__slug", label="Of this team's experiments.")
    arm = Text("attempt__trial__arm__name", label="Of this arm.")
    point = Text("point__key", label="At this point.")
    accepted = filters.BooleanFilter("attempt__accepted", label="Of attempts that count, or of those that don't.")
    warmup = filters.BooleanFilter(label="Requests to warm up, which no number rests on, or those that are timed.")

    class Meta:
        model = Probe
        fields: list[str] = []


def _probes(user: Viewer) -> QuerySet[Probe]:
    """Of the current reading of each attempt's evidence."""
    rows = Probe.objects.filter(attempt__in=Attempt.objects.visible_to(user), attempt__measurement=F("measurement"))
    return rows.order_by("attempt__trial__job_id", "attempt__trial__index", "attempt_id", "i")


def _probe_lines(rows: QuerySet[Probe], user: Viewer) -> Iterator[Sequence[Any]]:
    before = ("attempt__trial__job__experiment_id", "attempt__trial__job_id", "attempt_id", "attempt__trial__plan_id")
    where = ("attempt__trial__block", "attempt__trial__arm__name", "attempt__accepted", "point__key")
    own = ("i", "probe", "item", "warmup", "ok", "failure", "failure_message", "finish_reason", "check_passed", "line")
    found = rows.values_list("measurement_id", *before, *where, *own, *_OF_PROBE).iterator(CHUNK)
    n_before, n_own, i_at = 1 + len(before) + len(where), len(own), 1 + len(before) + len(where)
    for measurement, group in groupby(found, key=lambda row: row[0]):
        why: list[dict[str, Any]] | None = None
        for row in group:
            numbers = row[n_before + n_own :]
            if why is None and None in numbers:
                why = _reasons(measurement)
            each = why[row[i_at]] if why and row[i_at] < len(why) else {}
            pairs = [part for name, value in zip(_OF_PROBE, numbers, strict=True) for part in _told(value, each, _OF_PROBE[name])]
            ids = tuple(str(v) for v in row[1:4])
            yield (*ids, *row[4:n_before], *row[n_before : n_before + n_own], *pairs)


def _reasons(measurement: int) -> list[dict[str, Any]]:
    return MeasurementSet.objects.filter(pk=measurement).values_list("numbers__probes", flat=True).first() or []


def _told(value: float | None, probe: dict[str, Any], path: str) -> tuple[float | None, str | None]:
    if value is not None:
        return value, None
    kept: Any = probe
    for part in path.split("."):
        kept = (kept or {}).get(part)
    return None, (kept or {}).get("withheld") or DEFINED_LATER.withheld


PROBES = Table(
    "probes",
    "Each request, with the line of records.jsonl that it was read from.",
    (
        *columns("id", "experiment job attempt"),
        *columns("text", "trial"),
        *columns("integer", "block"),
        *columns("text", "arm"),
        *columns("yes or no", "attempt_accepted"),
        *columns("text", "point"),
        *columns("integer", "number"),
        *columns("text", "probe item"),
        *columns("yes or no", "warmup ok"),
        *columns("text", "failure failure_message finish_reason"),
        *columns("yes or no", "check_passed"),
        *columns("integer", "source_line"),
        *told(" ".join(_OF_PROBE)),
    ),
    ProbesFilter,
    _probes,
    _probe_lines,
)


class EvidenceRows(filters.FilterSet):
    experiment = filters.UUIDFilter("attempt__trial__job__experiment_id", label="Of one experiment.")
    job = filters.UUIDFilter("attempt__trial__job_id", label="Of one job.")
    attempt = filters.UUIDFilter("attempt_id", label="Of one attempt.")
    name = Text(label="Files of this name.")
    kind = Text(label="Files of this kind.")
    team = Text("attempt__trial__job__experiment__team__slug", label="Of this team's experiments.")
    accepted = filters.BooleanFilter("attempt__accepted", label="Of attempts that count, or of those that don't.")

    class Meta:
        model = EvidenceFile
        fields: list[str] = []


def _evidence(user: Viewer) -> QuerySet[EvidenceFile]:
    rows = EvidenceFile.objects.filter(attempt__in=Attempt.objects.visible_to(user))
    return rows.order_by("attempt__trial__job_id", "attempt__trial__index", "attempt__n", "name", "pk")


def _evidence_lines(rows: QuerySet[EvidenceFile], user: Viewer) -> Iterator[Sequence[Any]]:
    found = rows.select_related("blob", "attempt__trial__arm", "attempt__trial__job__experiment")
    found = found.defer("attempt__trial__job__plan", "attempt__trial__job__commands", "attempt__trial__arm__settings")
    readable: dict[UUID, bool] = {}
    for file in found.iterator(CHUNK):
        a, t, e = file.attempt, file.attempt.trial, file.attempt.trial.job.experiment
        if file.private and e.pk not in readable:
            readable[e.pk] = reads_texts(user, e)
        url = None if file.private and not readable[e.pk] else address(f"/api/v1/attempts/{a.pk}/evidence/{file.name}")
        names = (str(e.pk), str(t.job_id), str(a.pk), t.plan_id, t.block, t.arm.name, a.accepted)
        yield (*names, file.name, file.kind, file.private, file.blob_id, file.blob.bytes, url)


EVIDENCE = Table(
    "evidence",
    "The raw files of attempts with their SHA-256; url is empty where prompts and answers are not for who asks.",
    (
        *columns("id", "experiment job attempt"),
        *columns("text", "trial"),
        *columns("integer", "block"),
        *columns("text", "arm"),
        *columns("yes or no", "attempt_accepted"),
        *columns("text", "file kind"),
        *columns("yes or no", "private"),
        *columns("id", "sha256"),
        *columns("integer", "bytes"),
        *columns("text", "url"),
    ),
    EvidenceRows,
    _evidence,
    _evidence_lines,
)

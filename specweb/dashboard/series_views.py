"""What the charts of a trial and of a job's order draw, as JSON under an entity tag; read from evidence only if it is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified, JsonResponse
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe
from speccore.measurement import Source
from speccore.records import ATTEMPT, RECORDS, SAMPLES, AttemptSummary

from specweb.results import order_queries, page_queries, trial_evidence, trial_series
from specweb.results.models import Attempt, EvidenceFile
from specweb.results.trial_series import Unreadable

from . import attempt_page, formats, order_chart, series_cycles, series_samples, series_stream
from .live_views import unchanged
from .sources import source_url
from .views import missing, whole_number

#: Part of each tag: a new shape of the data must not be taken for the old one.
SHAPE = "1"


@require_safe
@cache_control(private=True, no_cache=True)
def series(request: HttpRequest, attempt_id: UUID, what: str) -> HttpResponse:
    """``what``: cycles (of the request at line ``probe`` of the records), stream or samples."""
    make = _SERIES.get(what)
    if make is None:
        raise Http404
    found = page_queries.attempt_shown(request.user, attempt_id, whole=what == "stream")
    if found is None:
        return missing(request)
    files = {f.name: f for f in page_queries.evidence_of(found)}
    line = whole_number(request.GET.get("probe", ""), 0)
    file = files.get(_READ[what][0])
    hidden = file is not None and file.private and not page_queries.reads_texts(request.user, found.trial.job.experiment)
    tag = tag_of([what, str(line), str(hidden), *(f"{name}={files[name].blob_id}" for name in _READ[what] if name in files)])
    if unchanged(request, tag):
        return HttpResponseNotModified(headers={"ETag": tag})
    try:
        data = make(found, _readable(file, _READ[what][0], hidden=hidden), files, line)
    except Unreadable as error:
        data = {"empty": str(error)}
    return JsonResponse(data, headers={"ETag": tag})


@require_safe
@cache_control(private=True, no_cache=True)
def order(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """The starts of a job in the order in which they ran."""
    job = page_queries.job_shown(request.user, job_id)
    if job is None:
        return missing(request)
    tag = tag_of(["order", str(job.pk), order_queries.state_of_order(job)])
    if unchanged(request, tag):
        return HttpResponseNotModified(headers={"ETag": tag})
    titles = attempt_page.works(job.experiment.parsed_spec, page_queries.titles_of_points(job.experiment_id))
    return JsonResponse(order_chart.order_data(order_queries.starts_in_order(job), titles), headers={"ETag": tag})


def tag_of(parts: Iterable[str]) -> str:
    return '"' + hashlib.sha256("\n".join([SHAPE, *parts]).encode()).hexdigest()[:24] + '"'


def _readable(file: EvidenceFile | None, name: str, *, hidden: bool) -> EvidenceFile:
    if file is None:
        raise Unreadable(f"This trial left no {name}.")
    if hidden:
        raise Unreadable(f"{name} of this trial is for the team only.")
    return file


def _cycles(attempt: Attempt, file: EvidenceFile, files: dict[str, EvidenceFile], line: int) -> dict[str, Any]:
    if not line:
        raise Unreadable("No request is chosen.")
    data = series_cycles.cycles_data(trial_series.record_at(file, line))
    return data | {"href": source_url(attempt.id, Source(file=RECORDS, line=line, field="events"))}


def _stream(attempt: Attempt, file: EvidenceFile, files: dict[str, EvidenceFile], line: int) -> dict[str, Any]:
    experiment = attempt.trial.job.experiment
    works = attempt_page.works(experiment.parsed_spec, page_queries.titles_of_points(experiment.pk))
    return series_stream.stream_data(trial_series.all_records(file), attempt.id, works)


def _samples(attempt: Attempt, file: EvidenceFile, files: dict[str, EvidenceFile], line: int) -> dict[str, Any]:
    readable = [f for f in files.values() if not f.private]
    summary = trial_evidence.document(readable, ATTEMPT, AttemptSummary)
    seconds = formats.seconds_between(attempt.started_at, attempt.ended_at)
    data = series_samples.samples_data(trial_series.all_samples(file), summary, seconds)
    return data | {"href": source_url(attempt.id, Source(file=SAMPLES))}


_SERIES: dict[str, Callable[[Attempt, EvidenceFile, dict[str, EvidenceFile], int], dict[str, Any]]] = {
    "cycles": _cycles,
    "stream": _stream,
    "samples": _samples,
}
#: What each is read from, the main file first.
_READ = {"cycles": (RECORDS,), "stream": (RECORDS,), "samples": (SAMPLES, ATTEMPT)}

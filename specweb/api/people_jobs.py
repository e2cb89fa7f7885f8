"""What people's programs do to jobs, and the evidence that jobs left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO
from uuid import UUID

import django_filters as filters
from django.http import Http404, StreamingHttpResponse
from django.utils import timezone
from django.utils.http import content_disposition_header
from rest_framework.request import Request
from rest_framework.response import Response
from speccore.errors import NotPossible
from speccore.yamltext import data_to_yaml

from specweb.experiments.models import Job
from specweb.experiments.services.jobs import request_cancel, request_pause, resume_job, retry_job
from specweb.experiments.services.reproducing import reproduction_of
from specweb.results import api_queries, page_queries
from specweb.results.models import EvidenceFile
from specweb.results.store import CHUNK, open_blob

from . import answers
from . import people_shapes as shapes
from .describing import BYTES, YAML, describe, whole
from .paging import CURSOR, Text, filtered, filters_of, page
from .people_auth import PeopleView, refuse_unless_submitter
from .people_renderers import Bytes, OtherThanJson, Yaml

FILES_SHOWN, FILES_MOST = 500, 2_000


def controlled(request: Request, job_id: UUID) -> Job:
    """The job, if the person may submit for its team."""
    job = page_queries.job_shown(request.user, job_id)
    if job is None:
        raise Http404
    refuse_unless_submitter(request.user, job.experiment.team)
    return job


def job_answer(job: Job, status: int = 200) -> Response:
    fresh = Job.objects.select_related("host", "wanted_host").defer("plan", "commands").get(pk=job.pk)
    return Response(shapes.job_line(fresh, for_team=True) | {"experiment": str(fresh.experiment_id)}, status=status)


class CancelView(PeopleView):
    @describe("Cancel a job", tag="Jobs", answer=answers.JobAnswer, refuses=[409])
    def post(self, request: Request, job_id: UUID) -> Response:
        job = controlled(request, job_id)
        if not request_cancel(job, now=timezone.now(), by=request.user.get_username()):
            raise NotPossible("nothing to cancel: the job has ended, or is being cancelled already", remedy="Look at its state.")
        return job_answer(job)


class JobSpecView(OtherThanJson):
    renderer_classes = [Yaml]

    @describe("The experiment of a job, pinned to what it ran with", tag="Jobs", media=YAML)
    def get(self, request: Request, job_id: UUID) -> Response:
        job = page_queries.job_shown(request.user, job_id)
        if job is None:
            raise Http404
        return Response(data_to_yaml(reproduction_of(job)))


class PauseView(PeopleView):
    @describe("Pause a job", tag="Jobs", answer=answers.JobAnswer, refuses=[409])
    def post(self, request: Request, job_id: UUID) -> Response:
        job = controlled(request, job_id)
        if not request_pause(job, now=timezone.now(), by=request.user.get_username()):
            raise NotPossible("nothing to pause: the job rests already, or is done", remedy="Look at its state.")
        return job_answer(job)


class ResumeView(PeopleView):
    @describe("Resume a job that is paused", tag="Jobs", answer=answers.JobAnswer, refuses=[409])
    def post(self, request: Request, job_id: UUID) -> Response:
        job = controlled(request, job_id)
        if not resume_job(job, now=timezone.now(), by=request.user.get_username()):
            raise NotPossible("nothing to resume: the job was not paused", remedy="Look at its state.")
        return job_answer(job)


class RetryView(PeopleView):
    @describe("Try a job that has ended again", tag="Jobs", answer=answers.JobAnswer, status=201, refuses=[409])
    def post(self, request: Request, job_id: UUID) -> Response:
        """The new job; the old one stays as history."""
        job = controlled(request, job_id)
        return job_answer(retry_job(job, now=timezone.now(), by=request.user.get_username()), 201)


class EvidenceFilter(filters.FilterSet):
    name = Text(label="Files of this name.")
    kind = Text(label="Files of this kind.")
    attempt = filters.UUIDFilter("attempt_id", label="Of one attempt.")
    accepted = filters.BooleanFilter("attempt__accepted", label="Of attempts that count, or of those that don't.")

    class Meta:
        model = EvidenceFile
        fields: list[str] = []


class EvidenceListView(PeopleView):
    @describe(
        "Evidence files of a job, in the order in which they came",
        tag="Evidence",
        answer=answers.EvidenceAnswer,
        query=[*filters_of(EvidenceFilter), whole("limit", "At most so many.", 1, FILES_MOST, FILES_SHOWN), CURSOR],
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        job = page_queries.job_shown(request.user, job_id)
        if job is None:
            raise Http404
        rows = filtered(request, EvidenceFilter, api_queries.evidence_of_job(job))
        files, more = page(request, rows, ("pk",), shown=FILES_SHOWN, most=FILES_MOST)
        for_team = page_queries.reads_texts(request.user, job.experiment)
        return Response({"evidence": [shapes.evidence(f, for_team=for_team) for f in files], "next": more})


class EvidenceView(OtherThanJson):
    renderer_classes = [Bytes]

    @describe("The bytes of an evidence file", tag="Evidence", media=BYTES)
    def get(self, request: Request, attempt_id: UUID, name: str) -> StreamingHttpResponse:
        """The stored bytes, uncompressed. Prompts and answers are for the team."""
        attempt = page_queries.attempt_shown(request.user, attempt_id)
        file = page_queries.evidence_file(attempt, name) if attempt else None
        if attempt is None or file is None or (file.private and not page_queries.reads_texts(request.user, attempt.trial.job.experiment)):
            raise Http404
        try:
            stream = open_blob(file.blob)
        except OSError:
            raise Http404 from None
        answer = StreamingHttpResponse(_pieces(stream), content_type="application/octet-stream")
        answer["Content-Disposition"] = content_disposition_header(True, file.name) or "attachment"
        answer["Content-Length"] = str(file.blob.bytes)
        answer["X-Content-SHA256"] = file.blob.sha256
        return answer


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    with stream:
        while piece := stream.read(CHUNK):
            yield piece

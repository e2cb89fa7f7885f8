"""The Markdown report of an answered job. Read, call, answer."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from specweb.results import page_queries, report_text

from . import people_shapes as shapes
from .describing import describe
from .people_renderers import Markdown, OtherThanJson


class JobReportView(OtherThanJson):
    renderer_classes = [Markdown]

    @describe("The report of an answered job, for an issue or a pull request", tag="Jobs", media=Markdown.media_type)
    def get(self, request: Request, job_id: UUID) -> Response:
        """As the page offers it; 404 before there is an answer."""
        job = page_queries.job_shown(request.user, job_id)
        if job is None:
            raise Http404
        permalink = shapes.address("experiment", job.experiment_id, job=str(job.pk))
        told = report_text.report_of(
            job.experiment, job, permalink=permalink, reproduce=shapes.address("experiment-new", reproduce=str(job.pk))
        )
        if told is None:
            raise Http404
        return Response(told)

"""Uploaded runs: evidence files by hash, then the run itself, with a person's token."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.urls import reverse
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from speccore.selfrun import RunReply, RunUpload

from specweb.results.models import EvidenceFile
from specweb.results.services.self_runs import sender_of, take_run

from .answers import BlobAnswer
from .blobs import answer_head, receive, refuse_what_is_no_hash
from .describing import TEAM, describe
from .errors import BlobsMissing
from .messages import decoded
from .people_auth import PeopleView, submitting_team


class RunsView(PeopleView):
    @describe(
        "Upload a run that was measured without this service",
        tag="Runs",
        answer=RunReply,
        status=201,
        also={200: "It came before."},
        body=RunUpload,
        refuses=[409, 422, 426],
    )
    def post(self, request: Request) -> Response:
        """Stores a run; 409 ``blobs_missing`` names the files to send first. Sent twice, it answers with the first's experiment."""
        upload = decoded(RunUpload, request)
        team = submitting_team(request.user, upload.team)
        taken = take_run(upload, team, request.user, timezone.now())
        if isinstance(taken, list):
            raise BlobsMissing(f"{len(taken)} evidence files are not here yet", missing=taken, team=team.slug)
        files = EvidenceFile.objects.filter(attempt__trial__job=taken.job)
        reply = RunReply(
            experiment=str(taken.experiment.pk),
            job=str(taken.job.pk),
            url=settings.SPECWEB_BASE_URL + reverse("experiment", args=[taken.experiment.pk]),
            created=taken.created,
            n_attempts=files.values("attempt").distinct().count(),
            n_files=files.count(),
        )
        return Response(reply.model_dump(mode="json"), status=201 if taken.created else 200)


class RunBlobView(PeopleView):
    """Evidence of a run that will follow. ``?team=`` as with the run."""

    counted_as = "uploads"

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        refuse_what_is_no_hash(kwargs["sha256"])
        self.sender = sender_of(request.user, submitting_team(request.user, request.query_params.get("team", "")))

    @describe("Whether an evidence file is there", tag="Runs", query=[TEAM])
    def head(self, request: Request, sha256: str) -> Response:
        return answer_head(sha256, self.sender)

    @describe(
        "Upload an evidence file, or a part of it",
        tag="Runs",
        answer=BlobAnswer,
        status=201,
        also={200: "It was there.", 202: "A part came."},
        body={"application/octet-stream": {"type": "string", "format": "binary"}},
        query=[TEAM],
        refuses=[409, 411, 422, 507],
    )
    def put(self, request: Request, sha256: str) -> Response:
        return receive(request, sha256, self.sender)

"""An experiment as one file, by program. Read, call, answer."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404, StreamingHttpResponse
from django.utils.http import content_disposition_header
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from specweb.experiments.models import Experiment
from specweb.results.archive_writing import archive_of, file_name

from .describing import describe
from .people_renderers import OtherThanJson

ZIP = "application/zip"


class Zip(BaseRenderer):
    """Only names the type: the answer is a stream of its own."""

    media_type, format = ZIP, "zip"
    charset = None


class ExperimentArchiveView(OtherThanJson):
    renderer_classes = [Zip]

    @describe("An experiment with all its evidence as one archive", tag="Exports", media={ZIP: {"type": "string", "format": "binary"}})
    def get(self, request: Request, experiment_id: UUID) -> StreamingHttpResponse:
        """Definition, jobs, inventories, evidence, numbers and a manifest with the SHA-256 of each. Prompts and answers
        are in it for who may read them; else the manifest's `lacking` has their hashes."""
        found = Experiment.objects.visible_to(request.user).select_related("team", "created_by").filter(pk=experiment_id).first()
        if found is None:
            raise Http404
        answer = StreamingHttpResponse(archive_of(found, request.user), content_type=ZIP)
        answer["Content-Disposition"] = content_disposition_header(True, file_name(found)) or "attachment"
        answer["Cache-Control"] = "private, no-store"
        return answer

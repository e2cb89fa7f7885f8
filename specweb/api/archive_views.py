"""An experiment as one file, and back, by program. Read, call, answer."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from django.conf import settings
from django.http import Http404, StreamingHttpResponse
from django.utils import timezone
from django.utils.http import content_disposition_header
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from specweb.experiments.models import Experiment, Visibility
from specweb.results import page_queries
from specweb.results.archive_writing import archive_of, file_name
from specweb.results.import_queries import imported
from specweb.results.services.archives import compute_numbers, has_several_extensions, take_archive
from specweb.results.store import CHUNK, INCOMING

from . import people_query as query
from . import people_shapes as shapes
from .describing import TEAM, Answer, choice, describe
from .errors import BadRequest, LengthRequired, TooLarge
from .people_auth import PeopleView, submitting_team
from .people_renderers import OtherThanJson

ZIP = "application/zip"
_FILE = {ZIP: {"type": "string", "format": "binary"}}


class Zip(BaseRenderer):
    """Only names the type: the answer is a stream of its own."""

    media_type, format = ZIP, "zip"
    charset = None


class TakenAnswer(Answer):
    """`created` false: the same archive came before. `import_url` tells how the numbers computed here compare with the archive's."""

    experiment: UUID
    created: bool
    url: str
    api_url: str
    import_url: str


class ImportDifferenceLine(Answer):
    """What the archive says and what was computed here, of one thing that differs."""

    job: UUID | None
    arm: str
    point: str
    what: str
    there: str
    here: str


class ImportAnswer(Answer):
    """`pending`: the numbers are still being computed from the evidence. `lacking`: files that the archive had the hash of only."""

    experiment: UUID
    server: str
    measured_on: str
    manifest_sha256: str
    imported_by: str | None
    imported_at: datetime
    pending: bool
    same: bool
    n_differences: int
    differences: list[ImportDifferenceLine]
    lacking: list[dict[str, Any]]


def _shown(request: Request, experiment_id: UUID) -> Experiment:
    found = page_queries.experiment_with_its_team(request.user, experiment_id)
    if found is None:
        raise Http404
    return found


class ExperimentArchiveView(OtherThanJson):
    renderer_classes = [Zip]

    @describe("An experiment with all its evidence as one archive", tag="Exports", media=_FILE)
    def get(self, request: Request, experiment_id: UUID) -> StreamingHttpResponse:
        """Definition, jobs, inventories, evidence, numbers and a manifest with the SHA-256 of each. Prompts and answers
        are in it for who may read them; else the manifest's `lacking` has their hashes."""
        found = _shown(request, experiment_id)
        answer = StreamingHttpResponse(archive_of(found, request.user), content_type=ZIP)
        answer["Content-Disposition"] = content_disposition_header(True, file_name(found)) or "attachment"
        answer["Cache-Control"] = "private, no-store"
        return answer


class ArchivesView(PeopleView):
    counted_as = "uploads"

    @describe(
        "Import an archive that another server made",
        tag="Exports",
        answer=TakenAnswer,
        status=201,
        also={200: "It was here."},
        body=_FILE,
        query=[TEAM, choice("visibility", "Who may read it.", Visibility)],
        refuses=[409, 411, 422, 507],
    )
    def post(self, request: Request) -> Response:
        """Every hash is checked before anything is stored, and it is stored whole or not at all, marked as imported. Its
        numbers are computed here from its evidence, and `import_url` tells where they differ from the archive's."""
        team = submitting_team(request.user, query.text(request, "team"))
        visibility = query.one_of(request, "visibility", Visibility) or Visibility.TEAM
        folder = Path(settings.SPECWEB_EVIDENCE_DIR) / INCOMING
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".zip") as file:
            _receive(request, file)
            taken = take_archive(Path(file.name), team, request.user, timezone.now(), visibility)
        if taken.created and has_several_extensions(taken.experiment):
            compute_numbers(taken.experiment, timezone.now())
        pk = taken.experiment.pk
        told = {
            "experiment": str(pk),
            "created": taken.created,
            "url": shapes.address("experiment", pk),
            "api_url": shapes.address("api-experiment", pk),
            "import_url": shapes.address("api-experiment-import", pk),
        }
        return Response(told, status=201 if taken.created else 200)


def _receive(request: Request, file: Any) -> None:
    """Reads the body below the framework's parsers, in pieces; WSGI bounds it by Content-Length."""
    length, most = request.headers.get("Content-Length", ""), settings.SPECWEB_MAX_ARCHIVE_BYTES
    if not length.isdecimal():
        raise LengthRequired
    if int(length) > most:
        raise TooLarge(int(length), most, "Import it where the service runs: python manage.py import_archive FILE.")
    body: BinaryIO = request._request  # type: ignore[assignment]
    left = int(length)
    while left and (piece := body.read(min(CHUNK, left))):
        file.write(piece)
        left -= len(piece)
    if left:
        raise BadRequest(f"the body ended {left:,} bytes too early", "Send the archive again.")
    file.flush()


class ImportOfView(PeopleView):
    @describe("Where an imported experiment came from, and what differs here", tag="Exports", answer=ImportAnswer)
    def get(self, request: Request, experiment_id: UUID) -> Response:
        """404 also for an experiment that was measured here."""
        found = imported(_shown(request, experiment_id))
        if found is None:
            raise Http404
        row = found.row
        by = row.imported_by.get_username() if row.imported_by else None
        own = {name: getattr(row, name) for name in ("server", "measured_on", "manifest_sha256", "imported_at", "lacking")}
        counted = {"pending": found.pending, "same": found.same, "n_differences": found.n_differences}
        lines = [shapes.values(d) | {"job": str(d.job) if d.job else None} for d in found.differences]
        return Response({"experiment": str(experiment_id), "imported_by": by, **own, **counted, "differences": lines})

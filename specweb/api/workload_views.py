"""Workloads by program: the list, and an upload of prompts as JSONL. Read, call, answer."""

from __future__ import annotations

from enum import StrEnum

from rest_framework.request import Request
from rest_framework.response import Response
from speccore.errors import SpecError
from speccore.prompt_file import MAX_BYTES

from specweb.experiments.services.workloads import Uploaded, upload_workload
from specweb.results import workload_queries

from . import answers
from . import people_query as query
from . import people_shapes as shapes
from .describing import TEAM, Query, choice, describe
from .errors import BadRequest, NotThisType, TooLarge
from .people_auth import PeopleView, submitting_team
from .people_body import FILE_FIELD, FORM, FORM_ROOM, AsItCame, MultiPartParser, read_away

TYPES = ("application/jsonl", "application/x-ndjson", "application/x-jsonlines", "application/octet-stream", "text/plain")
REMEDY = "Split the prompts into several workloads."


class Yes(StrEnum):
    YES = "yes"


class Prompts(AsItCame):
    """As it came, within what a file of prompts may have."""

    max_bytes = MAX_BYTES
    remedy = REMEDY


class WorkloadInvalid(SpecError):
    """A file of prompts with faults: the first in ``details.problems``, each with line, field, value and what to do."""

    def __init__(self, found: Uploaded) -> None:
        first = found.problems[0]
        place = f"line {first.line}: " if first.line else ""
        more = f", and {found.n_problems - 1} more in details.problems" if found.n_problems > 1 else ""
        told = [p.model_dump(mode="json") for p in found.problems]
        super().__init__(f"{place}{first.field or 'it'} {first.message}{more}", problems=told, n_problems=found.n_problems)


class WorkloadsView(PeopleView):
    parser_classes = [MultiPartParser, Prompts]

    @describe("Workloads", tag="Workloads", answer=answers.WorkloadsAnswer, query=[TEAM])
    def get(self, request: Request) -> Response:
        """Built-in ones and those of one's teams, or of the one that `?team=` names."""
        found = workload_queries.workloads_listed(request.user, team=query.text(request, "team"))
        return Response({"workloads": [shapes.workload(w, w.n_items) for w in found]})

    @describe(
        "Upload prompts as a workload",
        tag="Workloads",
        answer=answers.WorkloadMade,
        status=201,
        also={200: "The same file was there already."},
        body={
            TYPES[0]: {"type": "string"},
            FORM: {"type": "object", "properties": {FILE_FIELD: {"type": "string", "format": "binary"}}, "required": [FILE_FIELD]},
        },
        query=[
            TEAM,
            Query("name", "A name that is there gets the next version.", required=True),
            Query("title", "What it is called on pages."),
            Query("description", "What it is for."),
            choice("share", "Whether the team may use it at once.", Yes),
        ],
        refuses=[409, 422],
    )
    def post(self, request: Request) -> Response:
        """A new version of `name`, 201; 200 for what is there already under it."""
        team = submitting_team(request.user, query.text(request, "team"))
        named = {key: query.text(request, key) for key in ("name", "title", "description")}
        share = query.one_of(request, "share", Yes)
        done = upload_workload(_file_of(request), team, request.user, **named, share=share is not None)
        if done.workload is None:
            raise WorkloadInvalid(done)
        told = shapes.workload(done.workload, len(done.workload.content["items"])) | {"warnings": done.warnings}
        return Response(told, status=201 if done.created else 200, headers={"Location": told["url"]})


def _file_of(request: Request) -> bytes:
    length = request.headers.get("Content-Length", "")
    if not length.isdecimal() or int(length) == 0:
        raise BadRequest("the request has no body", "Send the prompts as JSONL, with Content-Length.")
    if int(length) > MAX_BYTES + FORM_ROOM:
        read_away(request)
        raise TooLarge(int(length), MAX_BYTES, REMEDY)
    kind = (request.content_type or "").partition(";")[0].strip().lower()
    if kind != FORM:
        if kind not in TYPES:
            remedy = f"Send Content-Type: {TYPES[0]}, or a form with one file."
            raise NotThisType(f"a body of type {kind[:60]!r} is not read", remedy=remedy, taken=[*TYPES, FORM])
        body: bytes = request.data
        return body
    files = [f for name in request.FILES for f in request.FILES.getlist(name)]
    if len(files) != 1 or FILE_FIELD not in request.FILES:
        words = f"the form has {len(files)} files, one named {FILE_FIELD!r} is due"
        raise BadRequest(words, f"curl -F {FILE_FIELD}=@prompts.jsonl does it.", field=FILE_FIELD)
    content: bytes = files[0].read(MAX_BYTES + 1)
    return content

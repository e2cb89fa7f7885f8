"""More of an answer by program: further blocks, and those that are missing. Read, call, answer."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response
from speccore.extending import MOST_BLOCKS

from specweb.experiments.services.more import add_blocks
from specweb.results.services.continuing import run_the_rest

from . import answers
from . import people_query as query
from .describing import Query, describe
from .errors import BadRequest
from .people_auth import PeopleView
from .people_jobs import controlled, job_answer

BLOCKS = Query("blocks", "How many.", {"type": "integer", "minimum": 1, "maximum": MOST_BLOCKS}, required=True)


class MoreView(PeopleView):
    @describe("Add blocks to an answer", tag="Jobs", answer=answers.JobAnswer, status=201, query=[BLOCKS], refuses=[409, 422])
    def post(self, request: Request, job_id: UUID) -> Response:
        """A new job on the same host, with the same build and models. Its blocks are compared together with the earlier ones."""
        job = controlled(request, job_id)
        if not query.text(request, "blocks"):
            raise BadRequest("blocks is missing", f"Say how many with ?blocks=, from 1 to {MOST_BLOCKS}.", parameter="blocks")
        n_blocks = query.whole_number(request, "blocks", 0, 1, MOST_BLOCKS)
        return job_answer(add_blocks(job, n_blocks, by=request.user.get_username()), 201)


class RestView(PeopleView):
    @describe("Run the blocks that an answer lacks", tag="Jobs", answer=answers.JobAnswer, status=201, refuses=[409])
    def post(self, request: Request, job_id: UUID) -> Response:
        """A new job of the blocks that a failed or cancelled one did not bring to their end; what was measured stays."""
        job = controlled(request, job_id)
        return job_answer(run_the_rest(job, by=request.user.get_username()), 201)

"""One workload by program: what it asks, and what its owner or a maintainer does to it. Read, call, answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from speccore.errors import NotAllowed, NotPossible
from speccore.prompt_file import prompt_lines_of

from specweb.accounts.scopes import Scope
from specweb.accounts.services import may_maintain, may_submit
from specweb.experiments.models import Workload
from specweb.experiments.services import workloads as services
from specweb.results import workload_queries

from . import people_shapes as shapes
from .answers import WorkloadLine
from .describing import Answer, describe
from .people_auth import PeopleView
from .people_renderers import OtherThanJson, Text

JSONL = "application/jsonl"
N_USERS = 20


class WorkloadUser(Answer):
    id: str
    name: str
    url: str


class WorkloadAnswer(WorkloadLine):
    """`readable`: whether you may read its prompts, which `file_url` then gives. `experiments`: the newest that ask with it."""

    description: str
    n_warmup: int
    readable: bool
    file_url: str | None
    versions: list[int]
    n_experiments: int
    experiments: list[WorkloadUser]


class WorkloadView(PeopleView):
    @describe("A workload", tag="Workloads", answer=WorkloadAnswer)
    def get(self, request: Request, workload_id: int) -> Response:
        row = _shown(request, workload_id)
        readable = workload_queries.may_read(request.user, row)
        users, n = workload_queries.users_of(request.user, row, N_USERS)
        content = row.parsed
        more = {
            "description": content.description,
            "n_warmup": len(content.warmup),
            "readable": readable,
            "file_url": shapes.address("api-workload-file", row.pk) if readable else None,
            "versions": [w.version for w in workload_queries.versions_of(request.user, row)],
            "n_experiments": n,
            "experiments": [{"id": str(e.pk), "name": e.name, "url": shapes.address("experiment", e.pk)} for e in users],
        }
        return Response(_line(row) | more)

    @describe("Delete a workload", tag="Workloads", status=204, scope=Scope.MANAGE, refuses=[409])
    def delete(self, request: Request, workload_id: int) -> Response:
        """Only one that no experiment asks with; others are archived."""
        row = _changeable(request, workload_id)
        if not services.delete_workload(row):
            raise NotPossible(f"{row} stays: an experiment asks with it", remedy="Archive it instead.")
        return Response(status=204)


class WorkloadFileView(OtherThanJson):
    renderer_classes = [Text]

    @describe("The prompts as the file that makes them", tag="Workloads", media=JSONL)
    def get(self, request: Request, workload_id: int) -> Response:
        row = _shown(request, workload_id)
        if not workload_queries.may_read(request.user, row):
            raise Http404
        return Response("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in prompt_lines_of(row.parsed)))


class ShareView(PeopleView):
    @describe("Share a workload with the team", tag="Workloads", answer=WorkloadLine, scope=Scope.MANAGE, refuses=[409])
    def post(self, request: Request, workload_id: int) -> Response:
        return _changed(request, workload_id, services.share_workload, "it was shared already")


class ArchiveView(PeopleView):
    @describe("Offer a workload no more", tag="Workloads", answer=WorkloadLine, scope=Scope.MANAGE, refuses=[409])
    def post(self, request: Request, workload_id: int) -> Response:
        """Experiments that ask with it keep it."""
        return _changed(request, workload_id, lambda w: services.archive_workload(w, timezone.now()), "it was archived already")


class RestoreView(PeopleView):
    @describe("Offer a workload again", tag="Workloads", answer=WorkloadLine, scope=Scope.MANAGE, refuses=[409])
    def post(self, request: Request, workload_id: int) -> Response:
        return _changed(request, workload_id, services.restore_workload, "it was offered all along")


def _shown(request: Request, workload_id: int) -> Workload:
    row = workload_queries.workload_shown(request.user, workload_id) if workload_id < 2**63 else None
    if row is None:
        raise Http404
    return row


def _changeable(request: Request, workload_id: int) -> Workload:
    """The workload, if the person owns it or maintains its team."""
    row, user = _shown(request, workload_id), request.user
    own = row.owner_id is not None and row.owner_id == user.pk
    if row.team is None or not (may_maintain(user, row.team) or (own and may_submit(user, row.team))):
        raise NotAllowed("only its owner and maintainers of its team change a workload", remedy="Ask one of them.")
    return row


def _changed(request: Request, workload_id: int, change: Callable[[Workload], bool], undone: str) -> Response:
    if not change(_changeable(request, workload_id)):
        raise NotPossible(f"nothing to change: {undone}", remedy="Look at its state.")
    return Response(_line(_shown(request, workload_id)))


def _line(row: Workload) -> dict[str, Any]:
    return shapes.workload(row, len(row.content["items"]))

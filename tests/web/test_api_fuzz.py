"""Requests drawn from the OpenAPI schema, sound ones and odd ones, of a member, a viewer and nobody: no 5xx, nothing undescribed.

A few of each by default; ``make fuzz-api`` draws more (SPECWEB_FUZZ_EXAMPLES) from another seed (SPECWEB_FUZZ_SEED).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core import signals
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from specweb.api.schema import schema
from tests.web.everything import MARKER, POINT, SLUG, Everything, everything
from tests.web.people_api import Program

N_EXAMPLES = int(os.environ.get("SPECWEB_FUZZ_EXAMPLES", "2"))
SEED = int(os.environ.get("SPECWEB_FUZZ_SEED", "1"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance, response_schema_conformance]
DRAWN = settings(
    max_examples=N_EXAMPLES,
    phases=[Phase.generate],
    database=None,
    deadline=None,
    derandomize=False,
    suppress_health_check=list(HealthCheck),
)

pytestmark = pytest.mark.django_db


@schemathesis.serializer("application/zip")
def _as_it_is(context: Any, value: Any) -> bytes:
    """What is drawn for an archive is no zip file, and the service says so."""
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


@pytest.fixture
def it(db: Any) -> Iterator[Everything]:
    """The service answers in this very transaction, so it must not end its connection between requests."""
    signals.request_started.disconnect(close_old_connections)
    signals.request_finished.disconnect(close_old_connections)
    yield everything()
    signals.request_started.connect(close_old_connections)
    signals.request_finished.connect(close_old_connections)


def operations() -> Iterator[Any]:
    drawn = schemathesis.openapi.from_dict(schema())
    drawn.app = get_wsgi_application()
    for found in drawn.get_all_operations():
        yield found.ok()


def known(it: Everything, operation: Any) -> dict[str, Any]:
    """Names and ids of what is there, for the variables of the path."""
    route = operation.path.lstrip("/").replace("{", "<x:").replace("}", ">")
    filled = it.address(route).split("/")
    return {part.strip("{}"): value for part, value in zip(operation.path.split("/"), filled, strict=True) if part.startswith("{")}


def ask(operation: Any, case: Any, headers: dict[str, str]) -> None:
    """What a request changes is undone, so that each finds the world as it was."""
    with transaction.atomic():
        answer = case.call(headers=headers)
        transaction.set_rollback(True)
    case.validate_response(answer, checks=CHECKS)


def drawn(operation: Any, way: dict[str, Any], headers: dict[str, str]) -> int:
    """Asks a few requests and returns how many that were."""
    n_asked = 0

    @seed(SEED)
    @DRAWN
    @given(case=operation.as_strategy(**way))
    def run(case: Any) -> None:
        nonlocal n_asked
        n_asked += 1
        ask(operation, case, headers)

    run()
    return n_asked


def ways(it: Everything, operation: Any, person: str) -> Iterator[dict[str, Any]]:
    """Sound requests to what is there; of a member also to what is not, and odd ones."""
    yield {"generation_mode": GenerationMode.POSITIVE, "path_parameters": known(it, operation) or None}
    if person == "maintainer":
        if known(it, operation):
            yield {"generation_mode": GenerationMode.POSITIVE}
        if operation.query or operation.body:
            yield {"generation_mode": GenerationMode.NEGATIVE, "path_parameters": known(it, operation) or None}


@pytest.mark.parametrize("person", ["maintainer", "viewer", "anonymous"])
def test_every_operation_answers_as_described(it: Everything, person: str) -> None:
    headers = {"Authorization": f"Bearer {it.tokens[person]}"} if person in it.tokens else {}
    wrong, asked = [], 0
    for operation in operations():
        for way in ways(it, operation, person):
            try:
                asked += drawn(operation, way, headers)
            except Unsatisfiable:
                continue  # nothing odd can be drawn for it
            except Exception as error:  # all of them are told at once
                wrong.append(f"{operation.method.upper()} {operation.path}: {type(error).__name__}: {_words(error)}")
    assert not wrong, "\n\n".join(wrong)
    assert asked >= len(list(operations()))


def _words(error: BaseException) -> str:
    each = getattr(error, "exceptions", [error])
    return "; ".join(f"{e} {getattr(e, 'message', '')}"[:600] for e in each)


def test_sound_requests_of_a_member_are_answered(it: Everything) -> None:
    """What a reader would send first: the addresses filled in with what is there."""
    needed = {"arm": f"{MARKER}-3", "point": POINT, "team": SLUG}
    not_there = {"/api/v1/experiments/{experiment_id}/import"}  # what was measured here has no import
    program, wrong = Program(token=it.tokens["maintainer"]), []
    for operation in operations():
        if operation.method == "get":
            path = operation.path
            for name, value in known(it, operation).items():
                path = path.replace(f"{{{name}}}", str(value))
            asked = [p.name for p in operation.query if p.is_required]
            answer = program.get(path + ("?" + "&".join(f"{n}={needed[n]}" for n in asked) if asked else ""))
            if answer.status_code != (404 if operation.path in not_there else 200):
                wrong.append((path, answer.status_code))
    assert wrong == []

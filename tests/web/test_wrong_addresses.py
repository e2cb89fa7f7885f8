"""Addresses that are not there, and forms with too much in them: JSON for programs, a page in words for people, no traceback."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.web.people_api import Program
from tests.worlds import World


def client(world: World) -> Client:
    found = Client(raise_request_exception=False)
    found.force_login(world.owner)
    return found


@pytest.mark.parametrize("method", ["get", "post", "put", "delete"])
@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/api", ""),
        ("/api/", ""),
        ("/api/v2/experiments/", ""),
        ("/api/v1/nothing", ""),
        ("/agent/", ""),
        ("/api/v1/experiments", "/api/v1/experiments/"),
        ("/api/v1/hosts", "/api/v1/hosts/"),
        ("/api/v1/me/", "/api/v1/me"),
    ],
)
def test_what_is_not_there_is_json_with_the_address_that_was_meant(world: World, method: str, path: str, meant: str) -> None:
    answer: Any = getattr(client(world), method)(path, headers={"Accept": "text/html"})
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert (error["code"], error["remedy"]) == ("not_found", f"The address is {meant}" if meant else "")


def test_a_page_whose_name_begins_alike_is_a_page(world: World) -> None:
    answer = client(world).get("/apiary")
    assert (answer.status_code, answer["Content-Type"]) == (404, "text/html; charset=utf-8")


def files(n: int) -> dict[str, Any]:
    return {f"file{i}": SimpleUploadedFile(f"{i}.yaml", b"name: x") for i in range(n)}


TOO_MUCH = [(files(120), "more files than the service reads"), ({f"f{i}": "x" for i in range(5000)}, "more fields than the service reads")]


@pytest.mark.parametrize(("body", "words"), TOO_MUCH)
def test_a_form_with_too_much_is_answered_in_words_and_is_no_error(
    world: World, body: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        answer = client(world).post("/experiments/new", body)
    page = answer.content.decode()
    assert (answer.status_code, words in page, "<h1>" in page) == (400, True, True)
    assert any("refused, too large" in record.message for record in caplog.records)
    assert [r for r in caplog.records if r.levelno >= logging.WARNING or r.exc_info] == []


def test_a_programs_form_too(world: World) -> None:
    program = Program(world.owner)
    answer: Any = program.client.post("/api/v1/experiments/", files(120), headers=program.headers(None))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["message"]) == (400, "bad_request", "the form has too many files")
    assert "a form with one file" in error["remedy"]

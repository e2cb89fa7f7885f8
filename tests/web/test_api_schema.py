"""The OpenAPI schema: it is one, it tells of every address, and what it says of scopes is what is asked for."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from django.test import Client
from django.urls import get_resolver
from drf_spectacular.validation import validate_schema

from specweb.accounts.scopes import Scope
from specweb.api.describing import Answer
from specweb.api.people_auth import PeopleView
from specweb.api.schema import schema
from tests.web.api_answers import METHODS, faults, operations
from tests.web.everything import routes
from tests.web.people_api import error


def views() -> dict[str, type]:
    """Path under the people's API → its class, of those that need a token."""
    found = {}
    for pattern in get_resolver("specweb.api.people_urls").url_patterns:
        cls = getattr(pattern.callback, "cls", None)
        if cls is not None and issubclass(cls, PeopleView):
            found[str(pattern.pattern)] = cls
    return found


def test_it_is_an_openapi_schema() -> None:
    validate_schema(schema())
    assert schema()["openapi"].startswith("3.1")


def test_every_address_of_people_describes_each_of_its_methods() -> None:
    untold = [
        f"{method} {path}"
        for path, view in views().items()
        for method in METHODS
        if (handler := getattr(view, method, None)) is not None and not hasattr(handler, "scope")
    ]
    assert untold == []
    assert len(views()) > 15


def test_every_operation_has_a_name_of_its_own_a_tag_and_a_summary() -> None:
    ids = Counter(it["operationId"] for it in operations().values())
    assert [name for name, n in ids.items() if n > 1] == []
    assert all(it["summary"] and it["tags"] and it["x-scope"] in Scope.values for it in operations().values())


def test_what_changes_something_needs_more_than_reading() -> None:
    harmless = {"preview_post", "check_post"}
    for (method, _), it in operations().items():
        if method not in ("get", "head") and it["operationId"] not in harmless:
            assert it["x-scope"] != Scope.READ, it["operationId"]


def test_no_two_answers_share_a_name() -> None:
    """The schema holds them by name: of two the one would stand for the other."""

    def below(cls: type) -> list[type]:
        return [c for child in cls.__subclasses__() for c in (child, *below(child))]

    names = Counter(c.__name__ for c in set(below(Answer)))
    assert [name for name, n in names.items() if n > 1] == []


def test_each_parameter_of_an_address_is_described() -> None:
    for (_, path), it in operations().items():
        in_path = {p["name"] for p in it.get("parameters", []) if p["in"] == "path"}
        assert in_path == {part.strip("{}") for part in path.split("/") if part.startswith("{")}, path
        assert all(p.get("description") or p["in"] == "path" for p in it.get("parameters", [])), path


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "application/vnd.oai.openapi"),
        ("application/vnd.oai.openapi+json", "application/vnd.oai.openapi+json"),
        ("application/json", "application/json"),
    ],
)
def test_it_is_open_to_everybody_in_two_forms(db: Any, accept: str, kind: str) -> None:
    answer = Client().get("/api/v1/schema", headers={"Accept": accept})
    assert (answer.status_code, answer["Content-Type"].partition(";")[0]) == (200, kind)
    read = answer.json() if kind.endswith("json") else yaml.safe_load(answer.content)
    assert set(read["paths"]) == set(schema()["paths"])


@pytest.mark.parametrize("accept", ["image/png", ";;;"])
def test_a_form_that_it_has_not_is_refused_in_the_one_shape(db: Any, accept: str) -> None:
    assert error(Client().get("/api/v1/schema", headers={"Accept": accept}), 406)["code"] == "not_acceptable"


def test_its_page_tells_of_every_operation(db: Any) -> None:
    answer = Client().get("/api/v1/docs/")
    text = answer.content.decode()
    assert all(f'id="{it["operationId"]}"' in text and path in text for (_, path), it in operations().items())
    assert all(f'id="model-{name}"' in text for name in schema()["components"]["schemas"])
    assert "scope <code>read</code>" in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert "style=" not in text
    assert "<script>" not in text


def test_the_comparison_with_the_schema_finds_what_differs() -> None:
    def answer(status: int, body: str, kind: str = "application/json") -> Any:
        return SimpleNamespace(status_code=status, headers={"Content-Type": kind}, content=body)

    me = "/api/v1/me"
    assert faults("get", me, answer(200, '{"user": "ada", "teams": []}')) == []
    assert "teams" in faults("get", me, answer(200, '{"user": "ada"}'))[0]
    assert "more" in faults("get", me, answer(200, '{"user": "ada", "teams": [], "more": 1}'))[0]
    assert "418" in faults("get", me, answer(418, "{}"))[0]
    assert "text/html" in faults("get", me, answer(200, "<p>", "text/html"))[0]


def test_every_described_path_is_an_address() -> None:
    known = {route.replace("<", "{").replace(">", "}") for route in routes()}
    shapes = {"/" + "/".join(p if not p.startswith("{") else "{}" for p in k.split("/")) for k in known}
    assert {"/".join(p if not p.startswith("{") else "{}" for p in path.split("/")) for path in schema()["paths"]} <= shapes


def test_a_described_method_takes_what_its_address_names() -> None:
    for path, view in views().items():
        for method in METHODS:
            handler = getattr(view, method, None)
            if handler is not None:
                names = list(inspect.signature(handler).parameters)[2:]
                assert all(f":{n}>" in path for n in names), (path, method)

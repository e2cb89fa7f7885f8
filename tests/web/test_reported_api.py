"""What other tools report, by program: import with a mapping, list, one, removal; faults with line, field, value and remedy."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from speccore.importers.csv_table import table_of
from speccore.importers.mapping import proposed

from specweb.accounts.models import User
from specweb.accounts.services import create_token
from specweb.reported.models import Report
from tests.imports.recorded import content
from tests.web import sample

pytestmark = pytest.mark.django_db
ADDRESS = "/api/v1/reported/"


@pytest.fixture
def people() -> sample.People:
    return sample.people()


def program(user: User) -> Client:
    return Client(headers={"Authorization": f"Bearer {create_token(user, f'of {user}')[1]}"})


def post(client: Client, data: bytes, query: str = "", kind: str = "application/json") -> Any:
    return client.post(f"{ADDRESS}?name=x{query}", data, content_type=kind)


def test_a_file_is_imported_once_read_and_removed(people: sample.People) -> None:
    client = program(people.owner)
    data = content("guidellm-0.8-llama-server.json")
    made = post(client, data)
    assert made.status_code == 201
    assert made.json()["mark"] == "reported, not verified"
    assert post(client, data).status_code == 200
    (line,) = client.get(ADDRESS).json()["reports"]
    assert line["id"] == made.json()["id"]
    whole = client.get(ADDRESS + line["id"]).json()
    ttft = next(n for n in whole["runs"][0]["numbers"] if n["name"] == "TTFT" and n["statistic"] == "mean")
    assert (round(ttft["value"], 1), ttft["nearest_metric"]) == (77.3, "ttft_any_s")
    assert ttft["definition"]
    file = client.get(ADDRESS + line["id"] + "/file")
    assert file.content == data
    assert file["X-Content-SHA256"] == hashlib.sha256(data).hexdigest()
    assert program(people.mate).delete(ADDRESS + line["id"]).status_code == 403
    assert program(people.stranger).delete(ADDRESS + line["id"]).status_code == 404
    assert client.delete(ADDRESS + line["id"]).status_code == 204
    assert client.get(ADDRESS + line["id"]).status_code == 404


def test_a_fault_is_told_with_its_place(people: sample.People) -> None:
    broken = content("servebench-1.1-llama-server.json").replace(b'"schema_version": 1', b'"schema_version": 3')
    answer = post(program(people.owner), broken)
    error = answer.json()["error"]
    assert answer.status_code == 422
    (problem,) = error["details"]["problems"]
    assert (problem["line"], problem["field"], problem["value"]) == (2, "schema_version", "3")
    assert problem["message"]
    assert problem["remedy"]
    assert not Report.objects.exists()


def mapping() -> dict[str, Any]:
    table = table_of(content("community.csv"))
    return proposed(table.headers, table.samples).as_json()


def form(**more: str) -> dict[str, Any]:
    return {"file": SimpleUploadedFile("community.csv", content("community.csv"))} | more


def test_a_table_comes_with_its_mapping_which_can_be_kept(people: sample.People) -> None:
    client = program(people.owner)
    where = f"{ADDRESS}?source_url=https://example.org/t&public_table=yes"
    made = client.post(where + "&keep_as=community", form(mapping=json.dumps(mapping())))
    assert made.status_code == 201, made.json()
    whole = client.get(ADDRESS + made.json()["id"]).json()
    acceptance = whole["runs"][0]["numbers"][-1]
    assert (acceptance["value"], acceptance["low"], acceptance["high"], acceptance["written"]) == (None, 0.56, 0.94, "0.56-0.94")
    assert whole["runs"][1]["devices"] == ["RTX 3090", "Tesla P40"]
    (kept,) = client.get(ADDRESS + "templates").json()["templates"]
    assert kept["mapping"] == mapping()
    again = client.post(where + "&template=community", content("community.csv"), content_type="text/csv")
    assert (again.status_code, again.json()["id"]) == (200, made.json()["id"])


@pytest.mark.parametrize(
    ("said", "field"),
    [("{", "mapping"), ("[]", "mapping"), ('{"columns": {"nothing": {"as": "number"}}}', "mapping.columns.nothing"), ("{\"columns\": " + "[" * 9000, "mapping")],
)  # fmt: skip
def test_a_wrong_mapping_is_refused(people: sample.People, said: str, field: str) -> None:
    answer = program(people.owner).post(ADDRESS, form(mapping=said))
    assert answer.status_code == 422
    assert answer.json()["error"]["details"]["problems"][0]["field"] == field


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("&tool=nothing", 422),
        ("&visibility=all", 422),
        ("&public_table=yes", 422),
        ("&source_url=javascript:1", 422),
        ("&template=nothing", 400),
        ("&keep_as=x", 400),
        ("&colour=red", 400),
        ("&public_table=maybe", 400),
    ],
)
def test_what_is_said_beside_a_file_is_checked(people: sample.People, query: str, status: int) -> None:
    answer = post(program(people.owner), content("vllm-0.32-off.json"), query)
    assert answer.status_code == status, answer.json()
    assert answer.json()["error"]["remedy"]
    assert query == "&keep_as=x" or not Report.objects.exists()


def test_a_table_without_a_mapping_says_so(people: sample.People) -> None:
    answer = post(program(people.owner), content("community.csv"), kind="text/csv")
    assert answer.status_code == 422
    assert "mapping" in answer.json()["error"]["message"]


def test_the_list_is_filtered(people: sample.People) -> None:
    client = program(people.owner)
    for name in ("vllm-0.32-off.json", "llama-bench-b11434.json"):
        assert post(client, content(name)).status_code == 201
    for query, n in (
        ("", 2),
        ("?tool=vllm", 1),
        ("?hardware=epyc", 1),
        ("?hardware=epyc&model=target", 0),
        ("?team=theirs", 0),
        ("?limit=1", 1),
    ):
        assert len(client.get(ADDRESS + query).json()["reports"]) == n, query
    assert client.get(ADDRESS + "?tool=nothing").status_code == 400

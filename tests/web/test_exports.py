"""Tables as files: each form read back by what people read it with, equal to the page; who gets which rows; nothing a spreadsheet would run."""

from __future__ import annotations

import builtins
import csv
import io
import json
import tracemalloc
from typing import Any

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from django.utils import timezone

from specweb.accounts.audit_models import AuditEntry
from specweb.experiments.models import Experiment, Visibility
from specweb.exports.answering import file_name
from specweb.exports.files import FORMS
from specweb.exports.tables import TABLES
from specweb.results.models import Comparison, Listing, Probe
from tests.web import sample
from tests.web.everything import MARKER, everything
from tests.web.people_api import Program, error

pytestmark = pytest.mark.django_db
SMALL: dict[str, Any] = {
    "arms": [{"name": "off", "mode": "off"}, {"name": "draft-3", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 3}],
    "points": [{"workload": "count", "max_tokens": 64}],
    "blocks": 3,
}


def content(answer: Any) -> bytes:
    assert answer.status_code == 200, answer.content[:500]
    return b"".join(answer.streaming_content)


def rows_of(program: Program, table: str, query: str = "") -> list[dict[str, Any]]:
    return list(json.loads(content(program.get(f"exports/{table}?format=json{query}"))))


@pytest.fixture
def them(db: Any) -> sample.People:
    return sample.people()


@pytest.fixture
def run(them: sample.People) -> sample.Run:
    return sample.finished(them.team, them.owner, sample.spec(**SMALL))


def test_every_table_has_the_same_rows_in_every_form() -> None:
    it = everything()
    program = Program(token=it.tokens["maintainer"])
    for table, described in TABLES.items():
        path = f"exports/{table}?format="
        array = json.loads(content(program.get(f"{path}json")))
        assert array, f"of {table} there is something to compare"
        lines = [json.loads(line) for line in content(program.get(f"{path}jsonl")).splitlines()]
        read = list(csv.DictReader(io.StringIO(content(program.get(f"{path}csv")).decode(), newline="")))
        frame = pq.read_table(io.BytesIO(content(program.get(f"{path}parquet")))).to_pylist()
        names = [c.name for c in described.columns]
        assert len(names) == len(set(names))
        assert list(array[0]) == list(read[0]) == list(frame[0]) == names
        if table != "hosts":  # when a host was last seen goes on
            assert lines == array
        assert len(read) == len(array) == len(frame)
        for plain, cells, typed in zip(array, read, frame, strict=True):
            for c in described.columns:
                if plain[c.name] is None:
                    assert (cells[c.name], typed[c.name]) == ("", None), c.name
                elif c.kind in ("number", "integer"):
                    assert float(cells[c.name]) == typed[c.name] == plain[c.name], c.name
                elif c.kind == "id":
                    assert cells[c.name] == typed[c.name] == plain[c.name], c.name


def test_pandas_and_duckdb_read_what_the_page_shows(run: sample.Run, them: sample.People, tmp_path: Any, client: Any) -> None:
    program = Program(them.owner)
    kept = tmp_path / "comparisons.csv", tmp_path / "comparisons.parquet"
    for path, form in zip(kept, ("csv", "parquet"), strict=True):
        path.write_bytes(content(program.get(f"exports/comparisons?format={form}&job={run.job.pk}")))
    asked = "SELECT arm, speedup, low, high, verdict, n_blocks, measured_at FROM"
    found = [duckdb.sql(f"{asked} '{path}'").fetchall() for path in kept]
    frames = [pd.read_csv(kept[0]), pd.read_parquet(kept[1])]
    c = Comparison.objects.current().get(job=run.job, arm__name="draft-3")
    for rows in found:
        assert [row[:6] for row in rows] == [("draft-3", c.speedup, c.ci_low, c.ci_high, c.verdict, c.n_blocks)]
    for frame in frames:
        assert frame["speedup"].tolist() == [c.speedup]
        assert frame["memory_bill_bytes"].tolist() == [c.numbers["memory_bill_bytes"]["value"]]
    client.force_login(them.owner)
    page = client.get("/compare/").content.decode()
    assert f"{found[0][0][1]:.2f}" in page
    assert str(c.verdict) in page


def test_a_number_that_is_withheld_is_empty_and_says_why(run: sample.Run, them: sample.People) -> None:
    program = Program(them.owner)
    for row in rows_of(program, "numbers", f"&job={run.job.pk}"):
        assert (row["value"] is None) == bool(row["withheld"]) or row["metric"] in ("speedup", "total_time"), row
        if row["metric"] not in ("speedup", "total_time", "task_decode_ratio"):
            assert (row["source_file"] is None) == (row["value"] is None), row["metric"]
    baseline = rows_of(program, "probes", f"&job={run.job.pk}&arm=off&warmup=false")
    assert baseline
    assert all(row["drafted"] is None and row["drafted_withheld"] for row in baseline)
    assert all(row["decode_tokens_per_s"] > 0 and row["decode_tokens_per_s_withheld"] is None for row in baseline)


def test_a_probe_is_what_its_measurement_says(run: sample.Run, them: sample.People) -> None:
    rows = rows_of(Program(them.owner), "probes", f"&attempt={run.attempts[0].pk}")
    probes = run.attempts[0].measurement.parsed.probes
    assert [(r["probe"], r["source_line"], r["e2e_s"]) for r in rows] == [(p.probe, p.line, p.e2e_s.value) for p in probes]


def test_numbers_are_those_of_the_numbers_address(run: sample.Run, them: sample.People) -> None:
    program = Program(them.owner)
    asked = f"arm=draft-3&point={run.experiment.parsed_spec.points[0].key}"
    shown = program.get(f"jobs/{run.job.pk}/numbers?{asked}").json()["numbers"]
    rows = {(r["metric"], r["side"]): r for r in rows_of(program, "numbers", f"&job={run.job.pk}&{asked}")}
    for n in shown:
        row = rows[n["metric"], n["side"]]
        assert (row["value"], row["withheld"], row["unit"]) == (n["value"], n["withheld"], n["unit"])
        if n["source"]:
            assert (row["source_file"], row["source_line"]) == (n["source"]["file"], n["source"]["line"])


def test_the_rows_of_compare_are_marked(run: sample.Run, them: sample.People) -> None:
    again = sample.finished(them.team, them.owner, sample.spec(**SMALL | {"name": "again"}))
    program = Program(them.owner)
    rows = rows_of(program, "comparisons", "&mode=draft")
    page = program.get("compare/?mode=draft").json()["rows"]
    assert len(rows) == 2
    assert [r["comparison"] for r in rows if r["first_of_row"]] == [r["comparison"] for r in page]
    assert {r["n_runs_of_row"] for r in rows} == {2}
    assert {r["job"] for r in rows} == {str(run.job.pk), str(again.job.pk)}
    assert rows_of(program, "comparisons", "&mode=eagle") == []
    assert rows_of(program, "comparisons", "&target=demo-target&concurrency=1") == rows


def test_a_stranger_gets_nothing_of_a_team_and_a_public_experiment_without_its_texts(run: sample.Run, them: sample.People) -> None:
    stranger, mate = Program(them.stranger), Program(them.mate)
    tables = ("comparisons", "experiments", "attempts", "probes", "numbers", "evidence")
    assert [len(rows_of(stranger, t)) for t in tables] == [0] * len(tables)
    assert all(rows_of(mate, t) for t in tables)
    Experiment.objects.update(visibility=Visibility.PUBLIC)
    assert all(rows_of(stranger, t) for t in tables)
    assert all((r["url"] is None) == r["private"] for r in rows_of(stranger, "evidence"))
    assert all(r["url"] for r in rows_of(mate, "evidence"))
    Experiment.objects.update(visibility=Visibility.PRIVATE)
    assert [len(rows_of(mate, t)) for t in tables] == [0] * len(tables)


def test_a_name_can_not_become_a_formula(them: sample.People) -> None:
    bad = '=HYPERLINK("http://evil";"x")'
    sample.host_with_inventory(them.team)
    experiment = sample.submitted(them.team, them.owner, sample.spec(**SMALL | {"name": bad, "question": "-1+1"}))
    program = Program(them.owner)
    (row,) = csv.DictReader(io.StringIO(content(program.get("exports/experiments?format=csv")).decode(), newline=""))
    assert (row["name"], row["question"], row["id"]) == (f"'{bad}", "'-1+1", str(experiment.pk))
    assert rows_of(program, "experiments")[0]["name"] == bad


def test_a_negative_number_stays_a_number(run: sample.Run, them: sample.People) -> None:
    Listing.objects.update(figures={"memory_bill_bytes": {"value": -1048576.0}, "speedup": {}})
    text = content(Program(them.owner).get("exports/comparisons?format=csv")).decode()
    assert pd.read_csv(io.StringIO(text))["memory_bill_bytes"].tolist() == [-1048576.0]


def test_the_form_is_asked_for_by_name_or_by_accept(them: sample.People) -> None:
    program = Program(them.owner)
    for name, form in FORMS.items():
        assert program.get(f"exports/hosts?format={name}")["Content-Type"].partition(";")[0] == form.media
        assert program.get("exports/hosts", {"Accept": form.media})["Content-Type"].partition(";")[0] == form.media
    assert "xlsx" in error(program.get("exports/hosts?format=xlsx"), 400)["message"]
    assert error(program.get("exports/hosts?teem=x"), 400)["details"]["parameter"] == "teem"
    assert error(program.get("exports/probes?job=x"), 400)["details"]["parameter"] == "job"


def test_without_its_library_parquet_is_refused_by_the_name_of_the_extra(them: sample.People, monkeypatch: Any) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    program = Program(them.owner)
    refused = error(program.get("exports/hosts?format=parquet"), 501)
    assert "specweb[parquet]" in refused["remedy"]
    assert program.get("exports/hosts?format=csv").status_code == 200


def test_file_names_say_what_they_are() -> None:
    assert file_name("comparisons", {"mode": "draft", "team": "lab"}, "csv") == "specweb-comparisons-mode-draft-team-lab.csv"
    assert file_name("probes", {"job": "0198f3c2-7d1e-7000-8000-3f2a91c4b5d6"}, "parquet") == "specweb-probes-job-0198f3c2.parquet"
    assert file_name("hosts", {"team": "../../\r\nx"}, "json") == "specweb-hosts-team-..-..-x.json"


def test_many_rows_take_little_memory(run: sample.Run, them: sample.People) -> None:
    """Forty thousand rows in each form: what is held is a part of what is sent."""
    first = run.attempts[0].measurement.probes.first()
    fields = {f.attname: getattr(first, f.attname) for f in Probe._meta.concrete_fields if f.name not in ("id", "i")}
    Probe.objects.bulk_create([Probe(**fields, i=1_000 + i) for i in range(40_000)], batch_size=5_000)
    program = Program(them.owner)
    for form in ("csv", "jsonl", "parquet"):
        answer = program.get(f"exports/probes?format={form}&attempt={run.attempts[0].pk}")
        tracemalloc.start()
        n_bytes = sum(map(len, answer.streaming_content))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 40_000_000, (form, peak)
        assert n_bytes > (100_000 if form == "parquet" else 10_000_000)


def test_the_audit_log_is_narrowed_as_on_its_page(them: sample.People) -> None:
    sample.host_with_inventory(them.team)
    sample.submitted(them.team, them.owner, sample.spec(**SMALL))
    today = timezone.now().date().isoformat()
    program = Program(them.owner)
    assert rows_of(program, "audit", f"&action=experiment&since={today}")
    assert rows_of(program, "audit", "&until=2001-01-01") == []
    assert error(program.get("exports/audit?since=yesterday"), 400)["details"]["parameter"] == "since"
    assert len(rows_of(program, "audit")) == AuditEntry.objects.visible_to(them.owner).count()
    assert MARKER not in str(rows_of(Program(them.stranger), "audit"))


def test_names_of_people_are_for_their_teams(client: Any, them: sample.People, run: sample.Run) -> None:
    Experiment.objects.update(visibility=Visibility.PUBLIC)
    assert [row["created_by"] for row in rows_of(Program(them.mate), "experiments", "&by=owner")] == ["owner"]
    stranger = Program(them.stranger)
    assert [row["created_by"] for row in rows_of(stranger, "experiments")] == [None]
    assert rows_of(stranger, "experiments", "&by=owner") == []
    (told,) = json.loads(content(client.get("/exports/experiments?format=json")))
    assert (told["id"], told["created_by"]) == (str(run.experiment.pk), None)
    assert json.loads(content(client.get("/exports/experiments?format=json&by=owner"))) == []

"""A whole experiment as one file and back: the same numbers on an empty server, nothing of a broken file, nothing told to who may not know."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import override_settings
from django.utils import timezone
from speccore.workload import Workload as WorkloadContent

from specweb.accounts.models import User
from specweb.experiments.models import Experiment, Host, Origin, Visibility, Workload
from specweb.results import archive_format as form
from specweb.results.archive_writing import archive_of
from specweb.results.import_queries import imported
from specweb.results.models import ArchiveImport, Attempt, Blob, Comparison, EvidenceFile, Listing, MeasurementSet
from specweb.results.services.archives import compute_numbers, take_archive
from tests.web import sample
from tests.web.people_api import Program, error

pytestmark = pytest.mark.django_db
SMALL: dict[str, Any] = {
    "arms": [{"name": "off", "mode": "off"}, {"name": "draft-3", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 3}],
    "points": [{"workload": "count", "max_tokens": 64}],
    "blocks": 3,
}


def archived(experiment: Experiment, user: User) -> bytes:
    return b"".join(archive_of(Experiment.objects.get(pk=experiment.pk), user))


def another_server() -> sample.People:
    """Empties all tables but those of migrations, and makes people anew: none of the first server's rows is left."""
    tables = [t for t in connection.introspection.table_names() if not t.startswith(("django_", "auth_perm"))]
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"TRUNCATE {', '.join(tables)} CASCADE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
    assert not Experiment.objects.exists()
    return sample.people()


def parts(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def rebuilt(files: dict[str, bytes], *, seal: bool = True) -> bytes:
    """An archive of these files, by default with a manifest that names them as they are."""
    manifest = json.loads(files.get(form.MANIFEST, b"{}"))
    manifest.pop("sha256", None)
    if seal:
        named = sorted((n, c) for n, c in files.items() if n != form.MANIFEST)
        manifest["files"] = [{"path": n, "bytes": len(c), "sha256": hashlib.sha256(c).hexdigest()} for n, c in named]
        files = files | {form.MANIFEST: form.document(form.sealed(manifest))}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return out.getvalue()


def shown(job: Any) -> list[tuple[Any, ...]]:
    rows = Comparison.objects.current().filter(job=job).order_by("point__position", "arm__position")
    return [(c.arm.name, c.point.key, c.speedup, c.ci_low, c.ci_high, c.verdict, c.reason, c.recommended, c.numbers) for c in rows]


def texts(page: Any) -> list[str]:
    """The words of a page's tables."""
    found = re.findall(r"<table.*?</table>", page.content.decode(), re.DOTALL)
    return [re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", table)).strip() for table in found]


@pytest.fixture
def made(tmp_path: Path) -> tuple[sample.Run, sample.People, bytes]:
    them = sample.people()
    run = sample.finished(them.team, them.owner, sample.spec(**SMALL), fails=lambda t: t.block == 3 and t.arm == "draft-3")
    return run, them, archived(run.experiment, them.owner)


def stored() -> tuple[int, ...]:
    return (*(m.objects.count() for m in (Experiment, Attempt, EvidenceFile, Blob, ArchiveImport, Workload)), Host.every.count())


def on_disk(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_an_empty_server_shows_the_same_numbers_and_verdicts(made: Any, tmp_path: Path, client: Any) -> None:
    run, them, data = made
    assert archived(run.experiment, them.owner) == data, "the same experiment gives the same bytes"
    arm, point = "draft-3", run.experiment.parsed_spec.points[0].key
    numbers, page = f"/jobs/{run.job.pk}/numbers?arm={arm}&point={point}", f"/experiments/{run.experiment.pk}/"
    client.force_login(them.owner)
    before, before_numbers = shown(run.job), texts(client.get(numbers))
    compared = next(t for t in texts(client.get(page)) if arm in t)
    hashes = set(EvidenceFile.objects.values_list("attempt_id", "name", "blob_id", "private"))
    pk, job = run.experiment.pk, run.job.pk

    with override_settings(SPECWEB_EVIDENCE_DIR=tmp_path / "second"):
        there = another_server()
        program = Program(there.owner)
        answer = program.post("archives/?team=ours", data, "application/zip")
        assert (answer.status_code, answer.json()["created"]) == (201, True), answer.content
        found = Experiment.objects.get(pk=pk)
        assert (found.origin, found.spec_hash, found.created_at) == (Origin.IMPORTED, run.experiment.spec_hash, run.experiment.created_at)
        assert program.get(answer.json()["import_url"]).json()["pending"] is True
        compute_numbers(found, timezone.now())
        assert shown(job) == before
        assert set(EvidenceFile.objects.values_list("attempt_id", "name", "blob_id", "private")) == hashes
        client.force_login(there.owner)
        assert texts(client.get(numbers)) == before_numbers
        answered = client.get(page)
        assert compared in texts(answered)
        assert "imported" in answered.content.decode()
        assert "127.0.0.1:8000" in answered.content.decode()
        told = program.get(f"experiments/{pk}/import").json()
        assert (told["same"], told["differences"], told["server"]) == (True, [], "http://127.0.0.1:8000")
        assert all(Listing.objects.values_list("imported", flat=True))
        assert "@127.0.0.1" in Host.every.get().name
        again = program.post("archives/?team=ours", data, "application/zip")
        assert (again.status_code, again.json()["created"], Experiment.objects.count()) == (200, False, 1)
        stranger = Program(there.stranger)
        assert error(stranger.post("archives/", data, "application/zip"), 403)["code"] == "not_allowed"
        assert stranger.get(f"experiments/{pk}/import").status_code == 404
        assert error(Program(there.mate).post("archives/?team=ours", data, "application/zip"), 403)["code"] == "not_allowed"
        assert error(program.post(f"jobs/{job}/more?blocks=2"), 409)["code"] == "not_possible"


def test_the_commands_go_there_and_back_and_tell_what_differs(made: Any, tmp_path: Path, capsys: Any) -> None:
    run, _, data = made
    path = tmp_path / "it.zip"
    call_command("export_archive", str(run.experiment.pk), "--out", str(path))
    assert path.read_bytes() == data
    files = parts(data)
    name = f"analyses/{run.job.pk}.json"
    told = json.loads(files[name])
    told["numbers"]["comparisons"][0]["verdict"]["word"] = "shorten"
    path.write_bytes(rebuilt(files | {name: form.document(told)}))
    with override_settings(SPECWEB_EVIDENCE_DIR=tmp_path / "second"):
        another_server()
        call_command("import_archive", str(path), "--team", "ours", "--by", "owner")
        assert "verdict: shorten there" in capsys.readouterr().out
        found = imported(Experiment.objects.get())
        assert found is not None
        assert [d.what for d in found.differences] == ["verdict"]
        with pytest.raises(CommandError, match="no team"):
            call_command("import_archive", str(path), "--team", "nobodys")
        with pytest.raises(CommandError, match="can't be read"):
            call_command("import_archive", str(tmp_path / "none.zip"), "--team", "ours")


def _bomb(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        with file.open("jobs.json", "w", force_zip64=True) as entry:
            for _ in range(65):
                entry.write(b" " * 1024**2)
        for name, content in files.items():
            if name != "jobs.json":
                file.writestr(name, content)
    return out.getvalue()


def _with(files: dict[str, bytes], name: str, content: bytes = b"{}") -> bytes:
    return rebuilt(files | {name: content})


def _link(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO(rebuilt(files))
    with zipfile.ZipFile(out, "a") as file:
        info = zipfile.ZipInfo(f"inventories/{'0' * 64}.json")
        info.create_system, info.external_attr = 3, 0o120777 << 16
        file.writestr(info, "/etc/passwd")
    return out.getvalue()


def _twice(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO(rebuilt(files))
    with zipfile.ZipFile(out, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr(form.JOBS, "[]")
    return out.getvalue()


def _many(files: dict[str, bytes]) -> bytes:
    """A directory that says it has a million entries."""
    data = bytearray(rebuilt(files))
    data[-12:-8] = b"\xff" * 4  # 65,535 entries on this disk and in all
    data[-10:-6] = (1 << 30).to_bytes(4, "little")
    return bytes(data)


def _other(files: dict[str, bytes], name: str, change: Callable[[Any], Any]) -> bytes:
    raw = json.loads(files[name])
    return rebuilt(files | {name: form.document(change(raw) or raw)})


def _evidence(files: dict[str, bytes]) -> str:
    return next(n for n in files if n.startswith("evidence/"))


def _attempt(files: dict[str, bytes], **changes: Any) -> bytes:
    first, *rest = files[form.ATTEMPTS].splitlines()
    return rebuilt(files | {form.ATTEMPTS: b"\n".join([form.document(json.loads(first) | changes), *rest])})


BROKEN: dict[str, tuple[Callable[[dict[str, bytes]], bytes], str]] = {
    "hardly anything": (lambda f: b"P", "no zip file"),
    "no zip": (lambda f: b"PK" + b"x" * 500, "no zip file"),
    "cut": (lambda f: rebuilt(f)[:-3000], "no zip file"),
    "no manifest": (lambda f: rebuilt({n: c for n, c in f.items() if n != form.MANIFEST}, seal=False), "has no manifest"),
    "out of the folder": (lambda f: _with(f, "evidence/../../../etc/cron.d/x"), "no name"),
    "absolute": (lambda f: _with(f, "/etc/passwd"), "no name"),
    "link": (_link, "no plain file"),
    "a file twice": (_twice, "there twice"),
    "a million entries": (_many, "at most 100,000"),
    "huge document": (_bomb, "at most 67,108,864"),
    "deep document": (lambda f: _with(f, form.JOBS, b"[" * 200_000), "no JSON"),
    "not a number": (lambda f: _with(f, form.JOBS, b"[NaN]"), "no JSON"),
    "no list": (lambda f: _with(f, form.JOBS, b"{}"), "no list"),
    "manifest changed": (
        lambda f: rebuilt(f | {form.MANIFEST: f[form.MANIFEST].replace(b"127.0.0.1", b"127.0.0.2")}, seal=False),
        "its own SHA-256",
    ),
    "document changed": (
        lambda f: rebuilt(f | {form.JOBS: f[form.JOBS].replace(b"processed", b"cancelled")}, seal=False),
        "manifest.json says|SHA-256",
    ),
    "evidence changed": (lambda f: _with(f, _evidence(f), b"x" * 100), "does not hold"),
    "evidence missing": (lambda f: rebuilt({n: c for n, c in f.items() if n != _evidence(f)}), "is missing"),
    "evidence of nobody": (lambda f: _with(f, f"evidence/{'0' * 64}.zst", b"x"), "of none of its attempts"),
    "another version": (lambda f: _other(f, form.MANIFEST, lambda m: m | {"version": 9}), "version 9"),
    "another experiment": (lambda f: _other(f, form.EXPERIMENT, lambda e: e | {"id": "0" * 8 + e["id"][8:]}), "another experiment"),
    "no trial": (lambda f: _attempt(f, trial="none"), "at no trial"),
    "evil name": (lambda f: _attempt(f, evidence=[{"name": "../x", "kind": "log", "sha256": "0" * 64, "bytes": 1}]), "evidence.0.name"),
    "accepted and failed": (lambda f: _attempt(f, outcome="failed", accepted=True), "did not end well"),
    "workload changed": (
        lambda f: _other(f, form.WORKLOADS, lambda w: {n: x | {"content_hash": "0" * 64} for n, x in w.items()}),
        "another hash",
    ),
    "no plan that is one": (lambda f: _other(f, form.JOBS, lambda jobs: [jobs[0] | {"plan": {"x": 1}}]), "plan of job|at no trial"),
    "too late a date": (lambda f: _attempt(f, started_at="0001-01-01T00:00:00+23:00"), "can't be stored|can't be read"),
}


def test_of_a_broken_or_malicious_archive_nothing_is_left(made: Any, tmp_path: Path) -> None:
    _, _, data = made
    files = parts(data)
    second = tmp_path / "second"
    with override_settings(SPECWEB_EVIDENCE_DIR=second):
        there = another_server()
        program = Program(there.owner)
        before = stored()
        for name, (broken, words) in BROKEN.items():
            refused = error(program.post("archives/?team=ours", broken(files), "application/zip"), 422)
            assert refused["code"] == "archive_invalid", name
            assert re.search(words, f"{refused['message']} {refused['details']}"), (name, refused["message"])
            assert refused["remedy"], name
            assert (stored(), on_disk(second)) == (before, set()), name
        with override_settings(SPECWEB_MAX_ARCHIVE_BYTES=1000):
            assert error(program.post("archives/?team=ours", data, "application/zip"), 413)["code"] == "message_too_large"
        assert take_archive(_kept(tmp_path, data), there.team, there.owner, timezone.now()).created


def _kept(folder: Path, data: bytes) -> Path:
    path = folder / "kept.zip"
    path.write_bytes(data)
    return path


def test_who_may_not_read_the_texts_gets_an_archive_without_them(made: Any, tmp_path: Path) -> None:
    run, them, data = made
    kept = run.job.inventory
    kept.content |= {"problems": ["no model at /home/ada/secret.gguf"], "labels": {"rack": "7"}}
    kept.save(update_fields=["content"])
    Experiment.objects.update(visibility=Visibility.PUBLIC)
    program = Program(them.stranger)
    answer = program.get(f"experiments/{run.experiment.pk}/archive")
    got = b"".join(answer.streaming_content)
    assert answer["Content-Disposition"] == f'attachment; filename="specweb-experiment-{run.experiment.pk}.zip"'
    files, whole = parts(got), parts(data)
    private, open_to_all = (set(EvidenceFile.objects.filter(private=p).values_list("blob_id", flat=True)) for p in (True, False))
    assert private
    assert {n for n in whole if n.startswith("evidence/")} - {n for n in files if n.startswith("evidence/")} == {
        f"evidence/{h}.zst" for h in private - open_to_all
    }
    manifest = json.loads(files[form.MANIFEST])
    assert {x["sha256"] for x in manifest["lacking"]} == private
    assert b"alert(1)" not in b"".join(c for n, c in files.items() if not n.startswith("evidence/"))
    assert json.loads(files[form.EXPERIMENT])["created_by"] == ""
    (inventory,) = (json.loads(c) for n, c in files.items() if n.startswith("inventories/"))
    assert (inventory["problems"], inventory["broken_runtimes"], inventory["labels"]) == ([], [], {})
    assert program.get(f"experiments/{run.experiment.pk}/archive").status_code == 200
    Experiment.objects.update(visibility=Visibility.TEAM)
    assert error(program.get(f"experiments/{run.experiment.pk}/archive"), 404)
    with override_settings(SPECWEB_EVIDENCE_DIR=tmp_path / "second"):
        there = another_server()
        for w in json.loads(whole[form.WORKLOADS]).values():
            content = WorkloadContent.model_validate(w["content"])
            fields = {"title": content.title, "content_hash": content.content_hash(), "content": w["content"]}
            Workload.objects.create(team=None, name=content.name, version=content.version, **fields)
        taken = take_archive(_kept(tmp_path, got), there.team, there.owner, timezone.now())
        compute_numbers(taken.experiment, timezone.now())
        found = imported(taken.experiment)
        assert found is not None
        assert found.lacking == len([x for x in manifest["lacking"] if x["sha256"] not in open_to_all])
        assert all(
            d.what in ("agreement", "own_agreement", "quality", "checks") or d.what.startswith(("what was read", "check: "))
            for d in found.differences
        )
        assert MeasurementSet.objects.exists()


def test_prompts_of_a_private_workload_are_only_their_hash(made: Any) -> None:
    run, them, _ = made
    Workload.objects.filter(name="count").update(team=them.team, owner=them.mate, private=True)
    files = parts(archived(run.experiment, them.stranger))
    (told,) = json.loads(files[form.WORKLOADS]).values()
    assert (told["content"], bool(told["withheld"]), len(told["content_hash"])) == (None, True, 64)

"""The pages about engine builds: what each host can start, what is odd, broken or gone, and that a build's results stay with it."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from speccore.engines import engine
from speccore.inventory import BrokenRuntime, Capabilities, HostInventory, RuntimeInfo

from specweb.dashboard import formats
from specweb.experiments.models import Host, HostRuntime, Runtime
from specweb.experiments.services.hosts import revoke_host, store_inventory
from tests.web import sample
from tests.web.pages import SMALL, as_user, now

pytestmark = pytest.mark.django_db

LOGS = sample.LOGS
NEW, BOXED, ATTACHED = "d" * 64, "e" * 64, "f" * 64
IMAGE = f"ghcr.io/someone/engine@sha256:{'1' * 64}"


@pytest.fixture
def people() -> sample.People:
    return sample.people()


def page(user: Any, path: str) -> str:
    answer = as_user(user).get(path)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", html.unescape(answer.content.decode()))


def build_section(user: Any, path: str) -> str:
    return page(user, path).partition("<main")[2]


def told(host: Host) -> HostInventory:
    assert host.inventory is not None
    return host.inventory.parsed


def changed(host: Host, **changes: Any) -> None:
    store_inventory(host, told(host).model_copy(update=changes), now())


def older(**changes: Any) -> RuntimeInfo:
    can: Capabilities = engine("llama-server").capabilities((LOGS / "handmade-draft-flag.help.txt").read_text())
    data = {"engine": "llama-server", "version": "4000", "backend": "cuda", "manifest_hash": NEW, "executable": "/opt/old/llama-server"}
    return RuntimeInfo(**(data | changes), capabilities=can)


def test_what_each_host_can_start_with_its_modes_and_what_it_lacks(people: sample.People) -> None:
    host = sample.host_with_inventory(people.team)
    odd = older(oddities=["crashes (SIGSEGV) at --version"], version="")
    boxed = older(kind="container", image=IMAGE, manifest_hash=BOXED, executable="/app/llama-server")
    attached = older(kind="attached", servers={"off": "http://127.0.0.1:8080"}, manifest_hash=ATTACHED, executable="")
    changed(host, runtimes=[*told(host).runtimes, odd, boxed, attached])
    for path in (reverse("runtimes"), reverse("host", args=[host.pk])):
        text = page(people.mate, path)
        for words in (
            "0.1.0-dev (build 1, commit 7e4c0a9)",
            "/opt/llama-server",
            "ngram-mod",
            "says no version",
            "crashes (SIGSEGV) at --version",
            "mtp <small>needs --spec-type draft-mtp",
            IMAGE,
            "/app/llama-server",
            "off: <code>http://127.0.0.1:8080",
            "not checked: the hashes of its program and model files",
            "no job yet",
        ):
            assert words in text, (path, words)
    assert "llama-server 4000 · cuda · container" in page(people.mate, reverse("hosts"))


def test_builds_that_can_t_be_used_come_with_why_and_remedy(people: sample.People) -> None:
    host = sample.host_with_inventory(people.team)
    broken = BrokenRuntime(engine="vllm", path="/opt/x", why="/opt/x crashes (SIGILL) at --help", remedy="Take a build for this processor.")
    changed(host, broken_runtimes=[broken], problems=["model 'big': gone"])
    for path in (reverse("runtimes"), reverse("host", args=[host.pk])):
        text = page(people.owner, path)
        assert text.count("/opt/x crashes (SIGILL) at --help") == 1
        assert "Take a build for this processor." in text
    assert "2 things in its configuration can’t be used" in page(people.owner, reverse("hosts"))
    assert "1 that can’t be used" in page(people.owner, reverse("runtimes"))


def test_a_build_that_changes_is_another_one_and_what_was_measured_stays_with_the_old(people: sample.People) -> None:
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL)), host)
    sample.play(run, n_trials=2)
    old = told(host).runtimes[0]
    changed(host, runtimes=[old.model_copy(update={"manifest_hash": NEW})])
    text = page(people.owner, reverse("runtimes"))
    now_there, _, gone = text.partition("1 that is gone")
    assert NEW in now_there
    assert old.manifest_hash not in now_there
    assert old.manifest_hash in gone
    assert "1 job</a>, whose results stay with it" in gone
    text = page(people.owner, reverse("runtime", args=[old.manifest_hash]))
    assert "no host of yours has it any more" in text
    assert f'href="{reverse("experiment", args=[run.experiment.pk])}?job={run.job.pk}"' in text
    assert "None yet" in page(people.owner, reverse("runtime", args=[NEW]))
    assert formats.short_hash(old.manifest_hash) in page(people.owner, reverse("experiment", args=[run.experiment.pk]))
    changed(host, runtimes=[old])  # put back: it is the old one again
    assert old.manifest_hash in page(people.owner, reverse("runtimes")).partition("that is gone")[0]


def test_when_a_build_was_first_and_last_seen(people: sample.People) -> None:
    host = sample.host_with_inventory(people.team)
    (pair,) = HostRuntime.objects.all()
    first = pair.first_seen_at
    assert first is not None
    assert pair.last_seen_at == first
    later, latest = first + timedelta(days=1), first + timedelta(days=2)
    store_inventory(host, told(host).model_copy(update={"boot_id": "another"}), later)
    pair.refresh_from_db()
    assert (pair.first_seen_at, pair.last_seen_at) == (first, later)
    store_inventory(host, told(host).model_copy(update={"runtimes": []}), latest)
    store_inventory(host, told(host).model_copy(update={"boot_id": "third"}), latest + timedelta(days=1))
    pair.refresh_from_db()
    assert (pair.first_seen_at, pair.last_seen_at) == (first, latest)


def test_moments_of_what_was_told_before_are_filled_in(people: sample.People) -> None:
    host = sample.host_with_inventory(people.team)
    first = HostRuntime.objects.get().first_seen_at
    assert first is not None
    later = first + timedelta(hours=3)
    store_inventory(host, told(host).model_copy(update={"boot_id": "another"}), later)
    HostRuntime.objects.update(first_seen_at=None, last_seen_at=None)
    migration = import_module("specweb.experiments.migrations.0006_when_builds_were_seen")
    with connection.cursor() as cursor:
        cursor.execute(migration.SEEN)
    pair = HostRuntime.objects.get()
    assert (pair.first_seen_at, pair.last_seen_at) == (first, later)
    assert apps.get_model("experiments", "Runtime").hosts.through is HostRuntime


def test_the_whole_of_what_a_host_tells_is_kept(people: sample.People) -> None:
    host = sample.host_with_inventory(people.team)
    boxed = older(kind="container", image=IMAGE, oddities=["odd"])
    broken = BrokenRuntime(engine="llama-server", path="/x", why="gone")
    changed(host, runtimes=[boxed], broken_runtimes=[broken], cpu_flags=["avx2"])
    kept = told(Host.objects.get(pk=host.pk))
    assert (kept.runtimes, kept.broken_runtimes, kept.cpu_flags) == ([boxed], [broken], ["avx2"])
    row = Runtime.objects.get(manifest_hash=NEW)
    assert (row.engine, row.version, row.backend, list(row.hosts.all())) == ("llama-server", "4000", "cuda", [host])


def test_a_build_is_for_the_teams_whose_hosts_have_it(people: sample.People) -> None:
    host = sample.host_with_inventory(people.team)
    path = reverse("runtime", args=["a" * 64])
    assert "xeon" in page(people.mate, path)
    assert as_user(people.stranger).get(path).status_code == 404
    assert Client().get(path).status_code == 302
    assert as_user(people.owner).get(reverse("runtime", args=["\x00nothing"])).status_code == 404
    theirs = sample.host_with_inventory(people.other, "their-box")
    text = page(people.stranger, path)
    assert "their-box" in text
    assert "xeon" not in text
    assert "xeon" not in page(people.stranger, reverse("runtimes"))
    revoke_host(theirs, now=now(), by="x")
    assert "their-box" not in page(people.stranger, reverse("runtimes"))
    assert host.name in page(people.owner, reverse("runtimes"))


def test_without_hosts_and_before_one_has_told_the_next_step_is_said(people: sample.People) -> None:
    assert 'href="/hosts/enrol"' in build_section(people.owner, reverse("runtimes"))
    assert "A maintainer of your team can add one" in build_section(people.mate, reverse("runtimes"))
    host = sample.host_with_inventory(people.team)
    changed(host, runtimes=[])
    assert "Name a llama-server or a vLLM in the agent’s configuration" in build_section(people.owner, reverse("runtimes"))
    Host.objects.update(inventory=None)
    assert "specweb-agent poll" in build_section(people.owner, reverse("runtimes"))


def test_statements_do_not_grow_with_hosts_builds_or_jobs(people: sample.People) -> None:
    sample.host_with_inventory(people.team)
    counts = []
    for i in range(2):
        row = []
        for path in (reverse("runtimes"), reverse("runtime", args=["a" * 64])):
            client = as_user(people.owner)
            with CaptureQueriesContext(connection) as queries:
                assert client.get(path).status_code == 200
            row.append(len(queries))
        counts.append(row)
        for n in range(3):
            host = sample.host_with_inventory(people.team, f"more-{i}-{n}")
            sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL, placement={"hosts": [host.name]})), host)
            changed(host, runtimes=[*told(host).runtimes, older(manifest_hash=f"{n}" * 64)])
    assert counts[0] == counts[1]
    assert max(counts[0]) <= 10, counts


def test_html_from_a_build_is_escaped(people: sample.People, tmp_path: Path) -> None:
    host = sample.host_with_inventory(people.team)
    nasty = older(
        version=sample.NASTY, oddities=[sample.NASTY], image=sample.NASTY, executable=sample.NASTY, servers={sample.NASTY: sample.NASTY}
    )
    broken = BrokenRuntime(engine=sample.NASTY, path=sample.NASTY, why=sample.NASTY, remedy=sample.NASTY)
    changed(host, runtimes=[nasty, older(manifest_hash=BOXED, kind="attached", manifest={sample.NASTY: "0"})], broken_runtimes=[broken])
    for path in (reverse("runtimes"), reverse("host", args=[host.pk]), reverse("runtime", args=[NEW]), reverse("runtime", args=[BOXED])):
        text = as_user(people.owner).get(path).content.decode()
        assert "<script>alert" not in text, path
        assert "<b>bold" not in text, path
        assert not re.search(r"<[^>]+\s(?:style|on\w+)=", text), path


def test_names_that_mean_harm_are_shown_and_do_nothing(people: sample.People) -> None:
    bad = f"{sample.NASTY}\u202e" + "x" * 200
    host = sample.host_with_inventory(people.team)
    can = Capabilities(dialect=bad, flags={}, spec_types=[bad])
    odd = older(version=bad, backend=bad, source_commit=bad, executable=bad, oddities=[bad], kind="container", image=bad)
    attached = older(kind="attached", servers={bad: "javascript:alert(1)"}, manifest_hash=ATTACHED, executable="")
    of_later = RuntimeInfo(engine="of-2031", version=bad, manifest_hash=BOXED, executable=bad, capabilities=can)
    changed(
        host,
        runtimes=[odd, attached, of_later],
        broken_runtimes=[BrokenRuntime(engine=bad, kind=bad, path=bad, why=bad, remedy=bad)],
        problems=[bad],
        sensors={bad: bad},
        labels={bad: bad},
        cpu_model=bad,
    )
    builds = [reverse("runtime", args=[h]) for h in (NEW, ATTACHED, BOXED)]
    for path in (reverse("runtimes"), reverse("hosts"), reverse("host", args=[host.pk]), reverse("experiment-new"), *builds):
        answer = as_user(people.owner).get(path)
        assert answer.status_code == 200, path
        text = answer.content.decode()
        assert "<script>alert" not in text
        assert 'href="javascript:' not in text

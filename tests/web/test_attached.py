"""Servers that stand already: asked for by a spec that says so, and marked as not restarted wherever a verdict is shown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.urls import reverse
from speccore.attached import SERVED
from speccore.inventory import Capabilities, ModelInfo, RuntimeInfo
from speccore.workloads import builtin

from specweb.dashboard.form_preview import preview_shown
from specweb.experiments.models import Host, Job
from specweb.experiments.services import placement
from specweb.experiments.services.checking import check
from specweb.experiments.services.hosts import store_inventory
from specweb.experiments.services.preview import preview
from specweb.experiments.services.submission import seed_workload
from tests.core import made
from tests.web import sample
from tests.web.measured import job_of, scatter
from tests.web.people_api import Program

pytestmark = pytest.mark.django_db
DRAFT = {"name": "draft-4", "mode": "draft", "draft_model": "whatever-it-has", "draft_limit": 4}
SPEC: dict[str, Any] = {"target": {"model": "demo-target"}, "blocks": 3, "engine": {"context": 2048}}
ATTACHED = made.spec_of(DRAFT, **SPEC, runtime={"attached": True})
SERVERS = {"off": "http://127.0.0.1:8080", "draft-4": "http://127.0.0.1:8081"}


@pytest.fixture
def who(db: Any) -> sample.People:
    return sample.people()


@pytest.fixture
def host(who: sample.People) -> Host:
    """One that has an ordinary build, and servers that stand."""
    host = sample.host_with_inventory(who.team)
    standing = RuntimeInfo(
        engine="llama-server",
        version="b1-abc",
        manifest_hash="5e" * 32,
        manifest=dict.fromkeys(SERVERS, "1" * 64),
        executable="",
        capabilities=Capabilities(dialect="attached", flags={}),
        kind="attached",
        servers=SERVERS,
    )
    assert host.inventory
    offered = host.inventory.parsed
    store_inventory(host, offered.model_copy(update={"runtimes": [*offered.runtimes, standing]}), datetime.now(UTC))
    host.refresh_from_db()
    return host


@pytest.fixture
def job(who: sample.People, host: Host) -> Job:
    return job_of(
        who,
        host,
        ATTACHED,
        {"off": 1.0, "draft-4": 2.0},
        scatter(1, 0.002),
        change=lambda a: a.model_copy(update={"not_restarted": True}),
    )


def test_a_host_takes_each_for_its_own_kind_of_question(host: Host) -> None:
    assert host.inventory
    offered = host.inventory.parsed
    standing = placement.fit(ATTACHED, offered)
    assert isinstance(standing, placement.Fit)
    assert standing.runtime_hash == "5e" * 32
    assert standing.commands == {arm: ["attached", "{server}"] for arm in SERVERS}  # its address is the host's own, as paths are
    assert placement.real_commands(ATTACHED, offered, standing) == {arm: ["attached", url] for arm, url in SERVERS.items()}
    assert standing.draft_hashes == {}  # what it has loaded nobody can check
    ordinary = placement.fit(made.spec_of(DRAFT | {"draft_model": "demo-draft"}, **SPEC), offered)
    assert isinstance(ordinary, placement.Fit)
    assert ordinary.runtime_hash != standing.runtime_hash


def test_an_arm_without_a_server_is_refused_in_the_preview(host: Host) -> None:
    assert host.inventory
    nofit = placement.fit(made.spec_of(DRAFT | {"name": "draft-9"}, **SPEC, runtime={"attached": True}), host.inventory.parsed)
    assert isinstance(nofit, placement.NoFit)
    assert "no server of this attached runtime stands for it; servers are there for off, draft-4" in nofit.reason


def test_the_preview_shows_addresses_to_the_team(who: sample.People, host: Host) -> None:
    for workload in builtin().values():
        seed_workload(workload)
    found = preview(ATTACHED, who.team, now=datetime.now(UTC))
    (shown,) = found.hosts
    assert [(c.arm, [p.text for p in c.parts]) for c in shown.commands] == [(arm, ["attached", url]) for arm, url in SERVERS.items()]


def test_a_host_that_names_no_servers_says_so(who: sample.People) -> None:
    host = sample.host_with_inventory(who.team)
    assert host.inventory
    nofit = placement.fit(ATTACHED, host.inventory.parsed)
    assert isinstance(nofit, placement.NoFit)
    assert nofit.reason == "has no attached llama-server: its configuration names no such servers that stand already"


def test_the_preview_speaks_of_no_start_where_nothing_is_started(who: sample.People, host: Host) -> None:
    for workload in builtin().values():
        seed_workload(workload)
    for spec, told in ((ATTACHED, "6 trials, nothing is started"), (made.spec_of(DRAFT, **SPEC), "6 starts of the server")):
        shown = preview_shown(preview(spec, who.team, now=datetime.now(UTC)), lambda problems: [])
        assert f"<b>{told}</b>" in render_to_string("dashboard/_form_preview.html", {"preview": shown})


def test_a_model_that_only_a_server_tells_of_is_asked_there_and_nowhere_else(host: Host) -> None:
    assert host.inventory
    offered = host.inventory.parsed
    served = ModelInfo(alias="theirs", manifest_hash="7" * 64, path="/srv/theirs.gguf", format=SERVED, size_bytes=0)
    offered = offered.model_copy(update={"models": [*offered.models, served]})
    asked = SPEC | {"target": {"model": "theirs"}}
    assert isinstance(placement.fit(made.spec_of(DRAFT, **asked, runtime={"attached": True}), offered), placement.Fit)
    ngram = {"name": "n", "mode": "ngram-simple"}
    nofit = placement.fit(made.spec_of(ngram, **asked), offered)
    assert isinstance(nofit, placement.NoFit)
    assert "theirs is known by the word of a server" in nofit.reason


def test_what_needs_a_start_is_told_beside_its_field(who: sample.People, host: Host) -> None:
    data = ATTACHED.model_dump(mode="json") | {"fit": True}
    data["arms"].append({"name": "mod", "mode": "ngram-mod"})
    found = {p.field: p.message for p in check(data, who.team).problems}
    assert "remembers earlier requests" in found["arms.2.mode"]
    assert "never started" in found["fit"]


def test_every_page_with_a_verdict_says_not_restarted(job: Job, who: sample.People, client: Client) -> None:
    client.force_login(who.owner)
    numbers = f"{reverse('numbers', args=[job.pk])}?arm=draft-4&point={ATTACHED.points[0].key}"
    for url in (reverse("overview"), f"{reverse('experiment', args=[job.experiment_id])}?job={job.pk}", numbers):
        page = client.get(url).content.decode()
        assert "not restarted" in page, url
    page = client.get(reverse("experiment", args=[job.experiment_id])).content.decode()
    assert "not restarted: its servers stood throughout" in page  # the answer
    assert page.count("<small>not restarted</small>") == 1  # its row
    assert "a server start of its own" not in page
    assert "Nobody can check the hashes of its program and model files" in page
    assert "Take it home" not in page
    assert "the servers were started by somebody else" in page  # why memory, commands and taking home are missing
    assert 'id="memory-bill"' not in page


def test_what_nobody_set_is_not_called_the_hosts_default(job: Job, who: sample.People, client: Client) -> None:
    client.force_login(who.mate)
    page = client.get(reverse("experiment", args=[job.experiment_id])).content.decode()
    assert "as the servers were started" in page
    assert "default</dd>" not in page


def test_the_interface_for_programs_says_it_too(job: Job, who: sample.People) -> None:
    told = Program(who.owner).get(f"experiments/{job.experiment_id}").json()
    assert [c["not_restarted"] for c in told["comparisons"]] == [True]
    assert all("not restarted" in c["verdict"]["sentence"] for c in told["comparisons"])


def test_an_ordinary_run_bears_no_such_mark(who: sample.People, host: Host, client: Client) -> None:
    job_of(who, host, made.spec_of(DRAFT | {"draft_model": "demo-draft"}, **SPEC), {"off": 1.0, "draft-4": 2.0}, scatter(1, 0.002))
    client.force_login(who.owner)
    assert "not restarted" not in client.get(reverse("overview")).content.decode()

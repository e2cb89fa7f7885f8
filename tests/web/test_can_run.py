"""The pages of hosts, models and builds: what can run where and why not, offline hosts as well, and what is done about oddities."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from specweb.experiments.models import Host
from specweb.experiments.services.hosts import store_inventory
from tests.web import sample
from tests.web.pages import SMALL, as_user, now

pytestmark = pytest.mark.django_db
AMX = "libggml-cpu.so.0 is built for amx_int8, which this processor doesn't have: it may crash (SIGILL)"


@pytest.fixture
def people(settings, tmp_path: Path) -> sample.People:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path
    return sample.people()


def text(user: Any, name: str, *args: object) -> str:
    answer = as_user(user).get(reverse(name, args=args))
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<svg.*?</svg>", "", answer.content.decode(), flags=re.DOTALL)))


def section(page: str) -> str:
    return page.partition('aria-labelledby="can-run"')[2].partition("</section>")[0]


def changed(host: Host, **changes: Any) -> None:
    assert host.inventory
    store_inventory(host, host.inventory.parsed.model_copy(update=changes), now())
    host.refresh_from_db()


def test_a_model_s_page_says_what_runs_it_where_and_where_it_is_lacking(people):
    host = sample.host_with_inventory(people.team)
    bare = sample.host_with_inventory(people.team, "bare")
    changed(bare, models=[])
    shown = section(text(people.mate, "model", "b" * 64))
    assert reverse("host", args=[host.pk]) in shown
    assert "ngram-mod" in shown.partition("What can’t run")[0]
    assert "draft <small>with demo-draft" in shown
    assert "eagle3 <small>no model there can draft for it: demo-draft is no eagle3 head" in shown
    assert "not there, so nothing runs: bare." in shown


def test_an_offline_host_stands_with_what_it_told_last_and_a_revoked_one_is_gone(people):
    host = sample.host_with_inventory(people.team)
    Host.objects.update(last_seen_at=now() - timedelta(days=3))
    shown = section(text(people.owner, "model", "b" * 64))
    assert "offline since" in shown
    assert "what it told last" in shown
    assert "ngram-mod" in shown
    Host.objects.filter(pk=host.pk).update(revoked_at=now())
    assert "Nothing now: no host of yours has it." in section(text(people.owner, "model", "b" * 64))


def test_hardware_tells_which_of_its_hosts_are_offline_and_since_when(people):
    sample.host_with_inventory(people.team)
    away = sample.host_with_inventory(people.team, "away")
    Host.objects.filter(pk=away.pk).update(last_seen_at=now() - timedelta(days=3))
    shown = text(people.owner, "hardware")
    assert re.search(r">away</a> <small class=\"s-warning\">lost since <time", shown)
    assert not re.search(r">xeon</a> <small class=\"s-warning\">", shown)


def test_a_host_s_page_says_what_runs_on_it(people):
    host = sample.host_with_inventory(people.team)
    shown = section(text(people.mate, "host", host.pk))
    assert shown.index("demo-target") < shown.index("no smaller model there that could draft for it")
    assert reverse("model", args=["b" * 64]) in shown
    assert host.inventory
    many = [host.inventory.parsed.models[0].model_copy(update={"alias": f"m{i}", "manifest_hash": f"{i:064x}"}) for i in range(11)]
    changed(host, models=many)
    assert "and 3 smaller models, each with the same on its own page" in section(text(people.mate, "host", host.pk))
    changed(host, runtimes=[])
    assert "it has no engine build" in section(text(people.mate, "host", host.pk))


def test_another_team_s_hosts_are_not_in_it(people):
    sample.host_with_inventory(people.team)
    sample.host_with_inventory(people.other, "theirs-box")
    assert "theirs-box" not in text(people.owner, "model", "b" * 64)


def test_the_pages_ask_few_times_however_many_hosts(people):
    def asked(*name: object) -> int:
        client = as_user(people.owner)
        with CaptureQueriesContext(connection) as seen:
            assert client.get(reverse(str(name[0]), args=name[1:])).status_code == 200
        return len(seen)

    host = sample.host_with_inventory(people.team)
    before = asked("model", "b" * 64), asked("host", host.pk), asked("host-enrol")
    for i in range(4):
        sample.host_with_inventory(people.team, f"more-{i}")
    assert (asked("model", "b" * 64), asked("host", host.pk), asked("host-enrol")) == before
    assert max(before) <= 12


def test_an_oddity_has_a_remedy_and_a_feared_crash_goes_once_jobs_ran_there(people):
    host = sample.host_with_inventory(people.team)
    assert host.inventory
    odd = [r.model_copy(update={"oddities": [AMX, "prints nothing at --version"]}) for r in host.inventory.parsed.runtimes]
    changed(host, runtimes=odd)
    for name, args in (("runtimes", ()), ("host", (host.pk,))):
        shown = text(people.owner, name, *args)
        assert f'<span class="s-warning">{AMX}</span> <small>Take a build for this processor' in shown
    sample.finished(people.team, people.owner, sample.spec(**SMALL))
    for name, args in (("runtimes", ()), ("host", (host.pk,))):
        shown = text(people.owner, name, *args)
        assert f'<span class="s-warning">{AMX}' not in shown
        assert f"{AMX} — 1 job ran to an answer here all the same" in shown
        assert '<span class="s-warning">prints nothing at --version</span>' in shown

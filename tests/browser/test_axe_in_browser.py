"""Every page fits, complains of nothing and is free of serious findings of axe-core; a keyboard reaches all of it with the focus in sight."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode
from uuid import UUID

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.urls import reverse
from playwright.sync_api import Page
from speccore.importers.csv_table import table_of
from speccore.importers.mapping import proposed

from specweb.accounts.invitations import invite
from specweb.experiments.models import Host, Job
from specweb.experiments.services.submission import seed_workload
from specweb.reported.models import Report
from specweb.reported.services import About, import_file, keep_draft
from specweb.results.models import Listing
from specweb.results.services.publishing import publish, withdraw
from tests.browser.visitors import CHROMIUM, Visitor, draw_all, open_all, visitor
from tests.imports.recorded import content
from tests.web import sample
from tests.web.watched import watched_pages
from tests.worlds import workload

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]


def serious(page: Page) -> list[str]:
    """Rule and place of each finding that shuts somebody out."""
    found = Axe().run(page).response["violations"]
    return [f"{v['id']}: {n['target']} {n['failureSummary']}" for v in found if v["impact"] in ("serious", "critical") for n in v["nodes"]]


def too_wide(someone: Visitor) -> list[str]:
    return [f"{pixels} pixels wider than the window"] if (pixels := someone.sideways()) > 0 else []


@pytest.fixture
def both(people) -> tuple[sample.Run, sample.Run]:
    """A finished experiment, and one that runs on the same host."""
    done = sample.finished(people.team, people.owner, sample.spec(blocks=3))
    running = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(blocks=3, name="Runs")), Host.objects.get())
    sample.play(running, n_trials=5, fails=lambda t: t.index == 3)
    told = {"trial": running.plan.trials[5].id, "phase": "probing", "probe": 2, "n_probes": 6, "tokens_per_s": 84.0, "log_tail": ["a line"]}
    began = datetime.now(UTC) - timedelta(minutes=3)
    Job.objects.filter(pk=running.job.pk).update(progress={"job_id": str(running.job.pk), "lease": 1} | told, running_at=began)
    return done, running


def reported(done: sample.Run) -> UUID:
    """A table and a tool's file that are imported, and a file on its way in."""
    team, owner = done.experiment.team, done.experiment.created_by
    table = content("community.csv")
    found = table_of(table)
    import_file(table, team, owner, About(source_url="https://example.org/t"), mapping=proposed(found.headers, found.samples))
    import_file(content("vllm-0.32-ngram.json"), team, owner, About(notes="of last spring"))
    return keep_draft(table, team, owner, {"file_name": "t.csv", "tool": "table"}, datetime.now(UTC)).pk


def of_people(done: sample.Run) -> dict[str, str]:
    """Pages of teams, invitations and published versions: one that stands, a corrected one, a withdrawn one."""
    team, owner, now = done.experiment.team, done.experiment.created_by, datetime.now(UTC)
    secret = invite(team, owner, role="viewer", now=now).url.rpartition("/")[2]
    for reason in ("", "a wrong name", "another"):
        last = publish(done.experiment, owner, now=now, reason=reason, hosts=True)
    withdraw(last, owner, now=now, reason="the GPU was shared")
    return {
        "team": reverse("team", args=[team.slug]),
        "a new team": reverse("team-new"),
        "invited": reverse("join", args=[secret]),
        "audit log": reverse("audit"),
        "share": reverse("experiment-share", args=[done.experiment.pk]),
        "published": reverse("publication", args=[done.experiment.pk, 2]),
        "corrected": reverse("publication", args=[done.experiment.pk, 1]),
        "withdrawn": reverse("publication", args=[done.experiment.pk, 3]),
    }


def pages(done: sample.Run, running: sample.Run, arm: str = "draft-3") -> dict[str, str]:
    """Name and address of every page; ``arm``: one of the finished experiment."""
    row, other = Listing.objects.order_by("pk")[:2]
    attempt, own = done.attempts[1].pk, seed_workload(workload("own"), done.experiment.team, done.experiment.created_by)
    table = reported(done)
    return {
        "overview": "/",
        "API": reverse("api-docs"),
        "reported": reverse("reported"),
        "import": reverse("reported-new"),
        "columns of a table": reverse("reported-draft", args=[table]),
        "reports": reverse("reported-one", args=[Report.objects.get(tool="table").pk]),
        "report of a tool": reverse("reported-one", args=[Report.objects.get(tool="vllm").pk]),
        "running": reverse("experiment", args=[running.experiment.pk]),
        "answered": reverse("experiment", args=[done.experiment.pk]),
        "numbers": reverse("numbers", args=[done.job.pk]) + f"?arm={arm}&point=count/c1/ctx0/t0",
        "runs": reverse("runs", args=[done.experiment.pk]),
        "trial": reverse("attempt", args=[attempt]),
        "difference of trials": reverse("trial-diff", args=[attempt]) + f"?with={done.attempts[0].pk}&all=1",
        "trial to compare": reverse("trial-diff", args=[running.attempts[0].pk]),
        "search in a log": reverse("evidence", args=[attempt, "server.log"]) + "?q=slot",
        "failed trial": reverse("attempt", args=[running.attempts[3].pk]),
        "evidence": reverse("evidence", args=[attempt, "records.jsonl"]) + "?line=2&field=final.timings.draft_n",
        "evidence list": reverse("evidence-list", args=[done.job.pk]),
        "compare": reverse("compare"),
        "charts": reverse("compare-charts"),
        "history": reverse("compare-history") + f"?{urlencode({'question': row.question_key, 'hardware': row.hardware})}",
        "two rows": reverse("compare-why") + f"?row={row.pk}&row={other.pk}",
        "what works": f"/?{urlencode({'model': row.target})}",
        "nobody measured": "/?hardware=none",
        "models": reverse("models"),
        "model": reverse("model", args=["b" * 64]),
        "hardware": reverse("hardware"),
        "hosts": reverse("hosts"),
        "host": reverse("host", args=[Host.objects.get().pk]),
        "engine builds": reverse("runtimes"),
        "engine build": reverse("runtime", args=["a" * 64]),
        "enrol": reverse("host-enrol"),
        "presets": reverse("presets"),
        "workloads": reverse("workloads"),
        "workload": reverse("workload", args=[own.pk]),
        "upload of prompts": reverse("workload-new"),
        **of_people(done),
        **watched_pages(done),
    }


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_every_page_fits_and_axe_finds_nothing_serious(live_server, both, width, scheme):
    found = {}
    addresses = pages(*both)
    # Axe compiles its rules from text, which the pages' policy forbids; that the policy holds is tested elsewhere.
    with visitor(live_server.url, width, scheme, bypass_csp=True) as someone:
        for name, path in addresses.items():
            someone.go(path)
            open_all(someone.page)
            draw_all(someone.page)
            found[name] = serious(someone.page) + too_wide(someone)
        someone.page.context.clear_cookies()
        visitors = (
            ("login", "/login/"),
            ("visitor's overview", "/"),
            ("lost password", "/password/reset"),
            ("invited", addresses["invited"]),
        )
        for name, path in visitors:
            someone.go(path)
            found[name] = serious(someone.page) + too_wide(someone)
        # A version that was withdrawn is gone, and its page says so.
        found["console and network"] = [c for c in someone.complaints if "410" not in c]
    assert not {name: findings for name, findings in found.items() if findings}


def test_a_keyboard_reaches_everything_and_the_focus_is_seen(live_server, both):
    """Each stop of Tab is in the window, has an outline, and what can be pressed is passed by none."""
    addresses = pages(*both)
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        for name in ("overview", "running", "answered", "trial", "compare"):
            someone.go(addresses[name])
            draw_all(page)  # a chart that is drawn offers its files
            wanted = page.evaluate(
                "[...document.querySelectorAll('a[href], button, summary, input:not([type=hidden]), [tabindex=\"0\"]')]"
                ".filter(e => e.checkVisibility({ visibilityProperty: true }) && !e.closest('details:not([open]) > :not(summary)')).length"
            )
            stops = set()
            for _ in range(wanted + 5):
                page.keyboard.press("Tab")
                stop = page.evaluate(
                    "(() => { const e = document.activeElement; if (e === document.body) return null;"
                    " e.dataset.stop ||= String(document.querySelectorAll('[data-stop]').length + 1);"
                    " const r = e.getBoundingClientRect(), s = getComputedStyle(e);"
                    " return [e.dataset.stop, r.bottom > 0 && r.top < innerHeight, s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1, e.outerHTML.slice(0, 80)]; })()"
                )
                if stop is None:
                    break
                assert stop[1], (name, stop)
                assert stop[2], (name, stop)
                stops.add(stop[0])
            assert len(stops) >= wanted, name

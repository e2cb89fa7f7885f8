"""Pages: who sees them, that numbers lead to the line they were read from, that each state is told, that nothing grows with trials."""

from __future__ import annotations

import html
import re
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from speccore.errors import EngineDied
from speccore.jobstate import JobState

from specweb.dashboard import urls
from specweb.experiments.models import Experiment, Host, Job, Visibility
from specweb.experiments.services.jobs import fail_job
from specweb.results.models import Attempt, Comparison
from tests.web import sample, test_pages_control
from tests.web.pages import POINT, SMALL, as_user, small

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _evidence_folder(settings, tmp_path: Path) -> None:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path


@pytest.fixture
def people() -> sample.People:
    return sample.people()


#: Addresses whose visibility is tested beside the form.
OF_THE_FORM = {"experiment-new", "experiment-preview", "presets"}
OF_BUILDS = {"runtimes", "runtime"}
ACROSS = {"compare", "compare-charts", "compare-history", "compare-why", "models", "model", "hardware"}
OF_PUBLISHING = {
    "experiment-share",
    "experiment-visibility",
    "experiment-publish",
    "publication",
    "publication-json",
    "publication-newest",
    "publication-withdraw",
    "published-file",
}
OF_FILES = {"export", "experiment-archive", "experiment-import"}
OF_WORKLOADS = {f"workload{rest}" for rest in ("s", "", "-new", "-file", "-share", "-archive", "-restore", "-delete")}


def every_page(run: sample.Run) -> dict[str, str]:
    """One address for each named page about an experiment."""
    attempt = run.attempts[1].id
    return {
        "experiment": reverse("experiment", args=[run.experiment.id]),
        "runs": reverse("runs", args=[run.experiment.id]),
        "report": reverse("report", args=[run.experiment.id]),
        "progress": reverse("progress", args=[run.job.id]),
        "numbers": reverse("numbers", args=[run.job.id]) + f"?arm=draft-3&point={POINT}",
        "evidence-list": reverse("evidence-list", args=[run.job.id]) + "?name=server.log",
        "attempt": reverse("attempt", args=[attempt]),
        "order": reverse("order", args=[run.job.id]),
        "series": reverse("series", args=[attempt, "samples"]),
        "trial-diff": reverse("trial-diff", args=[attempt]) + f"?with={run.attempts[0].id}",
        "evidence": reverse("evidence", args=[attempt, "records.jsonl"]) + "?line=2",
        "raw": reverse("raw", args=[attempt, "server.log"]),
    }


# --- who sees what ---


def test_every_address_has_a_visibility_test(people):
    open_to_all = {"overview", "running", "login", "logout"}  # what the first two list has its own test
    elsewhere = test_pages_control.NAMES | OF_THE_FORM | OF_BUILDS | ACROSS | OF_WORKLOADS | OF_PUBLISHING | OF_FILES
    assert {p.name for p in urls.urlpatterns} == open_to_all | set(every_page(small(people))) | elsewhere


def test_a_team_s_pages_are_for_its_members(people):
    pages = every_page(small(people))
    for user, expected in ((people.owner, 200), (people.mate, 200), (people.stranger, 404)):
        answers = {name: as_user(user).get(url).status_code for name, url in pages.items()}
        wanted = dict.fromkeys(pages, expected) | ({"progress": 286} if expected == 200 else {})
        assert answers == wanted, user
    for name, url in pages.items():
        answer = Client().get(url)
        if name == "progress":
            assert answer.status_code == 401  # what a page asks again and again follows no way to a form
        else:
            assert (answer.status_code, urlsplit(answer["Location"]).path) == (302, "/login/"), name


def test_nothing_tells_a_hidden_experiment_from_a_missing_one(people):
    run = small(people)
    hidden, gone = (reverse("experiment", args=[i]) for i in (run.experiment.id, run.job.id))
    assert as_user(people.stranger).get(hidden).status_code == as_user(people.stranger).get(gone).status_code == 404
    assert Client().get(hidden).status_code == Client().get(gone).status_code == 302


def test_public_pages_are_for_everybody_but_texts_are_for_the_team(people):
    run = small(people, Visibility.PUBLIC)
    pages = every_page(run)
    texts = [reverse(name, args=[run.attempts[1].id, "texts.jsonl"]) for name in ("evidence", "raw")]
    for user in (people.owner, people.mate):
        assert [as_user(user).get(url).status_code for url in texts] == [200, 200]
    for user, refused in ((people.stranger, 404), (None, 302)):
        assert {as_user(user).get(url).status_code for url in pages.values()} == {200, 286}
        assert {as_user(user).get(url).status_code for url in texts} == {refused}
        for url in (pages["attempt"], reverse("evidence-list", args=[run.job.id])):
            shown = as_user(user).get(url).content.decode()
            assert "texts.jsonl" in shown
            assert not [h for h in hrefs(shown) if h.endswith("texts.jsonl") and "/attempts/" in h]


def test_nobody_in_particular_is_in_no_team(people):
    people.team.memberships.all().delete()  # a team without members must not become everybody's
    run = small(people)
    assert not Experiment.objects.visible_to(AnonymousUser()).exists()
    assert Client().get(reverse("attempt", args=[run.attempts[0].id])).status_code == 302


def test_evidence_is_reached_through_its_attempt_only(people):
    run = small(people)
    client, attempt = as_user(people.owner), run.attempts[0]
    for name in (attempt.evidence.first().blob_id, "..%2Fserver.log", "nothing.log"):
        assert client.get(f"/attempts/{attempt.id}/raw/{name}").status_code == 404
        assert client.get(f"/attempts/{attempt.id}/evidence/{name}").status_code == 404


# --- numbers lead to evidence ---


def hrefs(page: str) -> list[str]:
    return [html.unescape(h) for h in re.findall(r'href="([^"]+)"', page)]


def number_links(page: str) -> list[str]:
    return [html.unescape(h) for h in re.findall(r'<a class="(?:n|withheld)" href="([^"]+)"', page)]


def test_every_number_link_resolves_to_its_anchor(people):
    run = small(people)
    client = as_user(people.owner)
    todo, seen, n_lines = [reverse("experiment", args=[run.experiment.id])], {}, 0
    while todo:
        url = todo.pop()
        page = client.get(url).content.decode()
        for link in number_links(page):
            target = urljoin(url, link)
            path = target.partition("#")[0]
            if path not in seen:
                answer = client.get(path)
                assert answer.status_code == 200, target
                seen[path] = answer.content.decode()
                todo.append(path)
            anchor = urlsplit(target).fragment
            if anchor:
                assert f'id="{anchor}"' in seen[path], target
            n_lines += "/evidence/" in target
    assert n_lines > 40  # probes of both arms, several numbers each


def test_a_probe_s_number_stands_in_the_marked_line(people):
    run = small(people)
    client = as_user(people.owner)
    page = client.get(every_page(run)["numbers"]).content.decode()
    cells = re.findall(r'<a class="n" href="([^"]+)" title="drafted:[^"]*">([\d,]+)</a>', page)
    assert cells
    for href, shown in cells:
        opened = client.get(html.unescape(href)).content.decode()
        assert re.search(r'<li id="L\d+" class="hit">', opened)
        assert f"&quot;draft_n&quot;: {shown}," in opened
        assert "<mark>" in opened


def test_the_page_shows_what_the_comparison_says(people):
    run = small(people)
    found = Comparison.objects.get(job=run.job)
    page = as_user(people.owner).get(every_page(run)["experiment"]).content.decode()
    assert found.speedup is not None
    assert page.count(f">{found.speedup:.2f}×</a> <small>{found.ci_low:.2f}–{found.ci_high:.2f}</small>") == 2  # strip and table
    assert found.verdict in page


def test_tooltips_carry_the_definitions(people):
    page = as_user(people.owner).get(every_page(small(people))["experiment"]).content.decode()
    assert "accepted ÷ drafted" in page
    assert "(tokens_per_target_pass/1)" in page


def test_withheld_numbers_give_their_reason(people):
    run = small(people, blocks=2)
    page = as_user(people.owner).get(every_page(run)["experiment"]).content.decode()
    assert "needs 3 blocks, has 2" in page
    assert not re.search(r">(None|nan|NaN|inf)[<×]", page)


def test_an_arm_that_never_ran_says_why_instead_of_numbers(people):
    run = small(people, fails=lambda trial: trial.arm == "draft-3")
    page = as_user(people.owner).get(every_page(run)["experiment"]).content.decode()
    assert "does not fit" in page
    assert "ran out of memory in 3 blocks" in page
    failed = next(a for a in run.attempts if a.outcome == "failed")
    shown = as_user(people.owner).get(reverse("attempt", args=[failed.id])).content.decode()
    assert "could not allocate 1,024 MiB" in shown
    assert "Use a smaller context" in shown


def test_a_verdict_that_is_not_the_last_word_names_the_next_step(people):
    run = small(people, blocks=2)
    step = "Next: run it again with 5 blocks, the usual number; if trials failed, mend that first."
    for name in ("experiment", "numbers"):
        page = as_user(people.owner).get(every_page(run)[name]).content.decode()
        assert step in re.sub(r"</?b>", "", page), name
    kept = small(people, name="Kept")
    assert "keep" in (page := as_user(people.owner).get(every_page(kept)["experiment"]).content.decode())
    assert "<b>Next:</b>" not in page


# --- states ---


def test_a_waiting_job_tells_its_reason(people):
    sample.host_with_inventory(people.team)
    experiment = sample.submitted(people.team, people.owner, sample.spec(**SMALL))
    Job.objects.update(reason="xeon could run it and is offline")
    page = as_user(people.owner).get(reverse("experiment", args=[experiment.id])).content.decode()
    assert "xeon could run it and is offline" in page
    assert "specweb-agent poll" in page


@pytest.fixture
def running(people) -> sample.Run:
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL)), host)
    sample.play(run, n_trials=2)
    Job.objects.update(
        progress={"job_id": str(run.job.id), "lease": 1, "trial": run.plan.trials[2].id, "phase": "probing", "probe": 1, "n_probes": 2}
    )
    return run


def test_progress_is_told_and_unchanged_progress_costs_nothing(people, running):
    client = as_user(people.owner)
    page = client.get(reverse("experiment", args=[running.experiment.id])).content.decode()
    assert "2 of 6 trials done" in page
    assert "probing, probe 1 of 2" in page
    tag, url = (html.unescape(re.search(rf'{name}="([^"]+)"', page)[1]) for name in ("data-tag", "hx-get"))
    again = client.get(url, headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    Job.objects.update(progress=None)
    changed = client.get(url, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed["ETag"] != tag
    assert "HX-Refresh" not in changed
    Job.objects.update(state="completed")
    assert client.get(url, headers={"If-None-Match": tag})["HX-Refresh"] == "true"


def test_a_page_of_a_job_that_is_done_asks_no_more(people):
    run = small(people)
    client = as_user(people.owner)
    assert "hx-get" not in client.get(reverse("experiment", args=[run.experiment.id])).content.decode()
    assert client.get(reverse("progress", args=[run.job.id])).status_code == 286  # htmx's word for: stop


def test_a_page_of_a_live_job_refreshes_without_javascript(people, running):
    page = as_user(people.owner).get(reverse("experiment", args=[running.experiment.id])).content.decode()
    assert '<noscript><meta http-equiv="refresh"' in page


def test_a_failed_job_shows_error_and_remedy(people, running):
    error = EngineDied("llama-server ended with code 139").body()
    assert fail_job(running.job.id, error, now=sample.START, by="test")
    page = as_user(people.owner).get(reverse("experiment", args=[running.experiment.id])).content.decode()
    assert "llama-server ended with code 139" in page
    assert error.remedy in html.unescape(page)
    assert "2 of 6 trials done" in page


def test_two_hosts_get_a_tab_each(people):
    first = small(people)
    other = sample.host_with_inventory(people.team, "epyc")
    Job.objects.create(experiment=first.experiment, wanted_host=other, host=other, state=JobState.QUEUED.value)
    client = as_user(people.owner)
    page = client.get(reverse("experiment", args=[first.experiment.id])).content.decode()
    assert {"xeon", "epyc"} <= set(re.findall(r'<li><a href="[^"]+"[^>]*>(\w+) <small>', page))
    assert "Comparison" in page  # the job with an answer comes first
    chosen = Job.objects.get(host=other)
    assert "epyc gets the job with its next poll" in client.get(f"/experiments/{first.experiment.id}/?job={chosen.id}").content.decode()


# --- safety ---


def test_html_in_names_errors_and_logs_is_escaped(people):
    run = small(people, name=f"n {sample.NASTY}"[:120], question=f"q {sample.NASTY}", fails=lambda t: t.block == 1 and t.arm == "draft-3")
    Attempt.objects.filter(outcome="failed").update(error={"code": "x", "message": sample.NASTY, "blame": "engine", "remedy": sample.NASTY})
    sample.Team.objects.filter(pk=people.team.pk).update(name=sample.NASTY)
    Host.objects.update(name=sample.NASTY)
    pages = [*every_page(run).values(), "/", reverse("evidence", args=[run.attempts[1].id, "texts.jsonl"]) + "?line=1"]
    pages += [reverse("attempt", args=[a.id]) for a in run.attempts if a.outcome == "failed"]
    for url in pages:
        answer = as_user(people.owner).get(url)
        if "/raw/" in url or url.endswith("/report.md"):  # these are downloaded
            continue
        body = answer.content.decode()
        assert "<script>alert" not in body, url
        assert "<b>bold" not in body, url
    assert html.escape(sample.NASTY) in as_user(people.owner).get(pages[0]).content.decode()


def test_pages_hold_no_inline_style_or_script(people):
    run = small(people)
    for url in [*every_page(run).values(), "/"]:
        answer = as_user(people.owner).get(url)
        assert "default-src 'self'" in answer["Content-Security-Policy"]
        assert "unsafe" not in answer["Content-Security-Policy"]
        if "/raw/" in url or url.endswith("/report.md"):  # these are downloaded
            continue
        page = answer.content.decode()
        assert not re.search(r"<[^>]+\sstyle=", page)
        assert not re.search(r"<[^>]+\son\w+=", page)
        for tag in re.findall(r"<script[^>]*>", page):
            assert "src=" in tag or 'type="application/json"' in tag
        assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


def test_raw_evidence_is_a_download_of_the_stored_bytes(people):
    run = small(people)
    file = run.attempts[1].evidence.get(name="server.log")
    answer = as_user(people.owner).get(reverse("raw", args=[run.attempts[1].id, "server.log"]))
    content = b"".join(answer.streaming_content)
    assert len(content) == file.blob.bytes
    assert sample.hashlib.sha256(content).hexdigest() == file.blob_id
    assert answer["Content-Disposition"].startswith("attachment")
    assert answer["Content-Type"] == "application/octet-stream"


@pytest.mark.parametrize("odd", ["%00", "x" * 300, "..%2f..%2fetc%2fpasswd"])
def test_names_that_no_file_has_are_not_found(people, odd):
    run = small(people)
    client = as_user(people.owner)
    for kind in ("raw", "evidence"):
        assert client.get(f"/attempts/{run.attempts[0].id}/{kind}/{odd}").status_code == 404
    assert client.get(f"/jobs/{run.job.id}/evidence?name={odd}&page={'9' * 5000}").status_code == 200


def test_a_big_log_is_read_a_page_at_a_time(people):
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL)), host)
    sample.play(run, n_trials=1, log_lines=5_000)
    url = reverse("evidence", args=[run.attempts[0].id, "server.log"])
    client = as_user(people.owner)
    first, marked = client.get(url).content.decode(), client.get(url + "?line=4321").content.decode()
    assert first.count('<li id="L') == 2_000
    assert "Lines after" in first
    assert marked.count('<li id="L') <= 2_000
    assert '<li id="L4321" class="hit">' in marked
    assert "no such lines" in client.get(url + "?page=99").content.decode()
    for odd in ("?line=0", "?line=x", "?page=-1", "?line=" + "9" * 40):
        assert client.get(url + odd).status_code == 200, odd


def test_evidence_that_is_gone_from_disk_is_told(people, settings, tmp_path):
    run = small(people)
    settings.SPECWEB_EVIDENCE_DIR = tmp_path / "elsewhere"
    client = as_user(people.owner)
    for name in ("server.log", "launch.json"):
        page = client.get(reverse("evidence", args=[run.attempts[1].id, name]))
        assert page.status_code == 404
        assert "can’t be read" in page.content.decode()
    assert client.get(reverse("raw", args=[run.attempts[1].id, "server.log"])).status_code == 404


# --- cost ---


def test_statements_do_not_grow_with_trials(people):
    few, many = small(people), small(people, blocks=8)
    client = as_user(people.owner)
    for (name, one), other in zip(every_page(few).items(), every_page(many).values(), strict=True):
        counts = []
        for url in (one, other):
            with CaptureQueriesContext(
                connection,
            ) as queries:
                assert client.get(url).status_code in (200, 286)
            counts.append(len(queries))
        assert counts[0] == counts[1] <= 18, (name, counts)

"""What changes by itself, in a real browser: phases, errors, hidden tabs, and that its reader is not disturbed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.contrib.sessions.models import Session
from django.urls import reverse
from playwright.sync_api import Page
from speccore.jobstate import JobState

from specweb.experiments.models import Job
from specweb.experiments.services.jobs import move_job
from specweb.results.services.comparing import compare_job
from tests.browser.visitors import CHROMIUM, draw_all, in_thread, until, visitor
from tests.web import sample

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]


def tell(run: sample.Run, **words: object) -> None:
    told = {"job_id": str(run.job.pk), "lease": 1, "trial": run.plan.trials[2].id, "phase": "probing", "probe": 1, "n_probes": 6}
    Job.objects.filter(pk=run.job.pk).update(progress=told | words)


def address(run: sample.Run) -> str:
    return reverse("experiment", args=[run.experiment.id])


def asked(page: Page) -> list[str]:
    """Collects the addresses of the polling's requests from now on."""
    found: list[str] = []
    page.on("request", lambda request: found.append(request.url) if "/progress" in request.url or "/running" in request.url else None)
    return found


def hide(page: Page, hidden: bool) -> None:
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


def test_a_job_is_watched_from_a_phase_to_its_answer(live_server, running):
    tell(running, phase="warm-up")
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(address(running))
        page.evaluate("window.stayed = true")
        assert "warming up" in page.inner_text("#progress .at-work")
        in_thread(lambda: tell(running, probe=2, tokens_per_s=91.4))
        until(page, "document.querySelector('#progress .at-work').textContent.includes('probing, probe 2 of 6')")
        assert "91 tokens/s" in page.inner_text("#progress .at-work")
        assert page.evaluate("window.stayed")
        in_thread(lambda: _finish(running))
        page.wait_for_selector("#forest", timeout=20_000)
        draw_all(page)
        assert page.locator("ul.answers li").count() == 3
        assert page.locator("[data-live]").count() == 0
        requests = asked(page)
        page.wait_for_timeout(3000)
        assert requests == []
        assert someone.complaints == []


def _finish(run: sample.Run) -> None:
    sample.play(run)
    now = datetime.now(UTC)
    move_job(run.job.pk, JobState.COMPLETED, now=now, by="test")
    assert compare_job(run.job.pk, now)


def test_unchanged_progress_is_asked_for_and_not_drawn_again(live_server, running):
    tell(running, trial="", phase="uploading")  # between trials no time runs
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(address(running))
        page.evaluate("document.querySelector('#progress .state').dataset.mine = 'yes'")
        with page.expect_response(lambda r: "/progress" in r.url and r.status == 304):
            pass
        assert page.evaluate("document.querySelector('#progress .state').dataset.mine") == "yes"
        assert someone.complaints == []


def test_only_phases_are_said_aloud(live_server, running):
    tell(running)
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(address(running))
        page.evaluate(
            "window.said = []; new MutationObserver(() => said.push(document.getElementById('live-said').textContent))"
            ".observe(document.getElementById('live-said'), { childList: true })"
        )
        for i in (2, 3):
            in_thread(lambda i=i: tell(running, probe=i, tokens_per_s=90.0 + i))
            until(page, f"document.querySelector('#progress .at-work').textContent.includes('probe {i} of 6')")
        in_thread(lambda: tell(running, phase="stopping"))
        until(page, "document.querySelector('#progress .at-work').textContent.includes('stopping')")
        arm = running.plan.trials[2].arm
        assert page.evaluate("said") == [f"probing, trial 3 of 12, {arm}", f"stopping the engine, trial 3 of 12, {arm}"]
        assert page.locator("#progress [role=status], #progress [aria-live]").count() == 0


def test_a_server_that_is_away_is_told_until_it_is_back(live_server, running):
    tell(running)
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(address(running))
        page.route("**/progress?*", lambda route: route.abort())
        until(page, "document.getElementById('live-trouble').textContent.includes('can’t be reached since')")
        assert "trying on" in page.inner_text("#live-trouble")
        assert "probing" in page.inner_text("#progress")  # what was there stays
        page.unroute("**/progress?*")
        in_thread(lambda: tell(running, probe=5))
        until(page, "document.querySelector('#progress .at-work').textContent.includes('probe 5 of 6')", 30)
        assert page.is_hidden("#live-trouble")


def test_a_server_in_trouble_is_asked_ever_less_often(live_server, running):
    tell(running)
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(address(running))
        page.route("**/progress?*", lambda route: route.fulfill(status=503))
        until(page, "document.getElementById('live-trouble').textContent.includes('answers with an error (503)')")
        requests = asked(page)
        page.wait_for_timeout(7000)
        assert len(requests) <= 2


def test_who_is_logged_out_meanwhile_is_told_and_asks_no_more(live_server, running):
    tell(running)
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(address(running))
        in_thread(lambda: Session.objects.all().delete())
        until(page, "document.getElementById('live-trouble').textContent.includes('You are logged out')")
        requests = asked(page)
        page.wait_for_timeout(5000)
        assert requests == []
        page.click("#live-trouble a")
        page.fill("[name=username]", "owner")
        page.fill("[name=password]", "a long enough password")
        page.click("button.button")
        page.wait_for_url(f"**{address(running)}")


def test_a_hidden_tab_asks_less_and_catches_up_when_it_is_seen(live_server, running):
    tell(running)
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(address(running))
        hide(page, True)
        page.wait_for_timeout(500)
        requests = asked(page)
        page.wait_for_timeout(6000)
        assert requests == []
        in_thread(lambda: tell(running, probe=4))
        hide(page, False)
        until(page, "document.querySelector('#progress .at-work').textContent.includes('probe 4 of 6')", 5)
        assert someone.complaints == []


def test_what_is_being_marked_or_has_the_focus_is_left_alone(live_server, running):
    tell(running, log_tail=["one line to copy"])
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(address(running))
        page.click("#log-tail summary")
        page.evaluate("getSelection().selectAllChildren(document.getElementById('log-tail-lines'))")
        in_thread(lambda: tell(running, probe=3, log_tail=["another line"]))
        page.wait_for_timeout(5000)
        assert page.evaluate("getSelection().toString()").strip() == "one line to copy"
        page.evaluate("getSelection().removeAllRanges()")
        page.focus("#trial-1")
        until(page, "document.getElementById('log-tail-lines').textContent.includes('another line')")
        assert page.evaluate("document.activeElement.id") == "trial-1"
        assert someone.complaints == []


def test_the_overview_follows_what_runs(live_server, running):
    tell(running)
    with visitor(live_server.url, 390, "dark") as someone:
        page = someone.page
        someone.go("/")
        page.evaluate("window.stayed = true")
        assert "2 of 12 trials" in page.inner_text("#running-now")
        in_thread(lambda: tell(running, probe=3, tokens_per_s=64.0))
        until(page, "document.getElementById('running-now').textContent.includes('probing 3 of 6')")
        assert page.evaluate("window.stayed")
        in_thread(lambda: _finish(running))
        page.wait_for_selector(".card-answers", timeout=20_000)
        assert "Nothing runs" in page.inner_text("#running-now")
        assert someone.sideways() <= 0
        assert someone.complaints == []


def test_a_visitor_watches_a_public_job_without_an_account(live_server, running):
    running.experiment.visibility = "public"
    running.experiment.save()
    tell(running)
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        page.context.clear_cookies()
        someone.go(address(running))
        assert page.locator("text=Log in").count() == 1
        in_thread(lambda: tell(running, probe=6))
        until(page, "document.querySelector('#progress .at-work').textContent.includes('probe 6 of 6')")
        assert page.is_hidden("#live-trouble")
        assert someone.complaints == []

"""Hosts and buttons in a real browser: by keyboard, without JavaScript, on a phone, in the dark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.urls import reverse
from playwright.sync_api import Page
from speccore.errors import DiskFull, EngineDied

from specweb.experiments.models import Host, Job
from specweb.experiments.services.hosts import create_host
from specweb.experiments.services.jobs import fail_job, request_pause
from specweb.results.services.blocks import void_block
from specweb.results.services.comparing import compare_job
from tests.browser.visitors import CHROMIUM, draw_all, in_thread, until, visitor
from tests.web import sample

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]

LOG = [
    f"slot update_slots: id 0 | task {i} | n_tokens = {i}, a line that is wider than any telephone on which it is read" for i in range(12)
]


def now() -> datetime:
    return datetime.now(UTC)


def tell(run: sample.Run, **words: object) -> None:
    told = {"job_id": str(run.job.pk), "lease": 1, "trial": run.plan.trials[2].id, "phase": "probing", "log_tail": LOG}
    Job.objects.filter(pk=run.job.pk).update(progress=told | words)


def tab_to(page: Page, text: str) -> None:
    """Presses Tab until the element with this text has the focus."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == text:
            return
    raise AssertionError(f"Tab never came to {text!r}")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_every_page_of_hosts_and_jobs_is_clean_and_fits(live_server, people, running, width, scheme):
    host, job = Host.objects.get(), running.job
    problem = DiskFull("12 MiB are free in /var/lib/" + "specweb-agent" * 9).body().model_dump(mode="json")
    Host.objects.update(problem=problem, problem_at=now())
    new, _ = create_host(people.team, "brand-new-" + "x" * 40)
    gone = sample.host_with_inventory(people.team, "under-the-desk")
    Host.objects.filter(pk=gone.pk).update(last_seen_at=now() - timedelta(days=3))
    tell(running, note="block 1 is run whole once more")
    void_block(Job.objects.get(pk=job.pk), 1, 2, "the machine was started anew")
    experiment = reverse("experiment", args=[running.experiment.id])
    hosts = [reverse("host", args=[h.pk]) for h in (host, new, gone)]
    paths = ["/", reverse("hosts"), *hosts, reverse("host-enrol"), reverse("host-revoke", args=[host.pk]), experiment]
    with visitor(live_server.url, width, scheme) as someone:
        for path in paths:
            someone.go(path)
            for summary in someone.page.locator("main details > summary").all():
                summary.click()
            assert someone.sideways() <= 0, path
        someone.go(reverse("host-enrol"))
        someone.page.click("form.ask button")
        someone.page.wait_for_selector("pre.shell")
        assert someone.sideways() <= 0
        in_thread(lambda: fail_job(job.pk, EngineDied("llama-server ended with code 139").body(), now=now(), by="test"))
        in_thread(lambda: compare_job(job.pk, now()))
        for path in (experiment, reverse("attempt", args=[running.attempts[0].pk])):
            someone.go(path)
            assert someone.sideways() <= 0, path
        assert someone.complaints == []


def test_cancel_by_keyboard(live_server, running):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[running.experiment.id]))
        tab_to(page, "Cancel…")
        page.keyboard.press("Enter")
        tab_to(page, "Cancel the job")
        page.keyboard.press("Enter")
        page.wait_for_selector("#progress[data-state='running cancelling']")
        assert "told with its next poll" in page.inner_text(".messages")
        assert "Cancelling on xeon" in page.inner_text("#progress")
        assert page.locator(".controls").count() == 0
        assert someone.complaints == []
    in_thread(lambda: _was_asked(running))


def _was_asked(run: sample.Run) -> None:
    job = Job.objects.get(pk=run.job.pk)
    assert job.cancel_requested_by == "owner"
    assert job.cancel_requested_at is not None


def test_buttons_work_without_javascript(live_server, running):
    with visitor(live_server.url, 390, java_script_enabled=False) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[running.experiment.id]))
        page.click("text=Pause")
        assert "pauses after the trial that runs" in page.inner_text("main")
        page.click("text=Resume")
        assert "The job goes on." in page.inner_text(".messages")
        page.click("text=Cancel…")
        page.click("text=Cancel the job")
        assert "Cancelling on xeon" in page.inner_text("main")


def test_a_viewer_has_no_buttons(live_server, running):
    with visitor(live_server.url, 1280, user="mate") as someone:
        for path in (reverse("experiment", args=[running.experiment.id]), reverse("hosts"), reverse("host", args=[running.lease.host_id])):
            someone.go(path)
            assert someone.page.locator("main button, main .button:not(a.quiet)").count() == 0, path  # a quiet link only leads on
        assert someone.complaints == []


def test_what_its_reader_opened_stays_open_while_progress_comes(live_server, running):
    tell(running)
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[running.experiment.id]))
        page.click("#log-tail summary")
        page.click(".confirm summary")
        in_thread(lambda: tell(running, log_tail=["the newest line"]))
        until(page, "document.querySelector('#log-tail pre').textContent.includes('the newest line')")
        assert page.evaluate("document.getElementById('log-tail').open")
        assert page.evaluate("document.querySelector('.confirm').open")
        assert someone.complaints == []


def test_moments_that_come_later_are_in_the_viewer_s_zone_too(live_server, running):
    request_pause(running.job, now=now(), by="mate")
    tell(running)
    with visitor(live_server.url, 1280, timezone_id="Asia/Kathmandu") as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[running.experiment.id]))
        page.evaluate("window.stayed = true")
        at_first = page.inner_text("#progress .state time")
        assert "UTC" not in at_first
        in_thread(lambda: tell(running, log_tail=["the newest line"]))
        until(page, "document.querySelector('#log-tail pre').textContent.includes('the newest line')")
        assert page.evaluate("window.stayed")
        assert page.inner_text("#progress .state time") == at_first
        assert someone.complaints == []


def test_somebody_else_s_pause_brings_the_page_with_its_buttons(live_server, running):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[running.experiment.id]))
        in_thread(lambda: request_pause(running.job, now=now(), by="mate"))
        page.wait_for_selector("button:text-is('Resume')", timeout=15_000)
        assert page.locator("button:text-is('Pause')").count() == 0
        assert someone.complaints == []


def test_a_withheld_interval_s_reason_does_not_run_into_the_verdict(live_server, people):
    run = sample.finished(people.team, people.owner, sample.spec(blocks=4), fails=lambda t: t.arm == "draft-8" and t.block < 3)
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[run.experiment.id]))
        draw_all(page)
        boxes = page.evaluate(
            "[...document.querySelectorAll('#forest .annotation')].map(e => e.getBoundingClientRect()).map(r => [r.left, r.right, r.top, r.bottom])"
        )
        assert "needs 3 blocks" in page.inner_text("#forest")
        for i, (left, right, top, bottom) in enumerate(boxes):
            for other in boxes[i + 1 :]:
                across = min(right, other[1]) - max(left, other[0])
                down = min(bottom, other[3]) - max(top, other[2])
                assert across <= 1 or down <= 4, (boxes[i], other)

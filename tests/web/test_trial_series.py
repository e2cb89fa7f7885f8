"""What a trial's charts are drawn from: read from evidence under an entity tag, whole or thinned, and never an error."""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from speccore.records import AttemptSummary, DeviceSample, Sample, StreamEvent, StreamRecord

from specweb.dashboard.series_cycles import cycles_data
from specweb.dashboard.series_samples import samples_data
from specweb.dashboard.series_stream import lanes_of, stream_data
from specweb.experiments.models import Visibility
from specweb.results import trial_series
from specweb.results.models import Attempt
from specweb.results.store import store_blob
from specweb.results.thinning import thinned
from specweb.results.trial_series import Read
from tests.web import sample
from tests.web.pages import SMALL, as_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _evidence_folder(settings, tmp_path: Path) -> None:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path


@pytest.fixture
def people() -> sample.People:
    return sample.people()


def two_trials(people: sample.People, visibility: Visibility = Visibility.TEAM) -> sample.Run:
    """A job under way: one start of each arm has come back."""
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL), visibility), host)
    sample.play(run, n_trials=2)
    return run


def address(attempt: Attempt, what: str, probe: int | None = None) -> str:
    return reverse("series", args=[attempt.id, what]) + (f"?probe={probe}" if probe is not None else "")


def asked(client: Client, url: str) -> dict[str, Any]:
    answer = client.get(url)
    assert answer.status_code == 200, url
    return answer.json()


def replaced(attempt: Attempt, people: sample.People, name: str, content: bytes) -> None:
    """The attempt's file with other bytes."""
    blob = store_blob(hashlib.sha256(content).hexdigest(), io.BytesIO(content), people.team, zstd=False, max_bytes=2**30)
    attempt.evidence.filter(name=name).update(blob=blob)


def raw(attempt: Attempt, name: str) -> bytes:
    return b"".join(as_user(None).get(reverse("raw", args=[attempt.id, name])).streaming_content)  # type: ignore[arg-type]


# --- who may read ---


def test_a_series_is_read_by_whom_the_trial_is(people):
    run = two_trials(people)
    for what in ("cycles", "stream", "samples"):
        url = address(run.attempts[1], what, 2)
        answers = [as_user(user).get(url).status_code for user in (people.owner, people.mate, people.stranger, None)]
        assert answers == [200, 200, 404, 302], what
    assert as_user(people.owner).get(f"/attempts/{run.attempts[1].id}/series/texts.json").status_code == 404


def test_a_public_trial_s_series_hold_no_text(people):
    run = two_trials(people, Visibility.PUBLIC)
    for what in ("cycles", "stream", "samples"):
        body = Client().get(address(run.attempts[1], what, 2)).content.decode()
        assert "empty" not in json.loads(body)
        assert sample.NASTY not in body


def test_a_file_that_is_for_the_team_is_told_apart_from_one_that_is_missing(people):
    run = two_trials(people, Visibility.PUBLIC)
    attempt = run.attempts[1]
    attempt.evidence.filter(name="records.jsonl").update(private=True)
    assert "for the team only" in asked(Client(), address(attempt, "stream"))["empty"]
    assert "empty" not in asked(as_user(people.mate), address(attempt, "stream"))
    attempt.evidence.filter(name="records.jsonl").delete()
    assert "left no records.jsonl" in asked(as_user(people.mate), address(attempt, "stream"))["empty"]


def test_unchanged_evidence_is_not_read_again(people):
    run = two_trials(people)
    client, attempt = as_user(people.owner), run.attempts[1]
    url = address(attempt, "samples")
    tag = client.get(url)["ETag"]
    Path(stored_at(attempt, "samples.jsonl")).unlink()
    assert client.get(url, HTTP_IF_NONE_MATCH=tag).status_code == 304
    assert "not in the store" in client.get(url).json()["empty"]
    assert client.get(address(attempt, "cycles", 2))["ETag"] != client.get(address(attempt, "cycles", 3))["ETag"]
    assert as_user(people.stranger).get(url, HTTP_IF_NONE_MATCH=tag).status_code == 404


def stored_at(attempt: Attempt, name: str) -> str:
    return f"{settings.SPECWEB_EVIDENCE_DIR}/{attempt.evidence.get(name=name).blob.path}"


# --- by hand against the raw file ---


def test_the_steps_are_those_of_the_raw_record(people):
    """Each growth of the engine's running time is a step; what the draft counts grew by there is that step's."""
    run = two_trials(people, Visibility.PUBLIC)
    attempt = run.attempts[next(i for i, t in enumerate(run.plan.trials) if t.arm == "draft-3")]
    record = json.loads(raw(attempt, "records.jsonl").splitlines()[1])
    by_hand, before = [], (0.0, 0, 0)
    for event in record["events"][1:]:
        if event["predicted_ms"] is not None and event["predicted_ms"] != before[0]:
            now = (event["predicted_ms"], event["draft_n"], event["draft_n_accepted"])
            by_hand.append((round(before[0], 3), round(now[0] - before[0], 3), now[1] - before[1], now[2] - before[2]))
            before = now
    data = asked(as_user(people.owner), address(attempt, "cycles", 2))
    assert [tuple(s[1:5]) for s in data["steps"]] == [pytest.approx(row, abs=0.002) for row in by_hand]
    assert sum(s[5] for s in data["steps"]) == 63
    assert data["most_drafted"] == 3
    assert (
        f"{record['final']['timings']['draft_n']} tokens drafted, {record['final']['timings']['draft_n_accepted']} accepted"
        in data["notes"][0]
    )


def test_requests_and_samples_are_those_of_the_raw_files(people):
    run = two_trials(people, Visibility.PUBLIC)
    attempt = run.attempts[1]
    records = [json.loads(line) for line in raw(attempt, "records.jsonl").splitlines()]
    data = asked(as_user(people.owner), address(attempt, "stream"))
    assert [r["line"] for r in data["requests"]] == [i for i, _ in sorted(enumerate(records, 1), key=lambda p: (p[1]["sent_at_s"], p[0]))]
    first = next(r for r in data["requests"] if r["line"] == 2)
    assert (first["sent"], first["first"], first["tokens"]) == (records[1]["sent_at_s"], pytest.approx(records[1]["events"][0]["at_s"]), 64)
    assert first["href"].endswith("/evidence/records.jsonl?line=2#L2")
    samples = [json.loads(line) for line in raw(attempt, "samples.jsonl").splitlines()]
    memory = asked(as_user(people.owner), address(attempt, "samples"))["panels"][0]["series"][0]
    assert memory["name"] == "proportional (PSS)"
    assert memory["values"] == pytest.approx([s["pss_bytes"] / 2**20 for s in samples], abs=0.001)
    assert memory["at"] == [s["at_s"] for s in samples]
    assert memory["lines"] == list(range(1, len(samples) + 1))


# --- evidence that is damaged, huge or not there ---


def test_damaged_evidence_gives_a_sentence(people, monkeypatch):
    monkeypatch.setattr(trial_series, "MOST_LINE_BYTES", 200_000)
    monkeypatch.setattr(trial_series, "MOST_BYTES", 1_000_000)
    run = two_trials(people, Visibility.PUBLIC)
    client, attempt = as_user(people.owner), run.attempts[1]
    whole = raw(attempt, "records.jsonl")
    lines = whole.splitlines(keepends=True)

    replaced(attempt, people, "records.jsonl", lines[0] + b'{"x": "' + b"y" * 3_000_000 + b'"}\n' + lines[1])
    assert "longer than" in asked(client, address(attempt, "cycles", 2))["empty"]
    data = asked(client, address(attempt, "stream"))
    assert len(data["requests"]) == 1
    assert "too large to be read for a chart: it is drawn up to line 1" in " ".join(data["notes"])

    replaced(attempt, people, "records.jsonl", whole[: len(whole) - 400])  # cut off within its last line
    data = asked(client, address(attempt, "stream"))
    assert len(data["requests"]) == len(lines) - 1
    assert "1 line of records.jsonl can't be read and is left out." in data["notes"]
    assert "can't be read as a request" in asked(client, address(attempt, "cycles", len(lines)))["empty"]
    assert "has no line 99" in asked(client, address(attempt, "cycles", 99))["empty"]

    for content in (b"", b"\x00\xff\n\n[]\n", b"null\n{}\n"):
        replaced(attempt, people, "records.jsonl", content)
        replaced(attempt, people, "samples.jsonl", content)
        for what in ("stream", "samples", "cycles"):
            assert asked(client, address(attempt, what, 1))["empty"], (what, content)
    for probe in ("", "?probe=", "?probe=-1", "?probe=x", "?probe=" + "9" * 400):
        assert asked(client, address(attempt, "cycles") + probe)["empty"] == "No request is chosen."


def test_a_stored_file_that_cannot_be_decompressed_is_told(people):
    run = two_trials(people)
    attempt = run.attempts[1]
    for name, what in (("records.jsonl", "stream"), ("records.jsonl", "cycles"), ("samples.jsonl", "samples")):
        Path(stored_at(attempt, name)).write_bytes(b"no zstd at all")
        assert "damaged" in asked(as_user(people.owner), address(attempt, what, 2))["empty"]


# --- thinning ---


def test_thinning_keeps_the_ends_and_every_stretch_s_extremes():
    points = [(i, float(i % 7)) for i in range(10_000)]
    points[4321] = (4321, 99.0)
    points[8765] = (8765, -99.0)
    kept = thinned(points, 500, lambda p: p[1])
    assert len(kept) <= 500
    assert kept == sorted(kept)
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]
    assert {(4321, 99.0), (8765, -99.0)} <= set(kept)
    assert thinned(points[:500], 500, lambda p: p[1]) == points[:500]
    assert thinned(points[:9], 2, lambda p: p[1])[0] == points[0]


def test_many_steps_are_thinned_and_the_caption_says_so():
    events, ms = [StreamEvent(at_s=1.0, tokens=1, predicted_n=1, predicted_ms=0.01, draft_n=0, draft_n_accepted=0)], 0.0
    for n in range(2, 5002):
        ms += 500.0 if n == 3000 else 10.0 + n % 5
        events.append(StreamEvent(at_s=1 + ms / 1000, tokens=1, predicted_n=n, predicted_ms=ms, draft_n=4 * (n - 1), draft_n_accepted=0))
    data = cycles_data(record(events))
    assert len(data["steps"]) <= 2000
    assert max(s[2] for s in data["steps"]) == 500.0
    assert "5,000 steps" in data["notes"][0]
    assert "of 5,000 steps are drawn" in data["notes"][1]
    assert len(data["means"]) == 60
    assert {tuple(m[1:]) for m in data["means"]} == {(4.0, 0.0)}
    assert (len(data["table"]["rows"]), data["table"]["more"]) == (200, "and 4,800 more, in records.jsonl")


def record(events: list[StreamEvent], **more: Any) -> StreamRecord:
    values: dict[str, Any] = {"probe": "p", "point": "w", "item": "i", "seed": 1, "path": "/c", "request_sha256": "e" * 64, "status": 200}
    values |= {"connected_at_s": 0.9, "sent_at_s": 1.0, "closed_at_s": 9.0, "events": events}
    return StreamRecord(**values | more)


# --- steps of other engines ---


def spoken(drafted: list[int], accepted: list[int]) -> dict[str, Any]:
    said = {"per_step_drafted": drafted, "per_step_accepted": accepted, "num_spec_steps": len(drafted)}
    said |= {"num_draft_tokens": sum(drafted), "num_accepted_draft_tokens": sum(accepted), "num_spec_tokens": 4}
    return {"metrics": {"speculative_decoding": said}}


def at(*arrivals: tuple[float, int]) -> list[StreamEvent]:
    return [StreamEvent(at_s=t, tokens=n) for t, n in arrivals]


def test_vllm_s_list_of_steps_is_laid_along_the_arrivals():
    events = at((1.0, 1), (1.1, 4), (1.3, 1), (1.4, 2))
    data = cycles_data(record(events, final=spoken([3, 3, 3], [3, 0, 1])))
    assert [s[1:] for s in data["steps"]] == [[0, 100, 3, 3, 4], [100, 200, 3, 0, 1], [300, 100, 3, 1, 2]]
    assert "3 had a draft: 9 tokens drafted, 4 accepted" in data["notes"][0]
    # One of the steps that sent one token had no draft, and which, the reply doesn't say.
    events = at((1.0, 1), (1.1, 4), (1.3, 1), (1.4, 1))
    data = cycles_data(record(events, final=spoken([3, 3], [3, 0])))
    assert [s[3:] for s in data["steps"]] == [[3, 3, 4], [0, 0, 1], [0, 0, 1]]
    assert "6 tokens drafted, 3 accepted" in data["notes"][0]
    assert "doesn't say" in data["notes"][-1]


def test_steps_that_cannot_be_told_apart_are_a_sentence():
    joined = at((1.0, 1), (1.1, 9))
    assert "share an event" in cycles_data(record(joined, final=spoken([3, 3], [3, 3])))["empty"]
    assert "contradicts" in cycles_data(record(joined, final=spoken([3], [5])))["empty"]
    assert "no running times" in cycles_data(record(joined))["empty"]
    assert "No token came" in cycles_data(record([]))["empty"]
    backwards = [
        StreamEvent(at_s=1 + n / 10, tokens=1, predicted_n=n, predicted_ms=10.0 * n, draft_n=d, draft_n_accepted=0)
        for n, d in ((1, 0), (2, 8), (3, 4))
    ]
    assert "can't be" in cycles_data(record(backwards))["empty"]
    one = [StreamEvent(at_s=1.0, tokens=1, predicted_n=1, predicted_ms=0.001)]
    assert "first token" in cycles_data(record(one))["empty"]


# --- requests ---


def test_requests_that_overlap_get_lanes_of_their_own():
    assert lanes_of([(0, 3), (1, 2), (2, 4), (3, 5)]) == ([0, 1, 1, 0], 2)
    assert lanes_of([(0, 1), (1, 2)]) == ([0, 0], 1)
    several = [(n, record(at((t + 0.5, 1), (t + 1.5, 2)), sent_at_s=t, closed_at_s=t + 2)) for n, t in ((1, 0.0), (2, 0.5), (3, 2.0))]
    data = stream_data(Read(lines=several), uuid.UUID(int=1), {"w": "Work"})
    assert [r["lane"] for r in data["requests"]] == [0, 1, 0]
    assert (data["n_lanes"], data["by_line"]) == (2, False)
    assert "at most 2 under way at once" in data["notes"][0]
    assert [m[2] for m in data["marks"]] == [2, 2, 2]


def test_one_by_one_each_request_has_a_line_and_what_failed_is_named():
    ran = [
        record(at((1.2, 1), (1.9, 2)), closed_at_s=2.0),
        record([], sent_at_s=3.0, closed_at_s=4.0, failure="probe_timeout", failure_message=sample.NASTY),
    ]
    data = stream_data(Read(lines=list(enumerate(ran, 1))), uuid.UUID(int=1), {})
    assert [(r["lane"], r["failure"], r["first"]) for r in data["requests"]] == [(0, "", 1.2), (1, "probe_timeout", None)]
    assert sample.NASTY not in json.dumps(data)


def test_thousands_of_arrivals_are_thinned():
    many = [
        (n, record(at(*((4 * n + i / 500, 1) for i in range(1500))), sent_at_s=4 * n - 0.1, closed_at_s=4 * n + 3)) for n in range(1, 5)
    ]
    data = stream_data(Read(lines=many), uuid.UUID(int=1), {})
    assert len(data["marks"]) <= 2000
    assert any("arrivals are marked" in note for note in data["notes"])


# --- samples ---


def test_clocks_heat_and_power_of_devices_are_panels_and_phases_are_shaded():
    gpu = {u: DeviceSample(power_w=100.0 + t, clock_mhz=1500 - t, temperature_c=60 + t, used_bytes=2**30) for t in (0,) for u in ("G", "H")}
    samples = [
        Sample(
            at_s=float(t),
            phase="probing",
            rss_bytes=2**20 * t,
            device_bytes={"G": 2**30},
            clock_mhz=1500 - t,
            temperature_c=60.0 + t,
            devices=gpu,
        )
        for t in (1, 2, 3)
    ]
    begun = sample.START
    summary = AttemptSummary(
        attempt_id="a",
        job_id="j",
        trial="t",
        arm="off",
        block=1,
        n=1,
        outcome="ok",
        started_at=begun,
        ended_at=begun + timedelta(seconds=4),
        phases=[("starting", 0.0), ("probing", 0.5)],
    )
    data = samples_data(Read(lines=list(enumerate(samples, 1))), summary, 4.0)
    found = {(p["name"], s["name"]): s["values"] for p in data["panels"] for s in p["series"]}
    assert found["clock", "slowest device"] == [1499, 1498, 1497]
    assert found["heat", "hottest device"] == [61, 62, 63]
    assert found["power", "devices"] == [200, 200, 200]
    assert found["memory", "on devices, the engine's"] == [1024] * 3
    assert found["memory", "on devices, everybody's"] == [2048] * 3
    assert data["phases"] == [["starting", 0.0, 0.5], ["probing", 0.5, 4.0]]
    assert not any("No clock" in note for note in data["notes"])


def test_what_a_host_does_not_tell_is_said_and_phases_come_from_the_samples():
    samples = [Sample(at_s=t / 10, phase="warm-up" if t < 50 else "probing", cpu_percent=float(t % 90)) for t in range(9_000)]
    data = samples_data(Read(lines=list(enumerate(samples, 1)), n_bad=2), None, None)
    assert [p["name"] for p in data["panels"]] == ["load"]
    assert data["phases"] == [["warm-up", 0.0, 5.0], ["probing", 5.0, 899.9]]
    notes = " ".join(data["notes"])
    for said in (
        "No clock was sampled",
        "No temperature was sampled",
        "No power was sampled",
        "9,000 samples.",
        "the least and the greatest",
        "2 lines of samples.jsonl can't be read",
    ):
        assert said in notes
    assert len(data["panels"][0]["series"][0]["at"]) <= 1200
    assert "Nothing was sampled" in samples_data(Read(lines=[(1, samples[0])]), None, None)["empty"]


# --- the page ---


def test_the_page_names_the_request_whose_steps_it_shows(people):
    run = two_trials(people)
    client, attempt = as_user(people.owner), run.attempts[1]
    url = reverse("attempt", args=[attempt.id])
    first = client.get(url).content.decode()
    assert "series/cycles.json?probe=2" in first  # the first that was timed; the one before is warm-up
    chosen = client.get(url + "?probe=3").content.decode()
    assert "series/cycles.json?probe=3" in chosen
    assert '<option value="3" selected>' in chosen
    for odd in ("99", "<script>", "9" * 500):
        page = client.get(url, {"probe": odd}).content.decode()
        assert "series/cycles.json?probe=2" in page
        assert "This trial has no request" in page
        assert "<script>" + "</" not in page


def test_the_page_itself_reads_no_samples_and_no_records(people):
    run = two_trials(people)
    attempt = run.attempts[1]
    for name in ("samples.jsonl", "records.jsonl"):
        Path(stored_at(attempt, name)).unlink()
    page = as_user(people.owner).get(reverse("attempt", args=[attempt.id]))
    assert page.status_code == 200
    assert "series/samples.json" in page.content.decode()
    attempt.evidence.filter(name="samples.jsonl").delete()
    assert "left no samples.jsonl" in as_user(people.owner).get(reverse("attempt", args=[attempt.id])).content.decode()

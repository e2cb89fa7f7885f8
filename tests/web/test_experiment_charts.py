"""An experiment's charts: time split, memory against the card, order of starts; what each is drawn from, what it lacks, who may read it."""

from __future__ import annotations

import statistics
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse
from speccore.inventory import Device, HostInventory
from speccore.measurement import ComparisonResult, JobAnalysis, Withheld, value_of
from speccore.time_split_results import TimePart, TimeSplit

from specweb.dashboard.chart_frame import Chart
from specweb.dashboard.memory_chart import memory_chart
from specweb.dashboard.order_chart import order_data
from specweb.dashboard.time_chart import time_chart
from specweb.results.memory_queries import TrialMemory
from specweb.results.models import Attempt
from specweb.results.order_queries import Start, starts_in_order
from tests.web import sample
from tests.web.pages import POINT, SMALL, as_user, small

GIB = 2**30


@pytest.fixture(autouse=True)
def _evidence_folder(settings, tmp_path: Path) -> None:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path


@pytest.fixture
def people(db) -> sample.People:
    return sample.people()


# --- where the time goes ---


def of(whole: float, *parts: tuple[Any, float], by: Any = "engine", **not_told: str) -> TimeSplit:
    return TimeSplit(
        whole_ms=whole, tokens=100, n_probes=4, prefill_by=by, parts=[TimePart(name=n, ms=ms) for n, ms in parts], not_told=not_told
    )


def drawn(*comparisons: tuple[str, TimeSplit | Withheld, TimeSplit | Withheld]) -> Chart:
    spec = sample.spec(**SMALL)
    found = [
        ComparisonResult.model_construct(arm=arm, mode="draft", point=POINT, arm_time_split=own, baseline_time_split=plain)
        for arm, own, plain in comparisons
    ]
    analysis = JobAnalysis.model_construct(comparisons=found, checks=[], answers=[], attempts_used=[])
    return time_chart(spec, analysis, {POINT: "Counting"}, lambda arm, point, metric: f"/n?arm={arm}#{metric}")


PLAIN = of(2000, ("prefill", 200), ("verify", 1700), ("rest", 100))
FAST = of(1000, ("prefill", 200), ("draft", 100), ("verify", 650), ("rest", 50))


def test_the_baseline_stands_beside_its_arms_and_parts_make_the_whole():
    chart = drawn(("draft-3", FAST, PLAIN), ("draft-8", FAST, PLAIN))
    (group,) = chart.data["groups"]
    assert [r["arm"] for r in group["rows"]] == ["off", "draft-3", "draft-8"]
    assert group["rows"][1]["parts"] == {"prefill": 2, "draft": 1, "verify": 6.5, "rest": 0.5}
    assert sum(group["rows"][1]["parts"].values()) == pytest.approx(1000 / 100)
    assert group["rows"][1]["href"] == "/n?arm=draft-3#time_split"
    assert [k["key"] for k in chart.data["keys"]] == ["prefill", "draft", "verify", "rest"]
    assert chart.table is not None
    assert [c.text for c in chart.table.rows[1]] == ["draft-3, Counting", "2.00", "1.00", "6.50", "0.50", "10.00", "4"]
    assert chart.table.rows[1][2].note == "10\u00a0%"


def test_what_is_withheld_or_not_told_is_said_and_not_drawn():
    silent = of(1000, ("prefill", 200), ("decode", 750), ("rest", 50), draft="vLLM doesn't tell the time of drafting apart")
    impossible = Withheld(withheld="the parts come to more than the whole", reason_code="impossible")
    chart = drawn(("draft-3", silent, PLAIN), ("draft-8", impossible, PLAIN))
    assert [r["arm"] for r in chart.data["groups"][0]["rows"]] == ["off", "draft-3"]
    assert [(lack.what, lack.why) for lack in chart.lacks] == [("draft-8, Counting", "the parts come to more than the whole")]
    assert any("not told apart: vLLM" in note for note in chart.notes)
    none = drawn(("draft-3", impossible, impossible))
    assert not none.is_drawn
    assert "the parts come to more than the whole" in none.empty


def test_times_by_another_clock_get_a_name_and_a_baseline_of_their_own():
    client = of(1000, ("prefill", 300), ("decode", 700), by="client")
    plain = of(2000, ("prefill", 300), ("verify", 1700), by="client")
    chart = drawn(("draft-3", FAST, PLAIN), ("draft-8", client, plain))
    assert [r["arm"] for r in chart.data["groups"][0]["rows"]] == ["off", "off", "draft-3", "draft-8"]
    assert "first" in chart.data["groups"][0]["rows"][1]["parts"]


def test_the_page_draws_what_its_measurements_say(people):
    """By hand from the stored measurements of one arm: sums over its timed requests, ÷ their tokens."""
    run = small(people)
    page = as_user(people.owner).get(reverse("experiment", args=[run.experiment.id]))
    chart = page.context["time_chart"]
    row = next(r for r in chart.data["groups"][0]["rows"] if r["arm"] == "off")
    probes = [
        p
        for a in Attempt.objects.filter(trial__arm__name="off", accepted=True).select_related("measurement")
        for p in a.measurement.parsed.probes
        if not p.warmup and p.ok
    ]
    tokens = sum(value_of(p.completion_tokens) for p in probes)
    assert row["parts"]["prefill"] == pytest.approx(sum(value_of(p.prompt_ms) for p in probes) / tokens, abs=1e-4)
    assert sum(row["parts"].values()) == pytest.approx(1000 * sum(value_of(p.e2e_s) for p in probes) / tokens, abs=1e-3)
    numbers = as_user(people.owner).get(reverse("numbers", args=[run.job.id]) + f"?arm=draft-3&point={POINT}").content.decode()
    assert 'id="time_split"' in numbers
    assert "until the first token" in numbers or "prefill" in numbers


# --- memory ---


def memory(arm: str, parts: dict[Any, float], **more: Any) -> TrialMemory:
    values: dict[str, Any] = {"peak_bytes": None, "context_per_slot": None, "slots": None, "layers_placed": None, "free_bytes": None}
    return TrialMemory(arm, parts, **values | more)


def machine(gib: int, *gpus: int) -> HostInventory:
    devices = [Device(uuid=f"G{i}", kind="gpu", name="NVIDIA Card", memory_bytes=n * GIB) for i, n in enumerate(gpus)]
    return HostInventory.model_construct(memory_bytes=gib * GIB, devices=devices)


CARD = {("target", "weights", True): 10 * GIB, ("target", "cache", True): 2 * GIB, ("target", "weights", False): GIB / 2}


def test_on_a_card_only_what_lies_on_it_is_held_against_its_memory():
    trials = [memory("off", CARD, held_bytes=13 * GIB), memory("draft-3", CARD | {("draft", "weights", True): GIB}, held_bytes=15 * GIB)]
    chart = memory_chart(sample.spec(**SMALL), trials, machine(64, 24))
    rows = chart.data["groups"][0]["rows"]
    assert rows[0]["parts"] == {"target-weights": 10, "target-cache": 2}
    assert rows[1]["parts"]["draft-weights"] == 1
    assert [r["mark"] for r in rows] == [13, 15]
    assert chart.data["line"] == {"value": 24, "name": "24.0 GiB on NVIDIA Card"}
    assert chart.title == "Memory against the card’s"
    assert any("512 MiB that it holds in the host’s memory besides" in note for note in chart.notes)
    assert any("62 % of the 24.0 GiB on NVIDIA Card" in note for note in chart.notes)


def test_on_processors_the_machine_s_memory_takes_the_card_s_place():
    trials = [memory("off", {("target", "weights", False): 100 * 2**20}, peak_bytes=150 * 2**20)]
    chart = memory_chart(sample.spec(**SMALL), trials, machine(24))
    assert chart.data["unit"] == "MiB"
    assert chart.data["line"] is None  # it lies so far right that no bar could be seen
    notes = " ".join(chart.notes)
    assert "computes on the processors" in notes
    assert "0.6 % of the 24.0 GiB of memory in the machine; their end lies far beyond" in notes
    assert [(lack.what, lack.why) for lack in chart.lacks] == [("draft-3", "no trial of it tells its memory")]


def test_an_engine_that_tells_no_parts_has_its_peak_alone_and_nothing_is_a_sentence():
    peak = [memory("off", {}, peak_bytes=20.0 * GIB, held_bytes=20.0 * GIB)]
    assert memory_chart(sample.spec(**SMALL), peak, machine(64, 24)).data["groups"][0]["rows"][0]["parts"] == {"peak": 20}
    unknown = memory_chart(sample.spec(**SMALL), peak, None)
    assert unknown.data["line"] is None
    assert any("the host doesn’t tell" in note for note in unknown.notes)
    nothing = memory_chart(sample.spec(**SMALL), [memory("off", {})], machine(64, 24))
    assert not nothing.is_drawn
    assert "No trial tells" in nothing.empty


# --- order of starts ---


def start(place: int, arm: str, speed: float | None, **more: Any) -> Start:
    values: dict[str, Any] = {"accepted": True, "void_reason": "", "outcome": "ok", "clock_mhz": None, "temperature_c": None}
    values |= {"started_at": sample.START, "speeds": {} if speed is None else {"count": speed}, "block": (place + 1) // 2}
    return Start(attempt=uuid.UUID(int=place), number=place, arm=arm, mode="off" if arm == "off" else "draft", **values | more)


def test_each_start_stands_against_the_median_of_its_arm():
    speeds = [100, 200, 98, 196, 96, 192]
    data = order_data([start(i, "off" if i % 2 else "draft-3", s) for i, s in enumerate(speeds, 1)], {"count": "Counting"})
    assert [s["percent"] for s in data["starts"]] == pytest.approx(
        [100 * (s / m - 1) for s, m in zip(speeds, [98, 196] * 3, strict=True)], abs=0.01
    )
    assert data["blocks"] == [[1, 1, 2], [2, 3, 4], [3, 5, 6]]
    assert "falls by" in data["notes"][1]
    assert data["line"][0][1] > data["line"][1][1]
    assert data["starts"][0]["speeds"] == ["Counting: 100.0 tokens/s"]
    assert data["table"]["rows"][0][:4] == ["1: off", "1", "+2.0", "100.0"]


def test_what_does_not_count_is_kept_out_of_the_median_and_hollow():
    ran = [
        start(1, "off", 100.0),
        start(2, "off", 10.0, accepted=False, void_reason="the host slept"),
        start(3, "off", None, accepted=False, outcome="failed"),
    ]
    data = order_data(ran, {})
    assert [(s["counts"], s["percent"], s["fate"]) for s in data["starts"]] == [
        (True, 0, "counts"),
        (False, -90, "void: the host slept"),
        (False, None, "failed"),
    ]
    assert data["notes"][0] == "3 starts, of which 2 are not counted: hollow and crossed."
    assert data["line"] is None


def test_clocks_and_heat_run_along_or_the_reason_is_told():
    ran = [start(i, "off", 100.0, clock_mhz=(1400.0, 1500.0 + i), temperature_c=60.0 + i) for i in (1, 2)]
    data = order_data(ran, {})
    assert [(s["clock"], s["heat"]) for s in data["starts"]] == [([1400, 1501], 61), ([1400, 1502], 62)]
    assert not any("was sampled" in note for note in data["notes"])
    assert "No clock was sampled" in " ".join(order_data([start(1, "off", 100.0)], {})["notes"])
    assert "No start" in order_data([start(1, "off", None)], {})["empty"]
    assert "Nothing was started" in order_data([], {})["empty"]


def test_thousands_of_starts_are_thinned():
    data = order_data([start(i, "off", 100.0 + i % 10) for i in range(1, 5001)], {})
    assert len(data["starts"]) <= 2000
    assert any("of 5,000 are drawn" in note for note in data["notes"])
    assert len(data["table"]["rows"]) == 400


def test_the_order_is_read_from_what_came_back_and_only_by_whom_the_job_is(people, django_assert_num_queries):
    run = small(people)
    url = reverse("order", args=[run.job.id])
    answers = [as_user(user).get(url).status_code for user in (people.owner, people.mate, people.stranger, None)]
    assert answers == [200, 200, 404, 302]
    data = as_user(people.mate).get(url).json()
    assert [s["number"] for s in data["starts"]] == [t.index + 1 for t in run.plan.trials]
    with django_assert_num_queries(2):
        ran = starts_in_order(run.job)
    own = run.attempts[0]
    assert ran[0].attempt == own.id
    probes = [p for p in own.measurement.parsed.probes if not p.warmup]
    assert ran[0].speeds[POINT] == pytest.approx(statistics.fmean(value_of(p.decode_tokens_per_s) for p in probes))


def test_an_unchanged_order_is_told_by_its_tag_and_a_changed_one_has_another(people):
    run = small(people)
    client, url = as_user(people.owner), reverse("order", args=[run.job.id])
    tag = client.get(url)["ETag"]
    assert client.get(url, HTTP_IF_NONE_MATCH=tag).status_code == 304
    Attempt.objects.filter(pk=run.attempts[0].pk).update(accepted=False, void_reason="torn")
    changed = client.get(url, HTTP_IF_NONE_MATCH=tag)
    assert changed.status_code == 200
    assert changed["ETag"] != tag
    assert changed.json()["starts"][0]["fate"] == "void: torn"


# --- the page ---


def test_the_page_has_the_charts_and_asks_for_the_order_only_when_it_is_looked_at(people):
    run = small(people)
    page = as_user(people.owner).get(reverse("experiment", args=[run.experiment.id])).content.decode()
    for part in ('id="time-split"', 'id="memory-bill"', 'id="order-of-starts"', f'data-source="/jobs/{run.job.id}/order.json"'):
        assert part in page
    assert 'id="order-of-starts-data"' not in page
    assert "started by somebody else" not in page

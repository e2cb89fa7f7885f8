"""Charts of Compare: what may stand in one line, what is drawn, what is lacking and why, and what is told where nothing can be drawn."""

from __future__ import annotations

import html
import json
import re
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.template.loader import render_to_string
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from speccore.measurement import Number, Source, Withheld

from specweb.accounts.models import User
from specweb.dashboard import compare_charts, compare_charts_lines, compare_charts_worth
from specweb.dashboard.chart_frame import file_stem
from specweb.experiments.models import Arm, Experiment, Point, Visibility, Workload
from specweb.results import chart_queries
from specweb.results.chart_queries import CONCURRENCY, CONTEXT, DRAFT_LIMIT, ChartRow, line_key, panel_key
from specweb.results.compare_queries import ROW
from specweb.results.models import Comparison, Listing
from tests.core import made
from tests.web import charted, sample
from tests.web.pages import as_user, with_role

XEON, CARD = "CPU · Intel Xeon, 2 cores", "1 × NVIDIA GeForce GTX 1060"


@pytest.fixture
def who(db: Any) -> sample.People:
    return sample.people()


def page(user: User | None, **query: Any) -> str:
    answer = as_user(user).get(reverse("compare-charts"), query)
    assert answer.status_code == 200
    return answer.content.decode()


def drawn(text: str, name: str) -> Any:
    found = re.search(rf'<script id="{name}-data" type="application/json">(.*?)</script>', text, re.S)
    return json.loads(found[1]) if found else None


def section(text: str, name: str) -> str:
    """A chart with all around it, as text without tags."""
    part = text.partition(f'aria-labelledby="h-{name}"')[2].partition("</section>")[0]
    return " ".join(html.unescape(re.sub(r"<script.*?</script>|<[^>]+>", " ", part, flags=re.S)).split())


# --- the rule ---


def row(*, question: dict[str, Any] | None = None, further: dict[str, Any] | None = None, **columns: Any) -> ChartRow:
    """A row as it would be read, from no database."""
    fields = {
        "target": "t" * 64,
        "engine": "llama-server",
        "workload": "w" * 64,
        "settings.context": 4096,
        "point.concurrency": 1,
        "point.occupied_context": 0,
        "point.max_tokens": 64,
        "arm.mode": "draft",
        "arm.draft": "d" * 64,
        "arm.draft_limit": 4,
    } | (question or {})
    values: dict[str, Any] = {
        "hardware": XEON,
        "build": "b1",
        "backend": "cpu",
        "driver": "",
        "setup": "",
        "not_restarted": False,
        "self_run": False,
        "judged": True,
        "mode": "draft",
        "title": "Counting",
        "target": "demo",
        "target_hash": "t" * 64,
        "margin": 0.03,
        "figures": {},
        "concurrency": fields["point.concurrency"],
        "occupied_context": fields["point.occupied_context"],
        "draft_limit": fields.get("arm.draft_limit"),
    }
    speedup, low, high = columns.pop("ratio", (1.5, 1.4, 1.6))
    arm, point = Arm(name="the-arm"), Point(workload=Workload(name="count"))
    comparison = Comparison(job_id=UUID(int=1), arm=arm, point=point, speedup=speedup, ci_low=low, ci_high=high, n_blocks=3, verdict="keep")
    return ChartRow(Listing(question=fields, comparison=comparison, **(values | columns)), further or {})


@pytest.mark.parametrize("axis", [DRAFT_LIMIT, CONCURRENCY, CONTEXT])
def test_a_line_joins_rows_that_differ_in_its_axis_alone(axis: str) -> None:
    one = row()
    assert line_key(one.shown, axis) == line_key(row(question={axis: 8}).shown, axis)
    others = {name: 16384 if isinstance(value, int) else "other" for name, value in one.shown.question.items() if name != axis}
    for name, value in (others | {"point.warm": True, "arm.p_min": 0.75, "settings.kv_type_k": "q8_0"}).items():
        assert line_key(one.shown, axis) != line_key(row(question={axis: 8, name: value}).shown, axis), name
    for name in ROW:
        value = True if isinstance(getattr(one.shown, name), bool) else "other"
        assert line_key(one.shown, axis) != line_key(row(question={axis: 8}, **{name: value}).shown, axis), name


def test_a_panel_holds_one_work_whoever_drafts_and_wherever() -> None:
    one = row().shown
    assert panel_key(one) == panel_key(row(question={"arm.mode": "mtp", "arm.draft_limit": 9}, hardware=CARD, build="b2").shown)
    for name in ("target", "engine", "workload", "settings.context", "point.max_tokens", CONCURRENCY, CONTEXT):
        assert panel_key(one) != panel_key(row(question={name: "other"}).shown), name


# --- crossing 1 ---


def line(*ratios: tuple[float, float | None, float | None]) -> list[ChartRow]:
    return [row(question={CONCURRENCY: 2**i}, ratio=ratio) for i, ratio in enumerate(ratios)]


FASTER, SLOWER, OPEN, NO_INTERVAL = (1.5, 1.4, 1.6), (0.8, 0.7, 0.9), (1.0, 0.9, 1.1), (1.5, None, None)


@pytest.mark.parametrize(
    ("ratios", "told"),
    [
        ((FASTER, SLOWER), "faster at 1 at once, slower at 2: it crosses 1 between them."),
        ((FASTER, OPEN, SLOWER), "faster at 1 at once, slower at 4: it crosses 1 between them (at 2 the interval holds 1)."),
        ((FASTER, FASTER, FASTER), "faster at all that was measured, 1 to 4 at once."),
        ((SLOWER, FASTER, SLOWER), "slower at 1 at once, faster at 2: it crosses 1 between them; faster at 2 at once, slower at 4"),
        ((FASTER, FASTER, OPEN), "faster at 1 and 2 at once; at 4 the interval holds 1."),
    ],
)
def test_where_a_line_crosses_one_is_told_where_intervals_allow_it(ratios: Any, told: str) -> None:
    assert compare_charts_lines.crossing("Xeon", "Counting", line(*ratios)).startswith(f"Xeon, Counting: {told}")


def test_nothing_is_told_of_a_line_whose_intervals_hold_one_or_are_withheld() -> None:
    assert compare_charts_lines.crossing("Xeon", "Counting", line(OPEN, NO_INTERVAL)) == ""
    assert "crosses" not in compare_charts_lines.crossing("Xeon", "Counting", line(FASTER, (0.8, None, None)))


def test_a_crossing_stands_below_the_chart_of_requests_at_once() -> None:
    view = compare_charts.view_of(line(FASTER, OPEN, SLOWER), {})
    chart = compare_charts_lines.ratios(view, compare_charts_lines.AT_ONCE)
    (note,) = chart.notes
    assert "it crosses 1 between them (at 2 the interval holds 1)" in note
    assert [(p["x"], p["text"]) for p in chart.data["panels"][0]["series"][0]["points"]] == [(0, "1.50×"), (1, "1.00×"), (2, "0.80×")]
    assert note in html.unescape(render_to_string("dashboard/_chart.html", {"chart": chart}))
    alone = compare_charts_lines.ratios(view, compare_charts_lines.DRAFTS)
    assert not alone.is_drawn
    assert not alone.notes


def test_nothing_occupied_stands_at_the_left_edge_and_keeps_its_name() -> None:
    view = compare_charts.view_of([row(question={CONTEXT: n}) for n in (0, 1024, 8192)], {})
    (panel,) = compare_charts_lines.ratios(view, compare_charts_lines.OCCUPIED).data["panels"]
    assert [(t["at"], t["text"]) for t in panel["ticks"]] == [(9, "0"), (10, "1,024"), (13, "8,192")]


def test_rows_of_another_setting_make_another_line_or_are_named() -> None:
    rows = [row(question={DRAFT_LIMIT: 2}), row(question={DRAFT_LIMIT: 4}), row(question={DRAFT_LIMIT: 8}, setup="threads 3")]
    chart = compare_charts_lines.ratios(compare_charts.view_of(rows, {}), compare_charts_lines.DRAFTS)
    (panel,) = chart.data["panels"]
    assert [[p["x"] for p in s["points"]] for s in panel["series"]] == [[1, 2]]
    (lack,) = chart.lacks
    assert "threads 3" in lack.what
    assert "differs in the draft limit alone" in lack.why


def test_lines_of_one_chart_never_look_alike_and_too_many_are_told() -> None:
    rows = [
        row(question={DRAFT_LIMIT: n, "arm.p_min": p}, hardware=f"Card {h}")
        for n in (2, 4)
        for h in range(4)
        for p in (0.1, 0.2, 0.3, 0.4, 0.5)
    ]
    chart = compare_charts_lines.ratios(compare_charts.view_of(rows, {}), compare_charts_lines.DRAFTS)
    lines = chart.data["lines"]
    assert len(lines) == compare_charts.MOST_LINES
    looks = [(entry["mode"], entry["dash"]) for entry in lines[: len(compare_charts.DASHES)]]
    assert len(set(looks)) == len(looks)
    assert any("more lines than can be told apart" in lack.why for lack in chart.lacks)


# --- what a row needs ---


def figures(length: float, per_pass: float) -> dict[str, Any]:
    return {"mean_acceptance_length": {"value": length}, "tokens_per_target_pass": {"value": per_pass}}


def needs(value: float) -> dict[str, Any]:
    return {"break_even_tokens_per_pass": Number(value=value, source=Source(file=""))}


def test_break_even_is_drawn_where_length_and_tokens_per_pass_are_one_number() -> None:
    draft = row(figures=figures(3.0, 3.0), further=needs(1.6))
    ngram = row(figures=figures(4.0, 1.2), further=needs(1.1), mode="ngram", question={"arm.mode": "ngram"})
    unknown = row(figures=figures(2.0, 2.0), further={"break_even_tokens_per_pass": Withheld(withheld="no cycle was timed")}, hardware=CARD)
    chart = compare_charts_worth.worth(compare_charts.view_of([draft, ngram, unknown], {}))
    points = [p for panel in chart.data["panels"] for p in panel["points"]]
    assert [p["needs"] for p in points] == [1.6, None, None]
    assert [p["place"] for p in points] == ["A", "A", "B"]
    assert chart.table
    notes = [cells[5].note for cells in chart.table.rows]
    assert notes[0] == ""
    assert "drafts in some steps only" in notes[1]
    assert notes[2] == "no cycle was timed"


def test_what_judges_no_ratio_is_named_and_not_drawn() -> None:
    lost = row(figures=figures(3.0, 3.0), judged=False, hardware=CARD)
    lost.shown.comparison.verdict, lost.shown.comparison.reason = "invalid", "probe_failures"
    rows = [row(figures=figures(3.0, 3.0)), row(figures=figures(2.0, 2.0), question={DRAFT_LIMIT: 2}), lost]
    chart = compare_charts_worth.worth(compare_charts.view_of(rows, {}))
    assert sum(len(p["points"]) for p in chart.data["panels"]) == 2
    (lack,) = chart.lacks
    assert lack.why.startswith("invalid")
    assert "GTX 1060" in lack.what


def test_one_point_is_no_chart_and_the_sentence_says_what_to_measure() -> None:
    chart = compare_charts_worth.worth(compare_charts.view_of([row(figures=figures(3.0, 3.0))], {}, ask="/experiments/new?from=x"))
    assert not chart.is_drawn
    assert chart.table is None
    assert "Measure another arm" in chart.empty
    assert chart.remedy_href == "/experiments/new?from=x"


def test_speeds_are_joined_within_a_pair_key_only() -> None:
    speeds = {"arm_tokens_per_s": {"value": 60.0}, "baseline_tokens_per_s": {"value": 40.0}}
    rows = [row(question={CONTEXT: n}, figures=speeds, pair_key=key) for n, key in ((0, "one"), (1024, "one"), (4096, "two"))]
    rows.append(
        row(
            question={CONTEXT: 8192},
            figures={"arm_tokens_per_s": {"value": 50.0}, "baseline_tokens_per_s": {"withheld": "lost"}},
            pair_key="two",
        )
    )
    chart = compare_charts_lines.speeds_by_context(compare_charts.view_of(rows, {}))
    (panel,) = chart.data["panels"]
    names = [chart.data["lines"][s["line"]]["mode"] for s in panel["series"]]
    assert list(zip(names, [len(s["points"]) for s in panel["series"]], strict=True)) == [
        ("off", 2),
        ("off", 1),
        ("draft", 2),
        ("draft", 2),
    ]
    assert [lack.why for lack in chart.lacks] == ["lost"]


# --- the page ---


def test_curves_of_two_hosts_with_their_table_and_what_is_not_in_them(who: sample.People) -> None:
    charted.limits(who, sample.host_with_inventory(who.team), (1.3, 1.6, 1.4))
    charted.limits(who, charted.card_host(who.team, "old", "NVIDIA GeForce GTX 1060"), (1.2, 0.95, 0.7))
    charted.run(who, charted.card_host(who.team, "lone", "NVIDIA T4"), {"off": 1.0, "draft-4": 1.1})
    text = page(who.owner)
    data = drawn(text, "by-limit")
    (panel,) = data["panels"]
    by_label = {data["lines"][s["line"]]["label"]: [(p["x"], p["text"]) for p in s["points"]] for s in panel["series"]}
    assert {label.partition(" · ")[0]: points for label, points in by_label.items()} == {
        "Intel Xeon, 2 cores": [(1, "1.30×"), (2, "1.60×"), (3, "1.40×")],
        "GeForce GTX 1060": [(1, "1.20×"), (2, "0.95×"), (3, "0.70×")],
    }
    said = section(text, "by-limit")
    assert "Not in this chart: 1 row" in said
    assert "T4" in said
    assert said.count("draft · demo-draft") >= 6  # the table behind it
    assert f"{reverse('experiment-new')}?from=" in text  # what the page can't draw is asked from the form
    assert "A line needs one arm at two concurrencies" in section(text, "by-concurrency")
    assert "2,048" not in drawn(text, "worth")["panels"][0]["detail"]


def test_memory_stands_against_the_card_and_without_one_it_says_so(who: sample.People) -> None:
    charted.limits(who, charted.card_host(who.team, "old", "NVIDIA GeForce GTX 1060"), change=charted.on_card(3000, 3600))
    charted.run(who, sample.host_with_inventory(who.team), {"off": 1.0, "draft-4": 1.5})
    text = page(who.owner)
    groups = {g["where"]: g for g in drawn(text, "memory-bill")["groups"]}
    card, cpu = groups["GeForce GTX 1060"], groups["Intel Xeon, 2 cores"]
    assert card["card"] == 6 * 2**30
    assert [(r["baseline"], r["growth"]) for r in card["rows"]] == [(3000 * 2**20, 600 * 2**20)] * 3
    assert cpu["card"] is None
    assert "no card" in cpu["of"]
    assert [(r["baseline"], r["growth"]) for r in cpu["rows"]] == [(100 * 2**20, 9 * 2**20)]
    assert "none where a host has no card" in section(text, "memory-bill")


def test_what_a_team_measured_is_in_nobody_else_s_charts(who: sample.People) -> None:
    job = charted.limits(who, sample.host_with_inventory(who.team))
    assert drawn(page(who.mate), "by-limit")
    for outsider in (who.stranger, None):
        text = page(outsider)
        assert "There is nothing to draw" in text
        assert "demo-target" not in text
    Experiment.objects.filter(pk=job.experiment_id).update(visibility=Visibility.PUBLIC)
    assert drawn(page(None), "by-limit") == drawn(page(who.owner), "by-limit")
    assert "/experiments/new?from=" not in page(None)
    assert "/experiments/new?from=" not in page(with_role(who.team, "viewer"))


def test_filters_are_those_of_the_tables_and_what_names_nothing_is_told(who: sample.People) -> None:
    charted.limits(who, sample.host_with_inventory(who.team))
    charted.limits(who, charted.card_host(who.team, "old", "NVIDIA GeForce GTX 1060"))
    assert len(drawn(page(who.owner), "by-limit")["lines"]) == 2
    only = drawn(page(who.owner, hardware=CARD), "by-limit")["lines"]
    assert [entry["label"].partition(" · ")[0] for entry in only] == ["GeForce GTX 1060"]
    for name, value in (("work", "deleted@9"), ("concurrency", "many"), ("mode", "\x00<b>"), ("hardware", "<script>alert(1)</script>")):
        text = page(who.owner, **{name: value})
        assert "names nothing" in text, name
        assert "<script>alert" not in text
        assert drawn(text, "by-limit") is None


def test_charts_cost_the_same_however_many_rows_there_are(who: sample.People) -> None:
    host = sample.host_with_inventory(who.team)
    charted.run(who, host, {"off": 1.0, "draft-4": 1.5})

    def statements() -> int:
        client = as_user(who.owner)
        with CaptureQueriesContext(connection) as captured:
            assert client.get(reverse("compare-charts")).status_code == 200
        return len(captured)

    before = statements()
    charted.limits(who, host, points=[{"workload": "count"}, {"workload": "free-text"}])
    charted.limits(who, charted.card_host(who.team, "old", "NVIDIA GeForce GTX 1060"))
    assert statements() == before
    assert before <= 12


def test_more_rows_than_charts_hold_are_told(who: sample.People, monkeypatch: pytest.MonkeyPatch) -> None:
    charted.limits(who, sample.host_with_inventory(who.team))
    monkeypatch.setattr(chart_queries.rows, "__defaults__", (2,))
    text = page(who.owner)
    assert "The charts hold the first 2 rows" in text
    assert len(drawn(text, "by-limit")["panels"][0]["series"][0]["points"]) == 2


def test_a_saved_chart_has_a_name_that_every_system_takes() -> None:
    assert file_stem(["Speed-up by draft limit", "demo-target"]) == "specweb-speed-up-by-draft-limit-demo-target"
    odd = file_stem(["Überlanger Name", "عنوان 🚀 ../../etc", "x" * 200])
    assert re.fullmatch(r"[a-z0-9-]{10,80}", odd)


def test_names_of_any_kind_are_escaped_where_they_stand(who: sample.People) -> None:
    charted.limits(who, charted.card_host(who.team, "odd", "<b>Karte</b> & عنوان 🚀 " + "y" * 150))
    text = page(who.owner)
    assert "<b>Karte" not in text
    assert drawn(text, "by-limit")["lines"][0]["label"].startswith("<b>Karte</b> & عنوان 🚀")


def test_the_newest_that_was_judged_stands_for_a_row_as_in_the_tables(who: sample.People) -> None:
    host = sample.host_with_inventory(who.team)
    charted.limits(who, host, (1.3, 1.6, 1.4), days=2)
    charted.limits(who, host, (1.1, 1.2, 1.15), days=1)
    data = drawn(page(who.owner), "by-limit")
    assert [[p["text"] for p in s["points"]] for s in data["panels"][0]["series"]] == [["1.10×", "1.20×", "1.15×"]]


def test_a_figure_that_an_older_analysis_lacks_is_withheld_and_no_zero() -> None:
    assert isinstance(chart_queries.figure_of(None), Withheld)
    assert isinstance(chart_queries.figure_of({"withheld": "why", "reason_code": "x"}), Withheld)
    read = chart_queries.figure_of(made.number(1.5).model_dump(mode="json"))
    assert isinstance(read, Number)
    assert read.value == 1.5

"""A control arm on an experiment's page: what compares drafts has no place for it."""

from __future__ import annotations

from speccore.compare import JobFacts, analyse_job
from speccore.measurement import Number

from specweb.dashboard import break_even, charts
from specweb.dashboard.comparison_table import BREAK_EVEN, COLUMNS, groups
from tests.core import made


def test_a_control_has_no_break_even_and_no_mark() -> None:
    draft = {"name": "draft-4", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 4}
    spec = made.spec_of(draft, {"name": "again", "mode": "off", "control": True}, blocks=3)
    plan = made.planned(spec)
    analysis = analyse_job(spec, plan, made.attempts(spec, plan, {"off": 1.0, "draft-4": 2.0, "again": 1.0}), [], JobFacts())
    control = next(c for c in analysis.comparisons if c.arm == "again")
    per_pass = next(c for c in analysis.comparisons if c.arm == "draft-4").tokens_per_target_pass
    assert isinstance(per_pass, Number)
    known = control.model_copy(update={"tokens_per_target_pass": per_pass, BREAK_EVEN: per_pass})
    analysis = analysis.model_copy(update={"comparisons": [known if c.arm == "again" else c for c in analysis.comparisons]})

    (group,) = groups(spec, analysis, {}, lambda *_: "")
    column = [c.metric for c in COLUMNS].index(BREAK_EVEN)
    assert {row.arm: bool(row.cells[column].text) for row in group.rows} == {"off": False, "draft-4": True, "again": False}
    (panel,) = charts.scatter(spec, analysis, {}, lambda *_: "")["panels"]
    assert [p["arm"] for p in panel["points"]] == ["draft-4"]
    assert [row.arm for row in break_even.break_even_rows(spec, analysis, {}, lambda *_: "")] == ["draft-4"]

"""The metric table: whole, used, and the same in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest
from speccore.compare import JobFacts, analyse_job
from speccore.measurement import ComparisonResult, Counters, ProbeMeasurement
from speccore.metric import Metric
from speccore.metrics import METRICS, markdown_table

from tests.core.made import attempts, planned, spec_of

DOCS = (Path(__file__).parents[2] / "docs" / "measurement.md").read_text()


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_each_metric_stands_in_the_docs(metric: Metric) -> None:
    row = next(line for line in DOCS.splitlines() if f"`{metric.definition_id}`" in line)
    assert metric.definition in row
    assert metric.name in row
    assert metric.definition.endswith(".")
    assert metric.version >= 1


def test_the_docs_hold_the_table_as_it_is() -> None:
    assert markdown_table() in DOCS


def test_every_number_that_is_shown_has_a_definition() -> None:
    """Numbers of probes, counters and comparisons; those of an arm or baseline go by the metric's own name."""
    for model in (ProbeMeasurement, Counters, ComparisonResult):
        for name, field in model.model_fields.items():
            if "Withheld" not in str(field.annotation):
                continue
            plain = name.removeprefix("arm_").removeprefix("baseline_")
            plain = {"tokens_per_s": "decode_tokens_per_s", "tokens": "completion_tokens"}.get(plain, plain)
            assert plain in METRICS or name in (
                "server_tokens",
                "leave_one_prompt_out",
                "variation",
                "tails",
                "agreement",
                "own_agreement",
            ), name


@pytest.mark.parametrize(
    ("metric", "value", "shown"),
    [
        ("speedup", 1.906, "1.91"),
        ("acceptance_rate", 0.7834, "78"),
        ("memory_bill_bytes", 9.4 * 2**20, "+9"),
        ("memory_bill_bytes", 1130 * 2**20, "+1,130"),
        ("memory_bill_bytes", -(2**20), "-1"),
        ("memory_bill_bytes", -(2**18), "+0"),
        ("noise_floor", 0.0123, "1.2"),
        ("completion_tokens", 64.0, "64"),
    ],
)
def test_values_are_shown_in_their_unit(metric: str, value: float, shown: str) -> None:
    assert METRICS[metric].show(value) == shown


def test_every_check_is_named_in_the_docs() -> None:
    spec = spec_of(blocks=3)
    plan = planned(spec)
    analysis = analyse_job(spec, plan, attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}), [], JobFacts())
    names = {c.name for c in [*analysis.checks, *analysis.comparisons[0].checks]}
    assert len(names) == 14 + 10
    rows = "\n".join(line for line in DOCS.splitlines() if line.startswith("|"))
    assert {name for name in names if name not in rows} == set()

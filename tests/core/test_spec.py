"""What people may ask for, and what they read when they can't."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from speccore.spec import ExperimentSpec, SpecProblem, parse_spec

OFF = {"name": "off", "mode": "off"}
DRAFT = {"name": "d", "mode": "draft", "draft_model": "x", "draft_limit": 4}
GOOD: dict[str, Any] = {"name": "t", "target": {"model": "m"}, "arms": [OFF, DRAFT], "points": [{"workload": "count"}]}


def problems(**changes: Any) -> list[SpecProblem]:
    spec, found = parse_spec(copy.deepcopy(GOOD) | changes)
    assert (spec is None) == bool(found)
    return found


def test_a_minimal_experiment_has_the_users_defaults() -> None:
    spec, found = parse_spec(GOOD)
    assert found == []
    assert isinstance(spec, ExperimentSpec)
    assert (spec.blocks, spec.margin, spec.baseline.name, spec.points[0].key) == (5, 0.03, "off", "count/c1/ctx0/t0")
    assert not spec.engine.prefix_cache


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"arms": [DRAFT, DRAFT | {"name": "e"}]}, "", "no baseline: add one arm with mode off"),
        ({"arms": [OFF, OFF | {"name": "off2"}]}, "", "2 baselines (off, off2): keep one arm with mode off, mark others control: true"),
        ({"arms": [OFF, DRAFT, DRAFT]}, "", "arm 'd' is there twice"),
        ({"arms": [OFF]}, "arms", "at least 2"),
        ({"arms": "off"}, "arms", "list"),
        ({"arms": [OFF, DRAFT | {"draft_limit": 0}]}, "arms.1.draft_limit", "greater than or equal to 1"),
        ({"arms": [OFF, DRAFT | {"draft_limit": 3, "draft_min": 4}]}, "arms.1", "draft_min 4 is over draft_limit 3"),
        ({"arms": [OFF, DRAFT | {"draft_model": None}]}, "arms.1", "arm 'd' has mode draft and needs draft_model"),
        ({"arms": [OFF, DRAFT | {"mode": "drafts"}]}, "arms.1.mode", "unknown speculation mode 'drafts' (did you mean 'draft'?)"),
        ({"arms": [OFF | {"draft_limit": 3}, DRAFT]}, "arms.0", "arm 'off' has mode off and can't have draft_limit"),
        ({"arms": [OFF, DRAFT | {"control": True}]}, "arms.1", "only an arm with mode off can be a control"),
        ({"arms": [OFF, DRAFT | {"name": "<b>"}]}, "arms.1.name", "pattern"),
        ({"arms": [OFF, DRAFT | {"draftlimit": 4}]}, "arms.1.draftlimit", "unknown key 'draftlimit' (did you mean 'draft_limit'?)"),
        ({"blcoks": 3}, "blcoks", "unknown key 'blcoks' (did you mean 'blocks'?)"),
        ({"engine": {"contxt": 3}}, "engine.contxt", "unknown key 'contxt' (did you mean 'context'?)"),
        ({"blocks": 0}, "blocks", "greater than or equal to 1"),
        ({"blocks": 101}, "blocks", "less than or equal to 100"),
        ({"blocks": "five"}, "blocks", "integer"),
        ({"margin": math.nan}, "margin", "less than or equal to 1"),
        ({"seed": -1}, "seed", "greater than or equal to 0"),
        ({"version": 2}, "version", "1"),
        ({"target": {}}, "target.model", "is required"),
        ({"points": []}, "points", "at least 1"),
        ({"points": [{"workload": "count"}] * 2}, "", "point 'count/c1/ctx0/t0' is there twice"),
        ({"points": [{"workload": "count", "concurrency": 4}]}, "", "point 'count/c4/ctx0/t0' needs 4 slots, engine.slots is 1"),
        ({"points": [{"workload": "count", "max_tokens": 1}]}, "points.0.max_tokens", "greater than or equal to 2"),
        ({"points": [{"workload": "count", "sampling": {"temperature": "hot"}}]}, "points.0.sampling.temperature", "number"),
        ({"engine": {"extra": {"-ngl": 3}}}, "engine.extra", "'-ngl' is no long flag such as --override-tensor"),
        ({"engine": {"extra": {"--x; rm -rf /": 3}}}, "engine.extra", "is no long flag"),
        ({"engine": {"extra": {"--rope-scale": math.inf}}}, "engine.extra", "--rope-scale is inf: a number must be finite"),
        ({"engine": {"extra": {"--tensor-split": [1.0, math.nan]}}}, "engine.extra", "a number must be finite"),
    ],
)
def test_bad_input_is_refused_in_words(changes: dict[str, Any], field: str, words: str) -> None:
    (problem,) = problems(**changes)
    assert problem.field == field
    assert words in problem.message


def test_every_fault_is_told_at_once_with_its_value() -> None:
    found = problems(blocks=0, seed=-1, engine={"slots": 0})
    assert {(p.field, p.value) for p in found} == {("blocks", "0"), ("seed", "-1"), ("engine.slots", "0")}


@pytest.mark.parametrize(("data", "kind"), [([1], "a list"), ("x", "a text"), (None, "nothing"), (3, "a number")])
def test_what_is_no_mapping_is_told_so(data: Any, kind: str) -> None:
    spec, found = parse_spec(data)
    assert spec is None
    assert found[0].message == f"an experiment is a mapping of keys, not {kind}"


def test_yaml_reads_a_bare_off_as_false() -> None:
    spec, found = parse_spec(GOOD | {"arms": [{"name": "none", "mode": False}, DRAFT]})
    assert found == []
    assert spec is not None
    assert spec.baseline.name == "none"


def test_equal_experiments_have_one_hash_whatever_is_spelled_out() -> None:
    short, _ = parse_spec(GOOD)
    spelled, _ = parse_spec(dict(reversed(GOOD.items())) | {"blocks": 5, "margin": 0.03})
    other, _ = parse_spec(GOOD | {"blocks": 6})
    assert short is not None
    assert spelled is not None
    assert other is not None
    assert short.spec_hash() == spelled.spec_hash() != other.spec_hash()

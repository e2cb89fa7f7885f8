"""An arm with lists in its axes stands for one arm for each combination, and faults name what was written."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.spec import parse_spec
from speccore.sweeps import MAX_ARMS, swept
from speccore.yamltext import read_yaml

OFF = {"name": "off", "mode": "off"}


def experiment(*arms: dict[str, Any]) -> dict[str, Any]:
    return {"name": "x", "target": {"model": "t"}, "arms": [OFF, *arms], "points": [{"workload": "count"}]}


def draft(**rest: Any) -> dict[str, Any]:
    return {"name": "d", "mode": "draft", "draft_model": "small", **rest}


def problems(*arms: dict[str, Any]) -> list[tuple[str, str]]:
    spec, found = parse_spec(experiment(*arms))
    assert spec is None
    return [(p.field, p.message) for p in found]


def names(*arms: dict[str, Any]) -> list[str]:
    spec, found = parse_spec(experiment(*arms))
    assert spec is not None, found
    return [a.name for a in spec.arms]


def test_lists_make_their_product_the_last_axis_fastest() -> None:
    spec, _ = parse_spec(experiment(draft(name="draft-{draft_limit}", draft_limit=[1, 2, 4], p_min=[0, 0.5])))
    assert spec is not None
    assert [(a.name, a.draft_limit, a.p_min) for a in spec.arms[1:]] == [
        ("draft-1-p0", 1, 0),
        ("draft-1-p0.5", 1, 0.5),
        ("draft-2-p0", 2, 0),
        ("draft-2-p0.5", 2, 0.5),
        ("draft-4-p0", 4, 0),
        ("draft-4-p0.5", 4, 0.5),
    ]


def test_every_axis_can_be_swept() -> None:
    assert names(draft(name="{draft_model}", draft_model=["q/0.6b", "q/3b"])) == ["off", "q/0.6b", "q/3b"]
    assert names(draft(draft_device=["CUDA0", "none"])) == ["off", "d-on-CUDA0", "d-on-none"]
    assert names(draft(draft_kv_type_k=["f16", "q8_0"], draft_kv_type_v=["f16"])) == ["off", "d-k-f16-v-f16", "d-k-q8_0-v-f16"]


def test_a_value_that_is_unset_is_one_to_try() -> None:
    spec, _ = parse_spec(experiment(draft(p_min=[None, 0.75])))
    assert spec is not None
    assert [(a.name, a.p_min) for a in spec.arms[1:]] == [("d-punset", None), ("d-p0.75", 0.75)]


def test_names_that_would_meet_are_told_apart() -> None:
    assert names(draft(name="draft-2", draft_limit=2), draft(name="draft-{draft_limit}", draft_limit=[2, 3])) == [
        "off",
        "draft-2",
        "draft-2-2",
        "draft-3",
    ]
    assert names(draft(draft_model=["a:b", "a;b"]))[1:] == ["d-a-b", "d-a-b-2"]  # letters that no name may hold


def test_a_name_left_out_is_made_of_mode_and_values() -> None:
    arm = draft(draft_limit=[3, 8])
    del arm["name"]
    assert names(arm) == ["off", "draft-3", "draft-8"]


def test_a_single_value_may_have_its_place_in_the_name_too() -> None:
    assert names(draft(name="draft-{draft_limit}", draft_limit=5)) == ["off", "draft-5"]


def test_data_without_a_sweep_is_handed_back() -> None:
    data = experiment(draft(draft_limit=4))
    assert swept(data).data is data
    for odd in (None, [], {"arms": 3}, {"arms": [None, 7, {"name": 4}]}):
        assert swept(odd).data is odd


def test_a_sweep_leaves_what_was_given_as_it_was() -> None:
    data = experiment(draft(draft_limit=[1, 2]))
    swept(data)
    assert data == experiment(draft(draft_limit=[1, 2]))


class TestFaults:
    def test_name_the_arm_that_was_written(self) -> None:
        found = problems(draft(draft_limit=[1, 2, 3]), draft(name="e", draft_model=None, draft_limit=[1, 9999]))
        assert [field for field, _ in found] == ["arms.2.draft_limit", "arms.2.draft_model"]

    def test_shared_by_several_arms_of_a_sweep_are_told_once(self) -> None:
        assert problems({"name": "o", "mode": "off", "control": True, "draft_limit": [1, 2, 3]}) == [
            ("arms.1.draft_limit", "an arm with mode off can't have draft_limit: remove it, or choose another mode")
        ]

    @pytest.mark.parametrize(
        ("arm", "field", "said"),
        [
            ({"draft_limit": []}, "draft_limit", "is an empty list"),
            ({"draft_limit": [1, 2, 1]}, "draft_limit", "holds 1 twice"),
            ({"p_min": [0, 0.5, 0]}, "p_min", "holds 0 twice"),
            ({"draft_limit": [[1], 2]}, "draft_limit", "holds a list: a sweep is a list of single values"),
            ({"draft_limit": [1, 10**5000]}, "draft_limit", "from 1 to 1,024"),
            ({"name": "d-{limit}", "draft_limit": [1, 2]}, "name", "'limit', which is no axis of a sweep: draft_model, draft_limit"),
            ({"name": "d-{p_min}", "draft_limit": [1, 2]}, "name", "a place for p_min, which this arm doesn't set"),
        ],
    )
    def test_of_the_sweep_itself(self, arm: dict[str, Any], field: str, said: str) -> None:
        ((where, words),) = problems(draft(**arm))
        assert where == f"arms.1.{field}"
        assert said in words

    def test_a_list_that_is_no_axis_is_a_fault_of_its_own(self) -> None:
        ((where, words),) = problems(draft(draft_min=[1, 2]))
        assert (where, "list" in words) == ("arms.1.draft_min", True)

    def test_too_many_arms_are_counted_and_not_made(self) -> None:
        limits, sure = list(range(1, 9)), [0.1, 0.2, 0.3, 0.4, 0.5]
        assert problems(draft(draft_limit=limits, p_min=sure)) == [
            (
                "arms.1.draft_limit",
                "8 of draft_limit × 5 of p_min make 40 arms, with the others 41; an experiment has at most 40: shorten a list",
            )
        ]
        assert len(names(draft(draft_limit=limits[1:], p_min=sure))) == 36
        ((_, words),) = problems(draft(**{key: [f"v{i}" for i in range(1000)] for key in ("draft_model", "draft_device")}))
        assert "1,000,000 arms" in words

    def test_stand_beside_those_of_other_fields(self) -> None:
        spec, found = parse_spec(experiment(draft(draft_limit=[])) | {"blocks": 0})
        assert spec is None
        assert [p.field for p in found] == ["arms.1.draft_limit", "blocks"]


def test_the_limit_is_that_of_the_schema() -> None:
    arms = [{"name": f"n{i}", "mode": "ngram-simple"} for i in range(MAX_ARMS)]
    assert "at most 40" in problems(*arms)[0][1]


def test_yaml_as_one_writes_it() -> None:
    text = b"""
name: Limits
target: {model: t}
arms:
  - {name: "off", mode: off}
  - {name: "draft-{draft_limit}", mode: draft, draft_model: s, draft_limit: [1, 2, 4, 8, 16]}
points: [{workload: count}]
"""
    spec, _ = parse_spec(read_yaml(text))
    assert spec is not None
    assert [a.name for a in spec.arms] == ["off", "draft-1", "draft-2", "draft-4", "draft-8", "draft-16"]

"""The pair key changes with anything but speculation; the question key with what is asked, and with nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.keys import key_of, pair_key, question_fields, question_key, work_key
from speccore.questions import arm_words, differences
from speccore.spec import Arm, EngineSettings, Point, Sampling

FIELDS = {"boot_id": "b", "runtime_hash": "r", "engine_settings": "{}"}


def test_pair_key_is_exact_and_has_no_order() -> None:
    assert pair_key(FIELDS) == pair_key(dict(reversed(FIELDS.items())))
    assert all(pair_key(FIELDS | {name: "other"}) != pair_key(FIELDS) for name in [*FIELDS, "driver"])
    assert pair_key({}) != pair_key(FIELDS)


def given(**changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "target_hash": "t",
        "engine": "llama-server",
        "arm": Arm(name="a", mode="draft", draft_model="d", draft_limit=4),
        "point": Point(workload="count"),
        "workload_hash": "w",
        "settings": EngineSettings(),
        "draft_hash": "h",
    }
    return usual | changes


def question(**changes: Any) -> str:
    return question_key(**given(**changes))


@pytest.mark.parametrize(
    "change",
    [
        {"target_hash": "u"},
        {"engine": "vllm"},
        {"arm": Arm(name="a", mode="draft", draft_model="d", draft_limit=8)},
        {"arm": Arm(name="a", mode="ngram-simple")},
        {"draft_hash": "i"},
        {"point": Point(workload="count", sampling=Sampling(temperature=0.8))},
        {"point": Point(workload="count", max_tokens=64)},
        {"point": Point(workload="count", occupied_context=512)},
        {"workload_hash": "x"},
        {"settings": EngineSettings(context=8192)},
        {"settings": EngineSettings(kv_type_k="q8_0")},
        {"settings": EngineSettings(prefix_cache=True)},
        {"arm": Arm(name="a", mode="draft", draft_model="d", draft_limit=4, also=["ngram-mod"])},
        {"arm": Arm(name="a", mode="draft", draft_model="d", draft_limit=4, extra={"--spec-draft-x": 1})},
        {"point": Point(workload="count", warm=True)},
    ],
)
def test_what_is_asked_changes_the_question(change: dict[str, Any]) -> None:
    assert question(**change) != question()


@pytest.mark.parametrize(
    "change",
    [
        {"arm": Arm(name="other name", mode="draft", draft_model="another alias", draft_limit=4)},
        {"point": Point(workload="count@1", probes=9)},
        {"settings": EngineSettings(threads=3, gpu_layers=99, log_verbosity=2)},
        {"arm": Arm(name="a", mode="draft", draft_model="d", draft_limit=4, draft_threads=2, draft_gpu_layers=9, draft_device="CUDA1")},
    ],
)
def test_names_and_hardware_settings_dont(change: dict[str, Any]) -> None:
    assert question(**change) == question()


def test_what_is_unset_is_no_part_of_the_question() -> None:
    """So that a field that an arm or a point gets later leaves every stored key as it is."""
    fields = question_fields(**given())
    assert fields == {
        "target": "t",
        "engine": "llama-server",
        "workload": "w",
        "settings.context": 4096,
        "point.concurrency": 1,
        "point.occupied_context": 0,
        "point.max_tokens": 128,
        "point.sampling.temperature": 0.0,
        "arm.mode": "draft",
        "arm.draft_limit": 4,
        "arm.draft": "h",
    }
    assert key_of(fields) == question() == "36a214fc0d065a99d6fdea20ccce5d0ec197d71579d83a33cee284855705cee3"


def test_a_helper_that_nobody_could_look_at_counts_by_its_name() -> None:
    assert question(draft_hash="") != question()
    assert question(draft_hash="") != question(draft_hash="", arm=Arm(name="a", mode="draft", draft_model="other", draft_limit=4))


def test_arms_of_one_work_share_its_key() -> None:
    other = question_fields(**given(arm=Arm(name="b", mode="ngram-simple")))
    assert work_key(other) == work_key(question_fields(**given()))
    assert work_key(question_fields(**given(workload_hash="x"))) != work_key(other)


def test_differences_name_the_part_and_both_values() -> None:
    one, two = (
        question_fields(**given(target_hash="a" * 64)),
        question_fields(**given(target_hash="b" * 64, settings=EngineSettings(kv_type_k="q8_0"))),
    )
    found = [(d.field, d.here, d.there) for d in differences(one, two, {"a" * 64: "small"})]
    assert found == [("target weights", "small (aaaaaaaa…)", "bbbbbbbbbbbb…"), ("type of the K cache", "unset", "q8_0")]
    assert differences(one, one) == []


def test_an_arm_in_words() -> None:
    arm = Arm(name="a", mode="draft", draft_model="d", draft_limit=4, p_min=0.75, also=["ngram-mod"])
    assert arm_words(question_fields(**given(arm=arm)), {"h": "helper"}) == "draft + ngram-mod · helper · limit 4 · p min 0.75"

"""The pair key changes with anything but speculation; the question key with what is asked, and with nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.keys import pair_key, question_key
from speccore.spec import Arm, EngineSettings, Point, Sampling

FIELDS = {"boot_id": "b", "runtime_hash": "r", "engine_settings": "{}"}


def test_pair_key_is_exact_and_has_no_order() -> None:
    assert pair_key(FIELDS) == pair_key(dict(reversed(FIELDS.items())))
    assert all(pair_key(FIELDS | {name: "other"}) != pair_key(FIELDS) for name in [*FIELDS, "driver"])
    assert pair_key({}) != pair_key(FIELDS)


def question(**changes: Any) -> str:
    given: dict[str, Any] = {
        "target_hash": "t",
        "engine": "llama-server",
        "arm": Arm(name="a", mode="draft", draft_model="d", draft_limit=4),
        "point": Point(workload="count"),
        "workload_hash": "w",
        "settings": EngineSettings(),
        "draft_hash": "h",
    }
    return question_key(**(given | changes))


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
    ],
)
def test_names_and_hardware_settings_dont(change: dict[str, Any]) -> None:
    assert question(**change) == question()

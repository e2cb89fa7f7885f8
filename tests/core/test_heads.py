"""Heads that draft from the target's hidden states, as files describe them: what is refused before anything is started."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.heads import refusal, refusals
from speccore.inventory import Capabilities, MemoryShape, ModelInfo, RuntimeInfo
from speccore.preflight import warning
from speccore.spec import Arm

from tests.core.made import spec_of

MTP = Arm(name="m", mode="mtp", draft_limit=2)
EAGLE = Arm(name="e", mode="eagle3", draft_model="head", draft_limit=2)


def runtime(engine: Any = "llama-server", **changes: Any) -> RuntimeInfo:
    made = RuntimeInfo(
        engine=engine, version="1", manifest_hash="a" * 64, executable="/e", capabilities=Capabilities(dialect="spec-type", flags={})
    )
    return made.model_copy(update=changes)


def model(alias: str, *, width: int = 256, **changes: Any) -> ModelInfo:
    facts: dict[str, Any] = {"n_layers": 5, "architecture": "qwen35", "vocab_size": 2048}
    shape = MemoryShape(blocks=[], embedding_bytes=0, other_bytes=0, width=width)
    return ModelInfo(alias=alias, manifest_hash=alias, path=f"/{alias}", size_bytes=1, memory=shape, **(facts | changes))


def words(arm: Arm, target: ModelInfo, draft: ModelInfo | None = None, engine: str = "llama-server") -> str:
    found = refusal(arm, target, draft, runtime(engine))
    return f"{found.code}: {found.message}" if found else ""


@pytest.mark.parametrize("engine", ["llama-server", "vllm"])
def test_a_target_without_a_head_is_refused_for_mtp_by_every_engine(engine: str) -> None:
    assert words(MTP, model("bare"), engine=engine) == "head_missing: arm 'm': bare has no head for mtp"
    assert words(MTP, model("whole", has_mtp=True), engine=engine) == ""


def test_a_model_of_which_nothing_is_known_is_not_accused() -> None:
    assert words(MTP, model("served", n_layers=None)) == ""


def test_a_head_in_a_file_of_its_own_stands_for_the_target_that_has_none() -> None:
    assert words(MTP, model("bare"), model("head", has_mtp=True)) == ""
    assert words(MTP, model("bare"), model("whole-model")) == "head_missing: arm 'm': whole-model has no head for mtp"


def test_a_head_for_other_widths_is_refused() -> None:
    said = words(MTP, model("narrow", width=128), model("head", has_mtp=True))
    assert said == "head_missing: arm 'm': the head in head goes by hidden states of 256 numbers, narrow has 128"
    assert words(MTP, model("untold", width=0), model("head", has_mtp=True)) == ""


def test_a_head_may_work_in_a_width_of_its_own_and_take_the_targets_states() -> None:
    """As Gemma 4's: its file says both widths."""
    small = MemoryShape(blocks=[], embedding_bytes=0, other_bytes=0, width=64, hidden=256)
    head = model("head", has_mtp=True, architecture="gemma4-assistant").model_copy(update={"memory": small})
    assert words(MTP, model("target", width=256), head) == ""
    said = words(MTP, model("other", width=512), head)
    assert said == "head_missing: arm 'm': the head in head goes by hidden states of 256 numbers, other has 512"


def test_a_whole_model_is_no_eagle_head_of_llama_server() -> None:
    """It would start with it, and serve without speculation."""
    said = words(EAGLE, model("target"), model("head", architecture="llama"))
    assert said == "head_missing: arm 'e': head is no eagle3 head: its architecture is llama, and a head's is eagle3"
    assert words(EAGLE, model("target"), model("head", architecture="eagle3")) == ""
    dspark = Arm(name="d", mode="dspark", draft_model="head", draft_limit=2)
    assert words(dspark, model("target"), model("head", architecture="llama")).endswith("its architecture is llama, and a head's is dflash")
    assert words(dspark, model("target"), model("head", architecture="dflash")) == ""
    assert words(EAGLE, model("target"), model("head", architecture="")) == ""
    assert words(EAGLE, model("target"), model("head", architecture="LlamaForCausalLMEagle3"), "vllm") == ""


def test_each_arm_is_told_of_by_its_name_and_attached_servers_are_not_spoken_for() -> None:
    spec = spec_of({"name": "m1", "mode": "mtp", "draft_limit": 1}, {"name": "n", "mode": "ngram-simple"})
    assert list(refusals(spec, model("bare"), {}, runtime())) == ["m1"]
    assert refusals(spec, model("bare"), {}, runtime(kind="attached")) == {}


def test_a_head_of_another_vocabulary_is_a_caution() -> None:
    """The engine drafts by the numbers of tokens and compares nothing."""
    said = warning(model("target"), model("head", has_mtp=True, vocab_size=4096), "mtp", runtime())
    assert said.startswith("head is no head of target: it knows 4,096 tokens, the target 2,048: more than 128 apart")
    assert warning(model("target"), model("head", has_mtp=True), "mtp", runtime()) == ""

"""vLLM's speculative config: what each method's is, and that nothing which runs code or reads files gets into it."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.engines.vllm_config import EXTRA_KEYS, is_import
from speccore.spec import Arm, EngineSettings

from tests.core.test_vllm_flags import DRAFT, HERE, NGRAM, TODAY, VLLM, config_of, rendered, stored


@pytest.mark.parametrize(
    ("arm", "config"),
    [
        (NGRAM, {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2}),
        (DRAFT, {"method": "draft_model", "model": "/m/draft", "num_speculative_tokens": 3}),
        ({"mode": "mtp", "draft_limit": 1}, {"method": "mtp", "num_speculative_tokens": 1}),
        (
            {"mode": "eagle", "draft_model": "d", "draft_limit": 3, "extra": {"parallel_drafting": True}},
            {"method": "eagle", "model": "/m/draft", "num_speculative_tokens": 3, "parallel_drafting": True},
        ),
        (
            {"mode": "eagle3", "draft_model": "d", "draft_limit": 5, "draft_kv_type_k": "auto", "draft_kv_type_v": "auto"},
            {"method": "eagle3", "model": "/m/draft", "num_speculative_tokens": 5, "kv_cache_dtype": "auto"},
        ),
        (
            {"mode": "suffix", "draft_limit": 16, "ngram_size": 24, "p_min": 0.2, "extra": {"suffix_decoding_max_spec_factor": 2.0}},
            {
                "method": "suffix",
                "num_speculative_tokens": 16,
                "suffix_decoding_max_tree_depth": 24,
                "suffix_decoding_min_token_prob": 0.2,
                "suffix_decoding_max_spec_factor": 2.0,
            },
        ),
        ({"mode": "suffix"}, {"method": "suffix"}),
        ({"mode": "medusa", "draft_model": "d"}, {"method": "medusa", "model": "/m/draft"}),
    ],
)
def test_config_of_each_method(arm: dict[str, Any], config: dict[str, Any]) -> None:
    assert config_of(rendered(arm)) == config


def test_config_is_canonical_so_that_commands_compare_byte_by_byte() -> None:
    one = rendered({**DRAFT, "extra": {"quantization": "fp8", "draft_tensor_parallel_size": 1}}).argv
    other = rendered({**DRAFT, "extra": {"draft_tensor_parallel_size": 1, "quantization": "fp8"}}).argv
    assert one == other
    assert " " not in one[-1]


#: Keys of its config, of other tools' and of none, that no arm may set.
KEYS = """
method model code_revision revision draft_load_config target_model_config target_parallel_config draft_model_config
draft_parallel_config num_speculative_tokens prompt_lookup_max kv_cache_dtype synthetic_acceptance_length synthetic_acceptance_rates
num_speculative_tokens_per_batch_size tensor_parallel_size trust_remote_code hf_overrides speculative_token_tree no_such_key
""".split()  # noqa: SIM905 - names read better as a table


@pytest.mark.parametrize("mode", VLLM.SPEC_TYPES)
def test_no_key_outside_the_list_gets_into_the_config(mode: str) -> None:
    for key in [*KEYS, "--trust-remote-code", "model.x", "draft_load_config.load_format", "Method", "__class__", ""]:
        arm = {"mode": mode, "draft_limit": 3, "draft_model": "d", "extra": {key: "pkg.Class"}}
        result = rendered(arm)
        faults = [r for r in result.refusals if r.details["field"] == f"extra.{key}"]
        assert len(faults) == 1
        assert f"extra: {key} " in faults[0].message
        assert not [word for word in result.argv if "pkg.Class" in word]
        assert f"extra.{key}" in [e.details["field"] for e in VLLM.never_possible(EngineSettings(), [stored(Arm, name="a", **arm)])]


@pytest.mark.parametrize(
    "value",
    ["pkg.Class", "../x", "/etc/passwd", '{"a":1}', "a b", "", {"model": "pkg.Class"}, ["pkg.Class"], True, 1, "synthetic"],
)
@pytest.mark.parametrize("key", ["quantization", "rejection_sample_method", "draft_sample_method", "attention_backend"])
def test_a_key_takes_only_plain_values_also_not_a_nested_config(key: str, value: Any) -> None:
    arm = Arm.model_construct(name="a", mode="draft", draft_model="d", draft_limit=3, also=[], extra={key: value}, control=False)
    result = VLLM.render(EngineSettings(), arm, TODAY, HERE, allowed_flags=(), threads=1)
    if value == "synthetic" and key in ("quantization", "attention_backend"):
        return  # a plain word, of which the engine will say that it knows no such thing
    assert [r.details["field"] for r in result.refusals] == [f"extra.{key}"]


def test_acceptance_by_dice_is_refused_and_says_why() -> None:
    refused = rendered({**NGRAM, "extra": {"rejection_sample_method": "synthetic"}}).refusals
    assert "accepts drafts by chance" in refused[0].message
    assert not rendered({**NGRAM, "extra": {"rejection_sample_method": "block"}}).refusals


@pytest.mark.parametrize("place", ["pkg.Class", "os.system", "a.b.C", "http://x/y", "hf://org/model", "file:///x"])
def test_a_helper_that_would_be_imported_or_fetched_is_refused(place: str) -> None:
    result = rendered(DRAFT, bindings=HERE.model_copy(update={"draft": place}))
    assert "would be read as code to import, or as an address" in result.refusals[0].message


@pytest.mark.parametrize(
    ("place", "imports"),
    [("pkg.Class", True), ("a.b.c", True), ("/m/pkg.Class", False), ("draft", False), ("draft-0.5b", False), ("{draft}", False)],
)
def test_what_reads_as_an_import(place: str, imports: bool) -> None:
    assert is_import(place) is imports


@pytest.mark.parametrize(
    ("arm", "draft", "taken"),
    [
        (DRAFT, "/m/eagle-llama", "eagle"),
        (DRAFT, "/home/EAGLE3-team/draft", "eagle3"),
        ({**DRAFT, "mode": "medusa"}, "/m/dflash", "dflash"),
    ],
)
def test_a_path_by_which_vllm_would_choose_another_method_is_refused(arm: dict[str, Any], draft: str, taken: str) -> None:
    refused = rendered(arm, bindings=HERE.model_copy(update={"draft": draft})).refusals
    assert f"would take what lies there for {taken}, not " in refused[0].message
    told = rendered({"mode": "eagle", "draft_model": "d", "draft_limit": 3}, bindings=HERE.model_copy(update={"draft": "/m/dflash"}))
    assert not told.refusals  # a method that it is told it obeys


def test_the_head_of_mtp_lies_with_the_target_whose_path_counts() -> None:
    refused = rendered({"mode": "mtp", "draft_limit": 1}, bindings=HERE.model_copy(update={"target": "/m/dspark/t", "draft": ""})).refusals
    assert "would take what lies there for dspark, not mtp" in refused[0].message


@pytest.mark.parametrize(
    ("arm", "field", "said"),
    [
        ({**DRAFT, "p_min": 0.5}, "p_min", "mode draft of vLLM has no p_min"),
        ({**DRAFT, "draft_gpu_layers": 9}, "draft_gpu_layers", "mode draft of vLLM has no draft_gpu_layers"),
        ({**DRAFT, "draft_device": "CUDA1"}, "draft_device", "has no draft_device"),
        ({**DRAFT, "p_split": 0.1}, "p_split", "has no p_split"),
        ({**DRAFT, "draft_threads": 2}, "draft_threads", "has no draft_threads"),
        ({**NGRAM, "ngram_hits": 2}, "ngram_hits", "has no ngram_hits"),
        ({"mode": "ngram", "ngram_size": 4}, "draft_limit", "has no draft limit of its own"),
        ({"mode": "mtp"}, "draft_limit", "has no draft limit of its own"),
        ({**DRAFT, "also": ["ngram-mod"]}, "also", "vLLM runs one drafter"),
        ({**DRAFT, "draft_kv_type_k": "fp8"}, "draft_kv_type_v", "one type for the helper's keys and values"),
        ({"mode": "ngram-simple", "draft_limit": 4}, None, "vLLM has no mode 'ngram-simple'"),
    ],
)
def test_what_vllm_has_not_is_refused_by_field(arm: dict[str, Any], field: str | None, said: str) -> None:
    refused = rendered(arm).refusals
    assert [(r.details.get("field"), bool(r.remedy)) for r in refused] == [(field, True)]
    assert said in refused[0].message
    assert [e.details.get("field") for e in VLLM.never_possible(EngineSettings(), [stored(Arm, name="a", **arm)])] == [field]


def test_keys_of_the_lists_are_known_to_todays_config() -> None:
    """Of vLLM 0.32's own configuration class."""
    known = """enforce_eager draft_tensor_parallel_size quantization moe_backend attention_backend max_model_len
    index_share_for_mtp_iteration disable_padded_drafter_batch disable_eagle_block_drop use_local_argmax_reduction
    use_heterogeneous_vocab parallel_drafting suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor
    rejection_sample_method enable_adaptive_verification draft_sample_method dspark_draft_topk""".split()  # noqa: SIM905 - names read better as a table
    assert {key for keys in EXTRA_KEYS.values() for key in keys} == set(known)

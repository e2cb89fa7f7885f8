"""vLLM's launch commands: held against the recorded help, and each preset's as a file that one can read; after a wanted change

python -m tests.core.test_preset_commands
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from speccore.commandline import command_differences
from speccore.engines import SYMBOLIC, Bindings, engine
from speccore.presets import presets
from speccore.reference import reference_builds
from speccore.spec import Arm, EngineSettings, ExperimentSpec, Point

from tests.core.pinned_commands import commands_of, pinned, spec_of
from tests.core.vllm_help import HELP, Refused, parser

VLLM = engine("vllm")
TODAY = VLLM.capabilities(HELP)
HERE = Bindings(executable="/e/vllm", target="/m/target", draft="/m/draft", port=9000)
PINNED = Path(__file__).with_name("vllm-commands.txt")

SETTINGS: list[dict[str, Any]] = [
    {},
    {"context": 1024, "slots": 8, "prefix_cache": True, "batch": 2048, "kv_type_k": "fp8", "kv_type_v": "fp8"},
    {"extra": {"--dtype": "float32", "--enforce-eager": True, "--gpu-memory-utilization": 0.85, "--tensor-parallel-size": 2}},
    {"extra": {"--enable-chunked-prefill": False, "--performance-mode": "throughput", "--quantization": "fp8", "--block-size": 16}},
    {"extra": {"--optimization-level": 0, "--attention-backend": "FLASH_ATTN", "--kv-cache-memory-bytes": 1 << 30}},
]
ARMS: list[dict[str, Any]] = [
    {"mode": "off"},
    {"mode": "off", "control": True, "extra": {"--no-async-scheduling": True, "--max-num-scheduled-tokens": 2048}},
    {"mode": "off", "control": True, "extra": {"--cudagraph-capture-sizes": [1, 2, 4], "--num-gpu-blocks-override": 512}},
    {"mode": "ngram", "draft_limit": 4, "ngram_size": 4, "ngram_min": 2},
    {"mode": "draft", "draft_model": "d", "draft_limit": 3, "extra": {"draft_sample_method": "probabilistic"}},
    {"mode": "mtp", "draft_limit": 1},
    {"mode": "eagle", "draft_model": "d", "draft_limit": 3},
    {"mode": "suffix", "draft_limit": 16, "ngram_size": 24, "p_min": 0.2},
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("arm", ARMS)
def test_every_flag_stands_in_the_help_and_every_value_is_of_its_kind(settings: dict[str, Any], arm: dict[str, Any]) -> None:
    made = VLLM.render(EngineSettings(**settings), Arm(name="a", **arm), TODAY, HERE, allowed_flags=VLLM.DEFAULT_ALLOWED_FLAGS, threads=1)
    assert made.refusals == []
    assert made.argv[:3] == ["/e/vllm", "serve", "/m/target"]
    taken = vars(PARSER.parse_args(made.argv[2:]))
    wanted = EngineSettings(**settings)
    assert (taken["host"], taken["port"], taken["stream-interval"], taken["seed"]) == ("127.0.0.1", 9000, 1, 0)
    assert (taken["max-model-len"], taken["max-num-seqs"]) == (str(wanted.context), str(wanted.slots))
    assert (taken["generation-config"], taken["enable-per-request-metrics"]) == ("vllm", True)
    assert bool(taken["speculative-config"]) is (arm["mode"] != "off")
    # Without speculation vLLM refuses to list the steps of a request.
    assert taken["per-request-spec-decode-metrics"] == (None if arm["mode"] == "off" else "detailed")
    if taken["speculative-config"]:
        assert json.loads(taken["speculative-config"])["method"] == VLLM.SPEC_TYPES[arm["mode"]]


PARSER = parser()


def test_the_parser_of_the_help_refuses_what_it_does_not_list() -> None:
    """Else the test above could not fail."""
    for words in (
        ["--no-such"],
        ["--trust-remote"],
        ["--stream-interval", "x"],
        ["--kv-cache-dtype", "q8_0"],
        ["--enforce-eager", "1", "2"],
    ):
        with pytest.raises(Refused):
            PARSER.parse_args(["m", *words])


def test_arms_differ_in_the_speculative_config_only() -> None:
    settings = EngineSettings(**SETTINGS[1])
    commands = [
        VLLM.render(settings, Arm(name="a", **a), TODAY, HERE, allowed_flags=(), threads=1).argv for a in ARMS if "control" not in a
    ]
    assert len({tuple(VLLM.without_speculation(argv)) for argv in commands}) == 1
    assert len({tuple(argv) for argv in commands}) == len(commands)
    other = VLLM.render(settings, Arm(name="a", **ARMS[0]), TODAY, HERE.model_copy(update={"port": 9001}), allowed_flags=(), threads=1)
    assert VLLM.without_speculation(other.argv) == VLLM.without_speculation(commands[0])


def test_what_a_build_can_do_without_is_left_out_and_what_it_needs_refused() -> None:
    optional = [
        "--stream-interval",
        "--enable-per-request-metrics",
        "--per-request-spec-decode-metrics",
        "--enable-tokenizer-info-endpoint",
    ]
    build = TODAY.model_copy(update={"flags": {k: v for k, v in TODAY.flags.items() if k not in optional}})
    argv = VLLM.render(EngineSettings(), Arm(name="a", mode="off"), build, HERE, allowed_flags=(), threads=1)
    assert argv.refusals == []
    assert not {*optional, "detailed"} & set(argv.argv)
    poor = build.model_copy(update={"flags": {k: v for k, v in build.flags.items() if k not in ("--max-model-len", "--generation-config")}})
    refused = VLLM.render(EngineSettings(), Arm(name="a", mode="off"), poor, HERE, allowed_flags=(), threads=1).refusals
    assert [r.details["flag"] for r in refused] == ["--max-model-len", "--generation-config"]


def test_a_command_shown_can_be_copied_json_and_all() -> None:
    spec = spec_for_vllm("temperature-toggle")
    argv = {a.name: VLLM.render(spec.engine, a, TODAY, SYMBOLIC, allowed_flags=(), threads=1).argv for a in spec.arms}
    off, draft = command_differences(spec, argv)
    assert shlex.split(" ".join(p.text for p in draft.parts)) == argv["draft-4"]
    assert [p.text.split()[0] for p in draft.parts if p.added] == ["--speculative-config", "--per-request-spec-decode-metrics"]
    assert off.parts[1].text == "serve {target}"


# --- requests, and what is loaded ---


def test_request_asks_for_ids_and_running_counts_and_leaves_unset_samplers_out() -> None:
    point = Point.model_validate({"workload": "w", "max_tokens": 16, "sampling": {"temperature": 0.8, "top_p": 0.9, "top_k": 40}})
    path, body = VLLM.request("1, 2,", point, 7)
    assert path == "/v1/completions"
    assert body == {
        "prompt": "1, 2,",
        "max_tokens": 16,
        "seed": 7,
        "temperature": 0.8,
        "top_p": 0.9,
        "top_k": 40,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
    }
    assert VLLM.request("x", point, 7, prefix_cache=True)[1] == {**body, "prompt": "x"}  # the server decides on its cache


def test_an_answer_in_one_piece_is_asked_without_what_streams() -> None:
    _, body = VLLM.request("x", Point(workload="w"), 7)
    whole = VLLM.whole_answer(body)
    assert whole["stream"] is False
    assert "stream_options" not in whole
    assert whole["return_token_ids"] is True


MODELS = {"object": "list", "data": [{"id": "target", "root": "/m/target", "max_model_len": 1024, "permission": []}]}


def test_loaded_model_and_context_are_compared() -> None:
    props = VLLM.loaded({"/v1/models": MODELS})
    assert VLLM.context_and_slots(props) == (1024, None)
    settings = EngineSettings()
    assert VLLM.loaded_problem(props, settings, "/m/target", 1024) == ""
    assert "loaded '/m/target', asked for was '/m/other'" in VLLM.loaded_problem(props, settings, "/m/other", 1024)
    assert "gives 1024 tokens of context to a slot, asked for were 2048" in VLLM.loaded_problem(props, settings, "/m/target", 2048)
    assert "names no model" in VLLM.loaded_problem(VLLM.loaded({"/v1/models": {"data": []}}), settings, "/m/target", 1024)


# --- both engines ---


def test_both_engines_modules_offer_the_same_names() -> None:
    ours, theirs = ({n for n in dir(m) if not n.startswith("_")} & set(m.__all__) for m in (engine("llama-server"), VLLM))
    assert ours == theirs


# --- presets ---


def spec_for_vllm(name: str) -> ExperimentSpec:
    return spec_of(name, runtime={"engine": "vllm"})


@pytest.mark.parametrize("name", presets())
def test_commands_of_presets_are_what_they_were(name: str) -> None:
    assert commands_of(name, spec_for_vllm(name)).strip() == pinned(PINNED)[name].strip()


def test_capabilities_without_a_host_are_those_of_the_recorded_help() -> None:
    (today,) = reference_builds("vllm")
    assert today.capabilities == TODAY


def write() -> None:
    PINNED.write_text("\n".join(commands_of(name, spec_for_vllm(name)) for name in presets()), encoding="utf-8")

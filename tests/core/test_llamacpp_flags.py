"""llama-server's flags and commands: what a build offers, what an arm becomes, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from speccore.engines import SYMBOLIC, Bindings, Rendered, engine
from speccore.errors import SpecError
from speccore.spec import Arm, EngineSettings, Point

from tests.core.recordings import LLAMA, read, spec_of

TODAY = LLAMA.capabilities(read("b10434.help.txt"))
NEWER = LLAMA.capabilities(read("b11434.help.txt"))
OLDER = LLAMA.capabilities(read("handmade-draft-flag.help.txt"))
#: Help texts put together from public lists of the arguments that these builds take; see tests/logs/llamacpp/README.md.
EARLY_2025 = LLAMA.capabilities(read("rebuilt-2025-02.help.txt"))
SPRING_2026 = LLAMA.capabilities(read("rebuilt-2026-03.help.txt"))
HERE = Bindings(executable="/e/llama-server", target="/m/t.gguf", draft="/m/d.gguf", port=9000)


def rendered(arm: dict[str, Any], capabilities: Any = TODAY, bindings: Bindings = HERE, allowed: Any = (), **settings: Any) -> Rendered:
    result: Rendered = LLAMA.render(
        EngineSettings(**settings), Arm(name="a", **arm), capabilities, bindings, allowed_flags=allowed, threads=3
    )
    return result


def values(argv: list[str], flag: str) -> list[str]:
    return [argv[i + 1] for i, word in enumerate(argv) if word == flag]


def test_unknown_engine_is_refused_by_name() -> None:
    with pytest.raises(SpecError, match=r"'sglang' is not offered; known: llama-server"):
        engine("sglang")


def test_dialects_and_types_come_from_the_help() -> None:
    assert (TODAY.dialect, NEWER.dialect, OLDER.dialect) == ("spec-type", "spec-type", "draft-flag")
    assert LLAMA.capabilities("usage: something else").dialect == "none"
    assert TODAY.spec_types == [
        "draft-simple",
        "draft-eagle3",
        "draft-mtp",
        "draft-dflash",
        "draft-dspark",
        "ngram-simple",
        "ngram-map-k",
        "ngram-map-k4v",
        "ngram-mod",
        "ngram-cache",
    ]
    assert OLDER.spec_types == []
    assert "--spec-synth-len" in NEWER.flags
    assert "--spec-synth-len" not in TODAY.flags


def test_removed_flags_are_no_capability() -> None:
    for name in ("--draft", "--draft-max", "--draft-min", "--spec-ngram-size-n"):
        assert name in TODAY.removed_flags
        assert name not in TODAY.flags
    assert "--draft-max" in OLDER.flags
    assert OLDER.removed_flags == []


def test_aliases_lead_to_one_long_name_and_negations_stay_apart() -> None:
    flags = TODAY.flags
    assert flags["-md"] == flags["--model-draft"] == flags["--spec-draft-model"] == "--spec-draft-model"
    assert flags["-ngl"] == flags["--n-gpu-layers"] == "--gpu-layers"
    assert flags["-nkvo"] == flags["--no-kv-offload"] == "--no-kv-offload"
    assert flags["-kvo"] == "--kv-offload"
    assert flags["--no-webui"] == "--no-ui"
    assert flags["--log-verbosity"] == "--verbosity"
    assert "-----" not in flags


def test_arms_differ_in_speculation_only() -> None:
    off, draft, ngram = (
        rendered(arm, context=1024, slots=2)
        for arm in ({"mode": "off"}, {"mode": "draft", "draft_model": "d", "draft_limit": 4}, {"mode": "ngram-simple", "draft_limit": 8})
    )
    assert not off.refusals + draft.refusals + ngram.refusals
    assert draft.argv[: len(off.argv)] == off.argv
    assert draft.argv[len(off.argv) :] == ["--spec-type", "draft-simple", "--spec-draft-model", "/m/d.gguf", "--spec-draft-n-max", "4"]
    assert ngram.argv[len(off.argv) :] == ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-m", "8"]
    bare = LLAMA.without_speculation(off.argv)
    assert bare == LLAMA.without_speculation(draft.argv) == LLAMA.without_speculation(ngram.argv)
    assert bare == [w for w in off.argv if w not in ("--port", "9000")]


def test_context_is_asked_for_all_slots_and_caching_is_off() -> None:
    argv = rendered({"mode": "off"}, context=1000, slots=4).argv
    assert values(argv, "--ctx-size") == ["4000"]
    assert values(argv, "--parallel") == ["4"]
    assert values(argv, "--threads") == ["3"]
    assert values(argv, "--cache-ram") == ["0"]
    assert values(argv, "--fit") == ["off"]
    assert "--no-cache-prompt" in argv
    assert "--metrics" in argv
    cached = rendered({"mode": "off"}, prefix_cache=True).argv
    assert "--cache-prompt" in cached
    assert "--no-cache-prompt" not in cached
    assert "--cache-ram" not in cached


def test_typed_settings_become_flags() -> None:
    argv = rendered(
        {"mode": "off"}, gpu_layers=12, kv_type_k="q8_0", kv_type_v="f16", batch=64, ubatch=32, flash_attention="on", log_verbosity=5
    ).argv
    expected = {"--gpu-layers": "12", "--cache-type-k": "q8_0", "--cache-type-v": "f16", "--batch-size": "64", "--ubatch-size": "32"}
    assert {flag: values(argv, flag)[0] for flag in expected} == expected
    assert values(argv, "--flash-attn") == ["on"]
    assert values(argv, "--verbosity") == ["5"]


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        ({"mode": "mtp", "draft_limit": 2}, ["--spec-type", "draft-mtp", "--spec-draft-n-max", "2"]),
        ({"mode": "eagle3", "draft_model": "d"}, ["--spec-type", "draft-eagle3", "--spec-draft-model", "/m/d.gguf"]),
        ({"mode": "dflash", "draft_model": "d"}, ["--spec-type", "draft-dflash", "--spec-draft-model", "/m/d.gguf"]),
        (
            {"mode": "draft", "draft_model": "d", "draft_limit": 8, "draft_min": 2, "p_min": 0.5, "draft_gpu_layers": 0},
            [
                *("--spec-type", "draft-simple", "--spec-draft-model", "/m/d.gguf", "--spec-draft-n-max", "8"),
                *("--spec-draft-n-min", "2", "--spec-draft-p-min", "0.5", "--spec-draft-ngl", "0"),
            ],
        ),
        (
            {"mode": "ngram-map-k4v", "draft_limit": 16, "ngram_size": 5},
            ["--spec-type", "ngram-map-k4v", "--spec-ngram-map-k4v-size-m", "16", "--spec-ngram-map-k4v-size-n", "5"],
        ),
        (
            {"mode": "ngram-mod", "draft_limit": 64, "draft_min": 4, "ngram_size": 8},
            ["--spec-type", "ngram-mod", "--spec-ngram-mod-n-max", "64", "--spec-ngram-mod-n-min", "4", "--spec-ngram-mod-n-match", "8"],
        ),
        # a limit under the engine's default minimum of 48 would never draft
        (
            {"mode": "ngram-mod", "draft_limit": 8},
            ["--spec-type", "ngram-mod", "--spec-ngram-mod-n-max", "8", "--spec-ngram-mod-n-min", "8"],
        ),
        ({"mode": "ngram-cache"}, ["--spec-type", "ngram-cache"]),
    ],
)
def test_each_mode_in_todays_dialect(arm: dict[str, Any], words: list[str]) -> None:
    result = rendered(arm)
    assert not result.refusals
    assert result.argv[len(rendered({"mode": "off"}).argv) :] == words


def test_older_dialect_switches_on_with_the_draft_model_alone() -> None:
    result = rendered({"mode": "draft", "draft_model": "d", "draft_limit": 8, "draft_min": 1}, OLDER)
    assert not result.refusals
    assert result.argv[len(rendered({"mode": "off"}, OLDER).argv) :] == [
        "--model-draft",
        "/m/d.gguf",
        "--draft-max",
        "8",
        "--draft-min",
        "1",
    ]
    assert "--fit" not in result.argv  # not in that build's help


@pytest.mark.parametrize(
    ("arm", "capabilities", "said"),
    [
        ({"mode": "ngram-simple"}, OLDER, "needs --spec-type ngram-simple, which this build doesn't offer (it offers: none)"),
        ({"mode": "mtp"}, OLDER, "needs --spec-type draft-mtp"),
        ({"mode": "suffix"}, TODAY, "llama-server has no mode 'suffix'; its modes are draft, mtp"),
        ({"mode": "ngram"}, TODAY, "llama-server has no mode 'ngram'"),
        ({"mode": "ngram-simple", "p_min": 0.5}, TODAY, "mode ngram-simple of llama-server has no p_min"),
        ({"mode": "ngram-cache", "draft_limit": 4}, TODAY, "mode ngram-cache of llama-server has no draft_limit"),
    ],
)
def test_arm_that_the_build_cannot_express_is_refused(arm: dict[str, Any], capabilities: Any, said: str) -> None:
    refusals = rendered(arm, capabilities).refusals
    assert [r.code for r in refusals] == ["arm_not_supported"]
    assert said in refusals[0].message
    assert refusals[0].remedy


def test_missing_flag_is_named_also_when_it_was_removed() -> None:
    without = TODAY.model_copy(update={"flags": {k: v for k, v in TODAY.flags.items() if v != "--spec-draft-n-max"}})
    refusals = rendered({"mode": "draft", "draft_model": "d", "draft_limit": 4}, without).refusals
    assert len(refusals) == 1
    assert "needs the flag --spec-draft-n-max or --draft-max (this build has removed it)" in refusals[0].message


def test_draft_model_that_the_host_lacks_is_refused() -> None:
    nowhere = HERE.model_copy(update={"draft": ""})
    refusals = rendered({"mode": "draft", "draft_model": "small"}, bindings=nowhere).refusals
    assert [r.code for r in refusals] == ["unknown_model"]
    assert "'small'" in refusals[0].message


def test_extra_flags_pass_only_if_build_and_host_allow_them() -> None:
    allowed = LLAMA.DEFAULT_ALLOWED_FLAGS
    result = rendered(
        {"mode": "off"}, allowed=allowed, extra={"--override-tensor": ["a=CPU", "b=CPU"], "--cpu-moe": True, "--n-cpu-moe": 3}
    )
    assert not result.refusals
    assert values(result.argv, "--override-tensor") == ["a=CPU", "b=CPU"]
    assert values(result.argv, "--n-cpu-moe") == ["3"]
    assert result.argv.count("--cpu-moe") == 1


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"--spec-type": "ngram-mod"}, "--spec-type belongs to speculation: set it in the arm"),
        ({"--model-draft": "x"}, "--model-draft belongs to speculation"),
        ({"--log-file": "/etc/x"}, "--log-file is set by SpecWeb itself"),
        ({"--n-gpu-layers": 3}, "--n-gpu-layers is set by SpecWeb itself"),
        ({"--tools": "all"}, "--tools is set by SpecWeb itself"),
        ({"--rope-scale": 2}, "this host doesn't allow --rope-scale"),
        ({"--override-tensors": "x"}, "this build has no flag --override-tensors (did you mean --override-tensor?)"),
        ({"--draft-max": 8}, "--draft-max belongs to speculation"),
    ],
)
def test_extra_flags_are_refused_by_name(extra: dict[str, Any], said: str) -> None:
    refusals = rendered(
        {"mode": "off"}, allowed=[*LLAMA.DEFAULT_ALLOWED_FLAGS, "--log-file", "--tools", "--spec-type"], extra=extra
    ).refusals
    assert [r.code for r in refusals] == ["flag_not_allowed"]
    assert said in refusals[0].message


@pytest.mark.parametrize("value", ["--tools", "-md", ["a=CPU", "--log-file"], "-"])
def test_a_value_that_would_be_read_as_a_flag_is_refused(value: Any) -> None:
    result = rendered({"mode": "off"}, allowed=["--cpu-moe"], extra={"--cpu-moe": value})
    assert [r.code for r in result.refusals] == ["flag_not_allowed"]
    assert "begins with a dash and would be read as a flag" in result.refusals[0].message
    assert not {"--tools", "-md", "--log-file", "-"} & set(result.argv)


def test_negative_numbers_are_values() -> None:
    result = rendered({"mode": "off"}, allowed=["--prio"], extra={"--prio": -1})
    assert (result.refusals, result.argv[-2:]) == ([], ["--prio", "-1"])


def test_false_asks_for_the_negative_flag_or_is_refused() -> None:
    on = rendered({"mode": "off"}, allowed=["--repack"], extra={"--repack": False})
    assert on.argv[-1] == "--no-repack"
    refused = rendered({"mode": "off"}, allowed=["--swa-full"], extra={"--swa-full": False}).refusals
    assert "--no-swa-full" in refused[0].message


def test_default_allowed_flags_are_none_of_our_own() -> None:
    for flag in LLAMA.DEFAULT_ALLOWED_FLAGS:
        assert flag not in LLAMA.OWNED_FLAGS
        assert not LLAMA.is_speculation(flag)


def test_symbolic_bindings_render_to_themselves() -> None:
    argv = rendered({"mode": "draft", "draft_model": "d"}, bindings=SYMBOLIC).argv
    assert argv[0] == "{executable}"
    assert values(argv, "--model") == ["{target}"]
    assert values(argv, "--spec-draft-model") == ["{draft}"]
    assert values(argv, "--port") == ["{port}"]


def test_request_asks_for_ids_and_timings_and_leaves_unset_samplers_out() -> None:
    point = Point.model_validate({"workload": "w", "max_tokens": 16, "sampling": {"temperature": 0.8, "top_p": 0.9}})
    path, body = LLAMA.request("1, 2,", point, 7)
    assert path == "/completion"
    assert body == {
        "prompt": "1, 2,",
        "n_predict": 16,
        "seed": 7,
        "temperature": 0.8,
        "top_p": 0.9,
        "cache_prompt": False,
        "stream": True,
        "timings_per_token": True,
        "return_tokens": True,
    }
    assert LLAMA.request("x", point, 7, prefix_cache=True)[1]["cache_prompt"] is True


def test_loaded_model_context_and_slots_are_compared() -> None:
    props = json.loads(read("b10434-draft4-lv4.props.json"))
    settings = spec_of().engine
    assert LLAMA.loaded_problem(props, settings, "/models/target.gguf", 2048) == ""
    assert LLAMA.loaded_problem(props, settings, "/models/target.gguf", 2000) == ""  # rounded up by the engine
    assert "loaded 'target.gguf', asked for was '/models/other.gguf'" in LLAMA.loaded_problem(props, settings, "/models/other.gguf", 2048)
    assert "gives 2048 tokens of context to a slot, asked for were 4096 (longer" in LLAMA.loaded_problem(
        props, settings, "target.gguf", 4096
    )
    assert "gives 2048 tokens of context to a slot, asked for were 1024" in LLAMA.loaded_problem(props, settings, "target.gguf", 1024)
    two = settings.model_copy(update={"slots": 2})
    assert "has 1 slots, asked for were 2" in LLAMA.loaded_problem(props, two, "target.gguf", 2048)
    assert "router mode" in LLAMA.loaded_problem(json.loads(read("b10434-router.props.json")), settings, "target.gguf", 2048)
    assert LLAMA.loaded_problem({}, settings, "target.gguf", 2048) != ""


def test_what_no_build_can_do_is_told_of_flags_values_modes_and_fields() -> None:
    settings = EngineSettings(extra={"--port": 1, "--spec-type": "x", "--numa": ["--api-key", "-x"], "--prio": -1})
    arms = [
        Arm(name="off", mode="off"),
        Arm(name="s", mode="suffix"),
        Arm(name="n", mode="ngram-simple", draft_limit=4, p_min=0.5, draft_min=1),
        Arm(name="m", mode="mtp", draft_limit=2, p_min=0.5),
    ]
    found = LLAMA.never_possible(settings, arms)
    flags = [(e.details["flag"], e.details.get("value")) for e in found if "flag" in e.details]
    assert flags == [("--port", None), ("--spec-type", None), ("--numa", "--api-key"), ("--numa", "-x")]
    fields = [(e.details["arm"], e.details.get("field")) for e in found if "arm" in e.details]
    assert fields == [("s", None), ("n", "draft_min"), ("n", "p_min")]
    assert all(e.remedy for e in found)


def test_flags_that_no_known_build_has_come_with_the_nearest() -> None:
    settings = EngineSettings(extra={"--override-tensors": "x", "--cpu-moe": True, "--qqqqqqqq": 1, "--draft-max": 3})
    assert LLAMA.unknown_flags(settings, [TODAY, OLDER]) == {"--override-tensors": " (did you mean --override-tensor?)", "--qqqqqqqq": ""}
    assert "--draft-max" in LLAMA.unknown_flags(settings, [TODAY])  # this build has removed it


def test_flags_that_no_place_allows_by_any_of_their_names() -> None:
    settings = EngineSettings(extra={"--n-gpu-layers-draft": 1, "--numa": "isolate", "--poll": 50})
    build = TODAY.model_copy(update={"flags": TODAY.flags | {"--n-gpu-layers-draft": "--numa"}})
    assert LLAMA.forbidden_flags(settings, [([build], ["--numa"])]) == ["--poll"]
    assert LLAMA.forbidden_flags(settings, [([TODAY], ["--numa"]), ([], ["--poll"])]) == ["--n-gpu-layers-draft"]
    assert LLAMA.forbidden_flags(settings, []) == list(settings.extra)

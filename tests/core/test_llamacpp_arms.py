"""llama-server's arms in every dialect: drafters, their knobs and combinations, and what a build can't express.

The help texts of early 2025 and of spring 2026 are put together from public lists of the arguments that such builds take.
"""

from __future__ import annotations

from typing import Any

import pytest
from speccore.inventory import Capabilities
from speccore.spec import Arm, EngineSettings, parse_spec, read_stored_spec
from speccore.spec_rules import arm_faults

from tests.core.recordings import LLAMA, read
from tests.core.test_llamacpp_flags import EARLY_2025, HERE, NEWER, OLDER, SPRING_2026, TODAY, rendered, values

DRAFT = {"mode": "draft", "draft_model": "d"}


def words(arm: dict[str, Any], build: Capabilities = TODAY) -> list[str]:
    """What an arm adds to the baseline's command; it must not be refused."""
    result = rendered(arm, build)
    assert [r.message for r in result.refusals] == []
    off = rendered({"mode": "off"}, build).argv
    assert result.argv[: len(off)] == off
    return result.argv[len(off) :]


def refused(arm: dict[str, Any], build: Capabilities = TODAY) -> list[str]:
    return [r.message.removeprefix("arm 'a': ") for r in rendered(arm, build).refusals]


# --- what a help tells ---


def test_builds_of_early_2025_and_spring_2026_are_told_by_their_help() -> None:
    assert (EARLY_2025.dialect, EARLY_2025.spec_types) == ("draft-flag", [])
    assert SPRING_2026.dialect == "draft-flag"  # its --spec-type knows n-grams alone
    assert (SPRING_2026.one_spec_type, TODAY.one_spec_type, NEWER.one_spec_type) == (True, False, False)
    assert "ngram-mod" in SPRING_2026.spec_types


def test_flags_that_take_no_value_are_told_from_those_that_do() -> None:
    assert "--flash-attn" in EARLY_2025.switches
    for build in (TODAY, NEWER, SPRING_2026):
        assert "--flash-attn" not in build.switches
        assert {"--metrics", "--swa-full", "--no-op-offload"} <= set(build.switches)
        assert not {"--model", "--port", "--split-mode", "--cache-reuse"} & set(build.switches)
    assert "--spec-draft-cpu-moe" in TODAY.switches
    assert "--spec-draft-poll" not in TODAY.switches


def test_what_a_build_drafts_by_itself_is_read_with_its_flags() -> None:
    assert (EARLY_2025.defaults["--draft-min"], TODAY.defaults["--spec-ngram-mod-n-min"]) == ("5", "48")
    assert TODAY.defaults["--spec-draft-p-split"] == "0.10"
    assert all(LLAMA.is_speculation(flag) for flag in TODAY.defaults)


def test_capabilities_of_an_older_agent_say_nothing_of_switches() -> None:
    told = {"dialect": "spec-type", "flags": TODAY.flags, "spec_types": TODAY.spec_types}
    build = Capabilities.model_validate(told)
    assert words({"mode": "ngram-mod", "draft_limit": 8}, build)[-4:] == ["--spec-ngram-mod-n-max", "8", "--spec-ngram-mod-n-min", "8"]
    result = rendered({"mode": "off"}, build, allowed=["--swa-full"], extra={"--swa-full": True}, flash_attention="on")
    assert (result.refusals, values(result.argv, "--flash-attn"), "--swa-full" in result.argv) == ([], ["on"], True)


# --- knobs in each dialect ---

ALL_OF_A_MODEL = {
    **DRAFT,
    "draft_limit": 8,
    "draft_min": 2,
    "p_min": 0.5,
    "p_split": 0.2,
    "draft_gpu_layers": 0,
    "draft_device": "CUDA1",
    "draft_kv_type_k": "q8_0",
    "draft_kv_type_v": "f16",
    "draft_threads": 3,
}


@pytest.mark.parametrize("build", [TODAY, NEWER], ids=["b10434", "b11434"])
def test_every_knob_of_a_draft_model_in_todays_dialect(build: Capabilities) -> None:
    assert words(ALL_OF_A_MODEL, build) == [
        *("--spec-type", "draft-simple", "--spec-draft-model", "/m/d.gguf"),
        *("--spec-draft-n-max", "8", "--spec-draft-n-min", "2", "--spec-draft-p-min", "0.5", "--spec-draft-ngl", "0"),
        *("--spec-draft-device", "CUDA1", "--spec-draft-type-k", "q8_0", "--spec-draft-type-v", "f16"),
        *("--spec-draft-threads", "3", "--spec-draft-p-split", "0.2"),
    ]


def test_knobs_that_older_servers_lack_are_all_refused_at_once_by_the_flags_name() -> None:
    assert [w.partition(" needs the flag ")[2] for w in refused(ALL_OF_A_MODEL, EARLY_2025)] == [
        "--spec-draft-type-k or --cache-type-k-draft, which this build doesn't have",
        "--spec-draft-type-v or --cache-type-v-draft, which this build doesn't have",
        "--spec-draft-threads or --threads-draft, which this build doesn't have",
        "--spec-draft-p-split or --draft-p-split, which this build doesn't have",
    ]
    assert refused(ALL_OF_A_MODEL, SPRING_2026) == [
        "p_split of mode draft needs the flag --spec-draft-p-split or --draft-p-split, which this build doesn't have"
    ]


def test_the_older_dialects_have_no_type_for_a_draft_model() -> None:
    arm = {**DRAFT, "draft_limit": 8, "draft_min": 2, "p_min": 0.5, "draft_gpu_layers": 0, "draft_device": "none"}
    told = ["--model-draft", "/m/d.gguf", "{limit}", "8", "--draft-min", "2", "--draft-p-min", "0.5"]
    told += ["--gpu-layers-draft", "0", "--device-draft", "none"]
    assert words(arm, EARLY_2025) == [w.format(limit="--draft-max") for w in told]
    assert words(arm, SPRING_2026) == [w.format(limit="--draft") for w in told]  # the first of its three names
    more = {**DRAFT, "draft_kv_type_k": "q8_0", "draft_kv_type_v": "q8_0", "draft_threads": 2}
    assert words(more, SPRING_2026)[2:] == ["--cache-type-k-draft", "q8_0", "--cache-type-v-draft", "q8_0", "--threads-draft", "2"]


@pytest.mark.parametrize("mode", ["mtp", "eagle3", "dflash", "dspark"])
def test_a_head_in_a_file_of_its_own_is_named_and_one_in_the_target_is_not(mode: str) -> None:
    file = words({"mode": mode, "draft_model": "d", "draft_limit": 2, "draft_device": "none"})
    assert file == [
        "--spec-type",
        f"draft-{mode}",
        "--spec-draft-model",
        "/m/d.gguf",
        "--spec-draft-n-max",
        "2",
        "--spec-draft-device",
        "none",
    ]
    if mode == "mtp":
        assert words({"mode": mode, "draft_limit": 2}) == ["--spec-type", "draft-mtp", "--spec-draft-n-max", "2"]


@pytest.mark.parametrize("mode", ["ngram-simple", "ngram-map-k", "ngram-map-k4v"])
def test_n_grams_of_fixed_length_in_each_dialect(mode: str) -> None:
    arm = {"mode": mode, "draft_limit": 16, "ngram_size": 5}
    assert words(arm) == ["--spec-type", mode, f"--spec-{mode}-size-m", "16", f"--spec-{mode}-size-n", "5"]
    assert words(arm | {"ngram_hits": 2})[-2:] == [f"--spec-{mode}-min-hits", "2"]
    # There one flag cuts the drafts of every drafter, and by itself it is 16.
    assert words(arm, SPRING_2026) == ["--spec-type", mode, "--spec-ngram-size-m", "16", "--spec-ngram-size-n", "5", "--draft", "16"]
    hits = rendered(arm | {"ngram_hits": 2}, SPRING_2026)
    if mode == "ngram-simple":  # took no heed of the flag that was there for maps
        assert "ngram_hits of ngram-simple needs the flag --spec-ngram-simple-min-hits" in hits.refusals[0].message
    else:
        assert values(hits.argv, "--spec-ngram-min-hits") == ["2"]
    assert refused(arm, EARLY_2025) == [f"mode {mode} needs --spec-type {mode}, which this build doesn't offer (it offers: none)"]


def test_ngram_mod_had_the_limits_of_all_drafters() -> None:
    assert words({"mode": "ngram-mod", "draft_limit": 32, "draft_min": 4, "ngram_size": 12}, SPRING_2026) == [
        *("--spec-type", "ngram-mod", "--draft", "32", "--draft-min", "4", "--spec-ngram-size-n", "12"),
    ]


@pytest.mark.parametrize(
    ("arm", "build", "told"),
    [
        ({"mode": "ngram-mod", "draft_limit": 8}, TODAY, ["--spec-ngram-mod-n-max", "8", "--spec-ngram-mod-n-min", "8"]),
        ({"mode": "ngram-mod", "draft_limit": 48}, TODAY, ["--spec-ngram-mod-n-max", "48"]),
        ({"mode": "ngram-mod", "draft_limit": 8}, SPRING_2026, ["--draft", "8"]),  # by itself 0 there
        ({**DRAFT, "draft_limit": 4}, EARLY_2025, ["--draft-max", "4", "--draft-min", "4"]),  # by itself 5 there
        ({**DRAFT, "draft_limit": 5}, EARLY_2025, ["--draft-max", "5"]),
        ({**DRAFT, "draft_limit": 4, "draft_min": 1}, EARLY_2025, ["--draft-max", "4", "--draft-min", "1"]),
        ({**DRAFT, "draft_limit": 1}, TODAY, ["--spec-draft-n-max", "1"]),
    ],
)
def test_a_limit_under_the_builds_own_minimum_lowers_it_or_nothing_would_be_drafted(
    arm: dict[str, Any], build: Capabilities, told: list[str]
) -> None:
    assert words(arm, build)[-len(told) :] == told
    assert ("min" in " ".join(told)) is ("min" in " ".join(words(arm, build)))


def test_settings_of_the_engine_in_each_dialect() -> None:
    split = {"--split-mode": "row", "--tensor-split": "3,1", "--device": "CUDA0,CUDA1", "--main-gpu": 1}
    settings = {"kv_type_k": "q8_0", "kv_type_v": "q8_0", "slots": 4, "batch": 256, "ubatch": 64, "flash_attention": "on", "extra": split}
    for build in (TODAY, NEWER, SPRING_2026, EARLY_2025):
        result = rendered({"mode": "off"}, build, allowed=LLAMA.DEFAULT_ALLOWED_FLAGS, context=1024, **settings)
        assert result.refusals == []
        given = {flag: values(result.argv, flag) for flag in (*split, "--cache-type-k", "--cache-type-v", "--batch-size", "--cache-reuse")}
        assert given == {k: [str(v)] for k, v in split.items()} | {
            "--cache-type-k": ["q8_0"],
            "--cache-type-v": ["q8_0"],
            "--batch-size": ["256"],
            "--cache-reuse": ["0"],
        }
        assert (values(result.argv, "--parallel"), values(result.argv, "--ctx-size")) == (["4"], ["4096"])
        flash = result.argv.index("--flash-attn")
        assert (result.argv[flash + 1] == "on") is (build is not EARLY_2025)
    assert "--flash-attn" not in rendered({"mode": "off"}, EARLY_2025, flash_attention="off").argv
    unclear = rendered({"mode": "off"}, EARLY_2025, flash_attention="auto").refusals
    assert "flash_attention auto: this build knows on (by --flash-attn) and off (without it) only" in unclear[0].message


# --- several drafters beside each other ---


def test_types_stand_in_the_order_in_which_the_engine_asks_them() -> None:
    arm = {**DRAFT, "draft_limit": 4, "also": ["ngram-cache", "ngram-mod", "ngram-simple"]}
    assert words(arm)[:2] == ["--spec-type", "ngram-simple,ngram-mod,ngram-cache,draft-simple"]
    assert words({"mode": "ngram-mod", "also": ["ngram-map-k"]})[:2] == ["--spec-type", "ngram-map-k,ngram-mod"]
    assert words({"mode": "mtp", "also": ["ngram-map-k4v"]})[:2] == ["--spec-type", "ngram-map-k4v,draft-mtp"]


def test_a_recorded_combination_can_be_asked_for() -> None:
    recorded = read("b11434-ngram-mod-and-draft-lv4.argv.txt").split("\n")[0]
    arm = {**DRAFT, "draft_limit": 4, "also": ["ngram-mod"], "also_limit": 8, "ngram_size": 3, "extra": {"--spec-ngram-mod-n-min": 2}}
    ours = rendered({k: v for k, v in arm.items() if k != "extra"}, NEWER).argv
    for flag in ("--spec-type", "--spec-draft-n-max", "--spec-ngram-mod-n-max", "--spec-ngram-mod-n-match"):
        assert values(ours, flag) == values(recorded.split(), flag)
    # also_limit lowers the least draft to itself; who wants another one says so, once
    assert refused(arm, NEWER) == ["--spec-ngram-mod-n-min is there twice in the command"]
    del arm["also_limit"]
    arm["extra"] = {"--spec-ngram-mod-n-min": 2, "--spec-ngram-mod-n-max": 8}
    assert values(rendered(arm, NEWER).argv, "--spec-ngram-mod-n-min") == ["2"]


def test_limits_and_sizes_of_those_beside() -> None:
    arm = {**DRAFT, "draft_limit": 4, "also": ["ngram-mod", "ngram-map-k"], "also_limit": 12, "ngram_size": 6, "ngram_hits": 2}
    assert words(arm) == [
        *("--spec-type", "ngram-map-k,ngram-mod,draft-simple", "--spec-draft-model", "/m/d.gguf", "--spec-draft-n-max", "4"),
        *("--spec-ngram-mod-n-max", "12", "--spec-ngram-mod-n-min", "12", "--spec-ngram-map-k-size-m", "12"),
        *("--spec-ngram-mod-n-match", "6", "--spec-ngram-map-k-size-n", "6", "--spec-ngram-map-k-min-hits", "2"),
    ]
    assert "--spec-ngram-mod-n-min" not in words(arm | {"also_limit": 64})


def test_the_n_gram_cache_has_no_limit_and_a_limit_for_it_is_no_quiet_one() -> None:
    assert refused({**DRAFT, "also": ["ngram-mod", "ngram-cache"], "also_limit": 4}) == [
        "mode ngram-cache of llama-server has no also_limit",
    ]
    assert refused({"mode": "ngram-cache", "ngram_size": 3}) == ["mode ngram-cache of llama-server has no ngram_size"]
    assert words({"mode": "ngram-simple", "ngram_size": 3, "also": ["ngram-cache"]})[-2:] == ["--spec-ngram-simple-size-n", "3"]


def test_where_the_model_alone_switches_on_an_n_gram_can_stand_beside_it() -> None:
    arm = {**DRAFT, "draft_limit": 8, "also": ["ngram-map-k"], "also_limit": 6}
    assert words(arm, SPRING_2026) == [
        *("--spec-type", "ngram-map-k", "--model-draft", "/m/d.gguf", "--draft", "8", "--spec-ngram-size-m", "6"),
    ]
    assert refused({**arm, "also": ["ngram-map-k", "ngram-simple"]}, SPRING_2026) == [
        "--spec-type takes one type in this build, so ngram-simple and ngram-map-k can't stand beside each other"
    ]
    assert refused(arm, EARLY_2025) == ["mode ngram-map-k needs --spec-type ngram-map-k, which this build doesn't offer (it offers: none)"]


def test_two_limits_of_one_flag_are_told_apart_or_refused() -> None:
    both = {**DRAFT, "draft_limit": 4, "also": ["ngram-mod"], "also_limit": 8}
    assert refused(both, SPRING_2026) == [
        "also_limit of ngram-mod is 8 and draft_limit of mode draft is 4, and in this build both are the flag --draft: give one value"
    ]
    assert words(both | {"also_limit": 4}, SPRING_2026).count("--draft") == 1
    longer = {**DRAFT, "draft_limit": 4, "also": ["ngram-simple"], "also_limit": 8}
    assert "set draft_limit to 8 or more, or also_limit to less" in refused(longer, SPRING_2026)[0]
    assert "set draft_limit to 8 or more" in refused({k: v for k, v in longer.items() if k != "draft_limit"}, SPRING_2026)[0]


@pytest.mark.parametrize("build", [TODAY, NEWER])
def test_whatever_is_beside_what_only_speculation_differs_from_the_baseline(build: Capabilities) -> None:
    arm = ALL_OF_A_MODEL | {"also": ["ngram-mod"], "also_limit": 6, "extra": {"--spec-draft-cpu-moe": True, "--spec-draft-poll": 1}}
    bare = LLAMA.without_speculation(rendered({"mode": "off"}, build).argv)
    assert LLAMA.without_speculation(rendered(arm, build).argv) == bare


# --- refusals ---


def test_all_that_a_build_lacks_is_told_at_once() -> None:
    build = TODAY.model_copy(
        update={
            "flags": {k: v for k, v in TODAY.flags.items() if v not in ("--spec-draft-n-max", "--spec-draft-p-split")},
            "spec_types": ["draft-simple", "ngram-simple"],
        }
    )
    arm = {**DRAFT, "draft_limit": 4, "p_split": 0.1, "also": ["ngram-mod"], "extra": {"--spec-draft-pol": 1}}
    assert [w.split(",")[0] for w in refused(arm, build)] == [
        "--spec-draft-pol is none of the flags of speculation that an arm may set (did you mean --spec-draft-poll?)",
        "mode ngram-mod needs --spec-type ngram-mod",
        "draft_limit of mode draft needs the flag --spec-draft-n-max or --draft-max (this build has removed it)",
        "p_split of mode draft needs the flag --spec-draft-p-split or --draft-p-split",
    ]


def test_a_draft_model_without_a_drafter_that_uses_it_reaches_no_command() -> None:
    """The engine would load it, answer without it, and warn of nothing; in older builds it would draft unasked."""
    for mode in ("off", "ngram-simple"):
        arm = {"name": "a", "mode": mode, "draft_model": "d"}
        spec = {"name": "n", "target": {"model": "t"}, "arms": [{"name": "off", "mode": "off"}, arm], "points": [{"workload": "w"}]}
        parsed, problems = parse_spec(spec)
        assert parsed is None
        assert any("draft_model" in p.field for p in problems)
    assert any(field == "draft_model" for field, _ in arm_faults({"mode": "off", "draft_model": "d"}))
    stored = read_stored_spec(
        {
            "name": "n",
            "target": {"model": "t"},
            "arms": [{"name": "off", "mode": "off"}, {"name": "a", "mode": "ngram-simple", "draft_model": "d"}],
            "points": [{"workload": "w"}],
        }
    ).arm("a")
    for build in (TODAY, SPRING_2026, EARLY_2025, OLDER):
        result = LLAMA.render(EngineSettings(), stored, build, HERE, allowed_flags=(), threads=1)
        assert "/m/d.gguf" not in result.argv
        assert result.refusals[0].message == "arm 'a': mode ngram-simple of llama-server has no draft_model"
    for build in (TODAY, NEWER):  # with a drafter that uses it, its type always stands beside it
        argv = words(DRAFT, build)
        assert argv[argv.index("--spec-draft-model") - 2 :][:2] == ["--spec-type", "draft-simple"]


def test_fields_of_other_engines_are_refused() -> None:
    assert refused({"mode": "ngram-simple", "ngram_min": 2}) == ["mode ngram-simple of llama-server has no ngram_min"]
    for mode in ("eagle", "medusa", "mlp-speculator"):
        assert refused({"mode": mode, "draft_model": "d"})[0].startswith(f"llama-server has no mode '{mode}'; its modes are draft, mtp")


def test_what_never_can_be_is_told_of_combinations_and_further_flags() -> None:
    arms = [
        Arm(name="a", mode="draft", draft_model="d", also=["ngram-cache"], also_limit=4, ngram_size=3, p_split=0.1),
        Arm(name="b", mode="mtp", also=["ngram-mod"], ngram_hits=2, extra={"--spec-draft-hf": "x/y", "--spec-draft-poll": "-x"}),
        Arm(name="c", mode="off", control=True, extra={"--no-mmap": True}),
    ]
    found = [(e.details["arm"], e.details["field"]) for e in LLAMA.never_possible(EngineSettings(), arms)]
    assert found == [
        *(("a", "ngram_size"), ("a", "also_limit"), ("b", "ngram_hits")),
        *(("b", "extra.--spec-draft-hf"), ("b", "extra.--spec-draft-poll"), ("c", "extra.--no-mmap")),
    ]
    assert all(e.remedy for e in LLAMA.never_possible(EngineSettings(), arms))


# --- further flags of an arm ---


def test_further_flags_of_speculation_are_added_by_the_builds_names() -> None:
    extra = {"--spec-draft-sampling": "probabilistic", "--poll-draft": 0, "--override-tensor-draft": ["a=CPU", "b=CPU"]}
    assert words({**DRAFT, "extra": extra | {"--spec-draft-backend-sampling": False}}, NEWER)[4:] == [
        *("--spec-draft-sampling", "probabilistic", "--spec-draft-poll", "0"),
        *("--spec-draft-override-tensor", "a=CPU", "--spec-draft-override-tensor", "b=CPU", "--no-spec-draft-backend-sampling"),
    ]
    lacking = refused({**DRAFT, "extra": extra}, TODAY)
    assert len(lacking) == 1
    assert lacking[0].startswith("this build has no flag --spec-draft-sampling")


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--spec-draft-hf", "x/y", "--spec-draft-hf is none of the flags of speculation"),
        ("--lookup-cache-dynamic", "/tmp/x", "none of the flags"),
        ("--lookup-cache-static", "/tmp/x", "none of the flags"),
        ("--spec-synth-len", 3, "none of the flags"),
        ("--spec-synth-rates", "1,1", "none of the flags"),
        ("--spec-type", "ngram-mod", "none of the flags"),
        ("--spec-default", True, "none of the flags"),
        ("--fim-qwen-7b-spec", True, "none of the flags"),
        ("--model", "/etc/passwd", "none of the flags"),
        ("--tools", "all", "none of the flags"),
        ("--spec-draft-model", "/m/other.gguf", "is set by the arm's draft_model: "),
        ("--model-draft", "/m/other.gguf", "is set by the arm's draft_model"),
        ("--spec-draft-n-max", 9, "is set by the arm's draft_limit"),
        ("--draft-max", 9, "is set by the arm's draft_limit"),
        ("draft_sample_method", "greedy", "draft_sample_method is none of the flags"),
        ("--spec-draft-poll", "--tools", "begins with a dash and would be read as a flag"),
        ("--spec-draft-cpu-moe", 3, "--spec-draft-cpu-moe takes no value in this build"),
        ("--spec-draft-poll", True, "--spec-draft-poll takes a value in this build"),
        ("--spec-draft-cpu-moe", False, "false needs the flag --no-spec-draft-cpu-moe"),
    ],
)
def test_flags_that_an_arm_may_not_set_are_refused_by_name(flag: str, value: Any, said: str) -> None:
    result = rendered({**DRAFT, "extra": {flag: value}}, NEWER)
    assert len(result.refusals) == 1
    body = result.refusals[0]
    assert said.rstrip(": ") in body.message
    assert (body.code, body.details["field"]) == ("flag_not_allowed", f"extra.{flag}")
    assert body.remedy
    assert str(value) not in result.argv[len(rendered(DRAFT, NEWER).argv) :]


@pytest.mark.parametrize(
    ("arm", "extra", "said"),
    [
        (DRAFT, {"--spec-ngram-mod-n-max": 3}, "says something of ngram-mod, which this arm doesn't have"),
        ({**DRAFT, "also": ["ngram-map-k"]}, {"--spec-ngram-map-k4v-size-n": 3}, "says something of ngram-map-k4v, which"),
        ({"mode": "ngram-mod"}, {"--spec-draft-cpu-moe": True}, "says something of a helper model, which"),
        ({"mode": "ngram-mod"}, {"--spec-ngram-mod-n-max": 3}, "is set by the arm's draft_limit"),
        ({"mode": "ngram-mod"}, {"--spec-ngram-mod-n-min": 3}, "is set by the arm's draft_min"),
        ({"mode": "ngram-simple"}, {"--spec-ngram-simple-size-m": 3}, "is set by the arm's draft_limit"),
        (
            DRAFT,
            {"--spec-draft-backend-sampling": True, "--no-spec-draft-backend-sampling": True},
            "--no-spec-draft-backend-sampling says the opposite of --spec-draft-backend-sampling",
        ),
    ],
)
def test_a_flag_that_the_engine_would_not_heed_or_that_says_a_field_again_is_refused(
    arm: dict[str, Any], extra: dict[str, Any], said: str
) -> None:
    (told,) = refused({**arm, "extra": extra}, TODAY)
    assert said in told


def test_sizes_of_one_among_several_drafters_can_be_said() -> None:
    arm = {"mode": "ngram-simple", "also": ["ngram-mod"], "extra": {"--spec-ngram-simple-size-n": 5, "--spec-ngram-mod-n-max": 8}}
    assert values(rendered(arm).argv, "--spec-ngram-simple-size-n") == ["5"]


def test_opposites_of_the_engine_s_own_switches_are_refused_too() -> None:
    result = rendered(
        {"mode": "off"},
        allowed=["--kv-offload", "--no-kv-offload"],
        extra={"--no-kv-offload": True, "--kv-offload": True},
    )
    assert [r.message for r in result.refusals] == ["engine.extra: --kv-offload says the opposite of --no-kv-offload"]


def test_a_switch_of_the_engine_takes_no_value_and_others_need_one() -> None:
    def told(extra: dict[str, Any]) -> list[str]:
        return [r.message for r in rendered({"mode": "off"}, allowed=LLAMA.DEFAULT_ALLOWED_FLAGS, extra=extra).refusals]

    assert told({"--swa-full": "yes"}) == ["engine.extra: --swa-full takes no value in this build"]
    assert told({"--n-cpu-moe": True}) == ["engine.extra: --n-cpu-moe takes a value in this build"]
    assert told({"--swa-full": True, "--n-cpu-moe": 2}) == []

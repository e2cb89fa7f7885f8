"""vLLM's flags and speculative config: what a build offers, and that nothing which runs code or reads files gets past the lists."""

from __future__ import annotations

import json
from typing import Any

import pytest
from speccore.engines import Bindings, Rendered, default_allowed_flags, engine
from speccore.engines.vllm_flags import ALLOWABLE, IMPLIED, NEVER_ENVIRONMENT, NEVER_FLAGS, SET_FLAGS
from speccore.person import STORED
from speccore.spec import Arm, EngineSettings, ExperimentSpec, SamplingTest, parse_spec

from tests.core.vllm_help import HELP

VLLM = engine("vllm")
TODAY = VLLM.capabilities(HELP)
HERE = Bindings(executable="/e/vllm", target="/m/target", draft="/m/draft", port=9000)
EVERYTHING = [*TODAY.flags, *TODAY.flags.values()]  # a host whose owner allows all that there is
NGRAM = {"mode": "ngram", "draft_limit": 4, "ngram_size": 4, "ngram_min": 2}
DRAFT = {"mode": "draft", "draft_model": "d", "draft_limit": 3}


def stored(kind: Any, **data: Any) -> Any:
    """As it would come out of a database or off the wire, past the rules for what a person writes."""
    return kind.model_validate(data, context=STORED)


def rendered(arm: dict[str, Any], bindings: Bindings = HERE, allowed: Any = EVERYTHING, **settings: Any) -> Rendered:
    made = stored(Arm, name="a", **arm)
    result: Rendered = VLLM.render(stored(EngineSettings, **settings), made, TODAY, bindings, allowed_flags=allowed, threads=3)
    return result


def config_of(result: Rendered) -> dict[str, Any]:
    assert not result.refusals, result.refusals
    found: dict[str, Any] = json.loads(result.argv[result.argv.index("--speculative-config") + 1])
    return found


# --- what a build offers ---


def test_help_gives_flags_with_their_negative_forms_aliases_methods_and_choices() -> None:
    flags = TODAY.flags
    assert TODAY.dialect == "vllm"
    assert flags["--no-enable-prefix-caching"] == "--no-enable-prefix-caching"
    assert flags["-sc"] == flags["--speculative-config"] == "--speculative-config"
    assert flags["--device-memory-utilization"] == "--gpu-memory-utilization"
    assert flags["-tp"] == "--tensor-parallel-size"
    assert {"--enforce-eager", "--no-enforce-eager", "--grpc"} <= set(TODAY.switches)
    assert not {"--dtype", "--port", "--speculative-config"} & set(TODAY.switches)
    assert set(VLLM.SPEC_TYPES.values()) <= set(TODAY.spec_types)
    assert not [m for m in TODAY.spec_types if m.endswith("_mtp")]  # older names of mtp
    assert TODAY.choices["--dtype"] == ["auto", "bfloat16", "float", "float16", "float32", "half"]
    assert VLLM.capabilities("usage: something else").dialect == "none"


def test_a_build_without_a_list_of_methods_is_believed_to_know_them_if_it_has_a_speculative_config() -> None:
    without = HELP.replace("--spec-method {", "--spec-other {")
    assert VLLM.capabilities(without).spec_types == list(VLLM.SPEC_TYPES.values())
    assert VLLM.capabilities(without.replace("--speculative-config", "--other-config")).spec_types == []


def test_a_method_that_the_build_lacks_is_refused_with_those_that_it_has() -> None:
    build = TODAY.model_copy(update={"spec_types": ["ngram", "mtp"]})
    made = VLLM.render(EngineSettings(), Arm(name="a", **DRAFT), build, HERE, allowed_flags=(), threads=1)
    assert [r.message for r in made.refusals] == [
        "arm 'a': mode draft needs the method draft_model, which this build doesn't offer (it offers: ngram, mtp)"
    ]


def test_tables_name_no_flag_twice_and_none_that_no_build_has() -> None:
    tables = [set(ALLOWABLE), set(IMPLIED), set(NEVER_FLAGS), set(SET_FLAGS)]
    for i, one in enumerate(tables):
        assert one <= TODAY.flags.keys()
        for other in tables[i + 1 :]:
            assert not one & other
    assert not [flag for flag in ALLOWABLE if VLLM.is_speculation(flag)]


# --- the flags of engine.extra ---

#: What must be refused by its name, whatever a host allows.
DANGEROUS = """
--enable-trace-replay --trust-remote-code --middleware --tool-parser-plugin --reasoning-parser-plugin --io-processor-plugin
--logits-processors --worker-cls --worker-extension-cls --scheduler-cls --model-class-overrides --distributed-executor-backend
--kv-transfer-config --ec-transfer-config --compilation-config --additional-config --tool-server --logging-config --config
--chat-template --allowed-local-media-path --hf-config-path --lora-modules --ssl-keyfile --ssl-certfile --ssl-ca-certs
--ssl-cert-reqs --ssl-ciphers --uds --download-dir --profiler-config --hf-token --otlp-traces-endpoint --kv-events-config
--trust-request-chat-template --hf-overrides --structured-outputs-config --log-config-file --tokenizer
""".split()  # noqa: SIM905 - names read better as a table


@pytest.mark.parametrize("flag", DANGEROUS)
def test_what_runs_code_or_reads_files_is_refused_by_name_on_a_host_that_allows_all(flag: str) -> None:
    for value in (True, "/etc/passwd"):
        result = rendered({"mode": "off"}, extra={flag: value})
        assert [(r.code, r.details["flag"]) for r in result.refusals] == [("flag_not_allowed", flag)]
        assert flag in result.refusals[0].message
        assert not [word for word in result.argv if flag in word or word == value]
    settings = stored(EngineSettings, extra={flag: True})
    assert [e.details["flag"] for e in VLLM.never_possible(settings, [])] == [flag]  # and before any host is asked


def test_no_flag_outside_the_list_gets_into_a_command() -> None:
    """Every name of the help, long and short, allowed by the host's owner."""
    before = rendered({"mode": "off"}).argv
    others = [flag for flag in TODAY.flags if TODAY.flags[flag] not in ALLOWABLE]
    assert len(others) > 300
    for flag in others:
        for value in (True, "x"):
            result = rendered({"mode": "off"}, extra={flag: value})
            assert [r.details["flag"] for r in result.refusals] == [flag]
            assert result.argv == before


@pytest.mark.parametrize(
    "given",
    [
        "--trust-remote",  # argparse takes the beginning of a name
        "--trust",
        "--middlew",
        "--enforce",
        "--trust_remote_code",  # vLLM reads underscores as dashes
        "--trust-remote-code=true",
        "--middleware=os.system",
        "--compilation-config.mode",
        "--compilation-config.pass_config.x",
        "-cc.mode",
        "-cc",
        "-O3",
        "-sc",
        "--speculative-config",
        "--speculative-config.model",
        "--speculative-config.method",
        "--spec-model",
        "--spec-method",
        "--dtype=float32",
        "--dtype ",
        " --trust-remote-code",
        "dtype",
        "--",
        "-",
        "",
        "--dtype\n--trust-remote-code",
        "--DTYPE",
        "+trust-remote-code",
    ],
)
def test_no_other_spelling_of_a_flag_is_taken(given: str) -> None:
    result = rendered({"mode": "off"}, extra={given: "float32"})
    assert result.refusals
    assert result.argv == rendered({"mode": "off"}).argv


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--dtype", "float32 --trust-remote-code"),
        ("--dtype", "--trust-remote-code"),
        ("--dtype", ["float32", "--trust-remote-code"]),
        ("--dtype", "float64"),  # its help lists the types
        ("--quantization", '{"method": "x"}'),
        ("--quantization", "a.b.C"),
        ("--quantization", "../x"),
        ("--attention-backend", "my.backend.Class"),
        ("--block-size", "16;rm"),
        ("--block-size", -1),
        ("--enforce-eager", "x"),
        ("--enforce-eager", 1),
        ("--load-format", "pt"),
        ("--load-format", "dummy"),
        ("--tensor-parallel-size", True),
        ("--moe-backend", "no-such"),
    ],
)
def test_a_flag_takes_only_values_of_its_kind(flag: str, value: Any) -> None:
    result = rendered({"mode": "off"}, extra={flag: value})
    assert [r.code for r in result.refusals] == ["flag_not_allowed"]
    assert f"{flag} is " in result.refusals[0].message
    assert result.refusals[0].remedy
    assert result.argv == rendered({"mode": "off"}).argv


def test_allowed_flags_are_rendered_by_the_builds_name_each_with_its_value() -> None:
    extra = {"--dtype": "float32", "--enforce-eager": True, "--enable-chunked-prefill": False, "--device-memory-utilization": 0.8, "-tp": 2}
    result = rendered({"mode": "off"}, extra=extra)
    assert result.refusals == []
    assert result.argv[-8:] == [
        *("--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill", "--gpu-memory-utilization", "0.8"),
        *("--tensor-parallel-size", "2"),
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [("--gpu-memory-utilization", "--device-memory-utilization"), ("--enable-chunked-prefill", "--no-enable-chunked-prefill")],
)
def test_a_flag_is_said_once_whatever_its_name(first: str, second: str) -> None:
    value: Any = 0.5 if "memory" in first else True
    refused = rendered({"mode": "off"}, extra={first: value, second: value}).refusals
    assert [r.message for r in refused] == [f"engine.extra: {second} says again what {first} says"]


def test_what_the_host_does_not_allow_is_refused() -> None:
    result = rendered({"mode": "off"}, allowed=default_allowed_flags(), extra={"--dtype": "half", "--load-format": "safetensors"})
    assert [r.message for r in result.refusals] == ["engine.extra: this host doesn't allow --load-format"]


@pytest.mark.parametrize("flag", IMPLIED)
def test_what_speculation_implies_is_left_to_the_engine_unless_a_control_carries_it(flag: str) -> None:
    value: Any = True if flag.endswith("scheduling") else 8
    result = rendered({"mode": "off"}, extra={flag: value})
    assert "settles it in each arm" in result.refusals[0].message
    control = rendered({"mode": "off", "control": True, "extra": {flag: value}}, allowed=())
    assert control.refusals == []
    assert flag in control.argv
    assert VLLM.without_speculation(control.argv) == VLLM.without_speculation(rendered({"mode": "off"}).argv)


def test_a_control_carries_nothing_else() -> None:
    for flag in ("--trust-remote-code", "--dtype", "--max-num-seqs", "--speculative-config", "--no-such-flag"):
        result = rendered({"mode": "off", "control": True, "extra": {flag: "x"}})
        assert result.refusals[0].message.startswith("arm 'a': extra: ")
        assert result.refusals[0].details["flag"] == flag
        assert result.argv == rendered({"mode": "off"}).argv


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"gpu_layers": 99}, "engine.gpu_layers"),
        ({"ubatch": 64}, "engine.ubatch"),
        ({"flash_attention": "on"}, "engine.flash_attention"),
        ({"kv_type_k": "fp8"}, "engine.kv_type_v"),
        ({"kv_type_k": "q8_0", "kv_type_v": "q8_0"}, "engine.kv_type_k"),
    ],
)
def test_settings_that_mean_nothing_there_are_refused_with_what_to_do_instead(settings: dict[str, Any], field: str) -> None:
    refused = rendered({"mode": "off"}, **settings).refusals
    assert [r.details["place"] for r in refused] == [field]
    assert refused[0].remedy


# --- the environment, and the whole ---


def test_names_in_the_environment_that_no_owner_may_set() -> None:
    assert set(NEVER_ENVIRONMENT) == {
        "VLLM_PLUGINS",
        "VLLM_SERVER_DEV_MODE",
        "VLLM_ALLOW_INSECURE_SERIALIZATION",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
        "HF_TOKEN",
        "LD_PRELOAD",
        "LD_AUDIT",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "PYTHONUSERBASE",
    }
    assert all(NEVER_ENVIRONMENT.values())
    assert VLLM.NEVER_ENVIRONMENT is NEVER_ENVIRONMENT


def test_an_engine_downloads_nothing_reports_nothing_and_obeys_threads_only_where_asked() -> None:
    env = rendered({"mode": "off"}).env
    assert {env[name] for name in ("HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK")} == {"1"}
    assert "OMP_NUM_THREADS" not in env
    assert rendered({"mode": "off"}, threads=3).env["OMP_NUM_THREADS"] == "3"


def test_default_allowed_flags_of_all_engines_hold_none_that_vllm_must_not_get() -> None:
    assert not {*NEVER_FLAGS, *IMPLIED, *SET_FLAGS} & set(default_allowed_flags())


def spec_with(point: dict[str, Any], *arms: dict[str, Any]) -> ExperimentSpec:
    spec, problems = parse_spec(
        {
            "name": "t",
            "target": {"model": "t"},
            "runtime": {"engine": "vllm"},
            "arms": [{"name": "off", "mode": "off"}, *arms],
            "points": [{"workload": "w", **point}],
        }
    )
    assert spec, problems
    return spec


def test_min_p_beside_speculation_is_refused_beforehand_since_vllm_answers_400() -> None:
    asked = {"sampling": {"temperature": 0.8, "min_p": 0.1}}
    spec = spec_with(asked, {"name": "n", **NGRAM})
    assert [(e.details["place"], e.code) for e in VLLM.never_asked(spec)] == [("points.0.sampling.min_p", "arm_not_supported")]
    assert VLLM.never_asked(spec_with(asked, {"name": "again", "mode": "off", "control": True})) == []
    assert VLLM.never_asked(spec_with({"sampling": {"temperature": 0.8, "top_p": 0.9}}, {"name": "n", **NGRAM})) == []
    drawn = {"workload": "w", "sampling": {"temperature": 0.8, "min_p": 0.1}}
    tested = spec_with({}, {"name": "n", **NGRAM}).model_copy(update={"sampling_test": SamplingTest.model_validate(drawn)})
    assert [e.details["place"] for e in VLLM.never_asked(tested)] == ["sampling_test.sampling.min_p"]


def test_a_top_p_of_nothing_is_refused_beforehand() -> None:
    spec = spec_with({"sampling": {"temperature": 0.8, "top_p": 0}}, {"name": "again", "mode": "off", "control": True})
    assert [e.details["place"] for e in VLLM.never_asked(spec)] == ["points.0.sampling.top_p"]

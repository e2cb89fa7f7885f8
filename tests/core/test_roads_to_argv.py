"""No text of a server becomes a word of a command or of an environment but through the allow-lists.

Two halves. Every place where the agent starts a program, or renders a command for one, is listed here with where its words come
from: a new one fails until somebody has said so. And whatever stands in the fields of an experiment, the rendered words are flags
of the allow-lists, and values that no engine can read as flags.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from speccore.engines import Bindings, Rendered, engine
from speccore.engines.llamacpp_arms import _OF_MODELS, _OF_NGRAMS, ARM_EXTRA_FLAGS, DRAFT_MODEL_FLAGS, SPEC_TYPE_FLAG
from speccore.engines.vllm_config import EXTRA_KEYS, FIELD_KEYS
from speccore.engines.vllm_flags import ALLOWABLE, IMPLIED, REQUEST_STEPS_FLAG, SPECULATIVE_CONFIG_FLAG
from speccore.inventory import Capabilities
from speccore.modes import MODES
from speccore.reference import reference_builds
from speccore.spec import ExperimentSpec, read_stored_spec

AGENT = Path(__file__).parents[2] / "agent"

#: (module, function): where the words of what it starts come from.
STARTS = {
    ("specagent.keeper", "_become_engine"): "the order of the agent that started the keeper: what Engine was given",
    ("specagent.launch", "_keeper_started"): "a constant: the keeper; the engine's own words go through its pipe",
    ("specagent.starting", "ProcessStart.begin"): "what start_of rendered",
    ("specagent.starting", "start_of"): "launch_command, which renders by the allow-lists; further words of the two callers below",
    ("specagent.container_start", "start_of"): "prepared.render, by the allow-lists; paths inside the container are constants",
    ("specagent.container_start", "ContainerRunning.__init__"): "a constant, with a folder of the agent's own making",
    ("specagent.container_keeper", "_begin"): "the order of the agent that started it: what ContainerStart rendered",
    ("specagent.container_keeper", "_close_host_services"): "a constant, and the pid of the container's first process",
    ("specagent.container_runtime", "_ask"): "the owner's configuration and the engine's questions, which are constants",
    ("specagent.attached", "start_of"): "nothing is started: the address is the owner's, by the arm's name",
    ("specagent.distributions", "environment_of"): "the interpreter of a script that the owner's configuration names",
    ("specagent.probing", "ask"): "the owner's configuration and the engine's questions, which are constants",
    ("specagent.probing", "compiled_for"): "the owner's configuration: a library of a build",
    ("specagent.runtimes", "_libraries"): "the owner's configuration: ldd of a build's executable",
    ("specagent.vllm_runtime", "_help"): "the owner's configuration, and a constant question",
    ("specagent.keeper", "main"): "nothing: a fork of the keeper itself",
    ("specagent.keeper", "_start"): "nothing: the fork that becomes the engine, see _become_engine",
    ("specagent.keeper", "_prctl"): "nothing: asks the C library for the parent-death signal",
    ("specagent.fitness", "_timex_status"): "nothing: asks the C library for the clock",
}
#: Functions that pass further words to a rendered command, and what these are.
MORE_WORDS = {
    ("specagent.arm_engine", "standing"): "what its caller gives",
    ("specagent.synthesis", "_speed"): "a constant flag of the engine's module and a number of the command line",
    ("specagent.starting", "start_of"): "what its caller gives, to the other kinds of build",
}
#: Modules that may make a rendered command, all of them without any I/O.
RENDERERS = {"speccore.engines.llamacpp", "speccore.engines.vllm", "speccore.attached"}

_PROGRAMS = re.compile(
    r"^(subprocess\.\w+|os\.(exec|spawn|posix_spawn)\w*|os\.(system|popen|fork|startfile)|pty\.\w+|multiprocessing\.\w+|asyncio\.create_subprocess\w+"
    r"|eval|exec|compile|__import__|importlib\.import_module|runpy\.\w+|ctypes\.CDLL)$"
)
_CONTAINERS = {"create_container", "create_container_from_config", "create_container_config", "exec_create", "exec_run"}
#: Of the names above: they start nothing.
_HARMLESS = {"subprocess.TimeoutExpired", "subprocess.SubprocessError", "subprocess.CalledProcessError"}


@cache
def calls(package: str) -> list[tuple[str, str, ast.Call, str]]:
    """(module, qualified function, call, name of what is called) of each call in the package."""
    return [
        (module, where, call, ast.unparse(call.func)) for module, tree in trees(package).items() for where, call in _calls_below(tree, ())
    ]


@cache
def trees(package: str) -> dict[str, ast.Module]:
    paths = sorted((AGENT / package).rglob("*.py"))
    return {".".join(path.relative_to(AGENT).with_suffix("").parts): ast.parse(path.read_text()) for path in paths}


def _calls_below(node: ast.AST, inside: tuple[str, ...]) -> Iterator[tuple[str, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if isinstance(child, ast.Call):
            yield ".".join(inside), child
        yield from _calls_below(child, (*inside, child.name) if named else inside)  # type: ignore[attr-defined]


@cache
def starters() -> frozenset[str]:
    """The agent's classes that stand for something started, and what is derived from them."""
    found = {"Engine", "ProcessStart", "ContainerStart", "AttachedStart"}
    classes = [node for tree in trees("specagent").values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while more := {c.name for c in classes if {ast.unparse(base).rpartition(".")[2] for base in c.bases} & found} - found:
        found |= more
    return frozenset(found)


def is_start(name: str) -> bool:
    if name in _HARMLESS:
        return False
    if name.rpartition(".")[2] in starters():
        return True
    return bool(_PROGRAMS.match(name)) or name.rpartition(".")[2] in _CONTAINERS or name.endswith(("containers.run", "containers.create"))


def test_every_place_that_starts_a_program_is_known() -> None:
    found = {(module, where) for module, where, _, name in calls("specagent") if is_start(name)}
    assert found - STARTS.keys() == set(), "say in STARTS where its words come from, or use what is there"
    assert STARTS.keys() - found == set(), "these start nothing any more: take them out"


def test_no_program_is_started_through_a_shell_or_an_environment_that_was_changed() -> None:
    never = ("os.putenv", "os.unsetenv", "os.environ.update", "os.environ.setdefault", "os.environ.pop", "os.system", "eval", "exec")
    for package in ("specagent", "speccore"):
        for module, where, call, name in calls(package):
            assert not any(k.arg == "shell" for k in call.keywords), (module, where)
            assert name not in never, (module, where)
        for module, tree in trees(package).items():
            for node in ast.walk(tree):
                targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [getattr(node, "target", node)]
                assert not any(ast.unparse(t).startswith("os.environ") for t in targets if isinstance(t, ast.Subscript)), module


def test_the_contract_starts_nothing() -> None:
    found = {(module, where, name) for module, where, _, name in calls("speccore") if is_start(name)}
    assert found == {("speccore.answer_checks", "_python", "compile")}  # to a syntax tree, which is never run
    (compiled,) = [call for module, _, call, name in calls("speccore") if (module, name) == ("speccore.answer_checks", "compile")]
    assert "PyCF_ONLY_AST" in ast.unparse(compiled)


def test_commands_are_rendered_in_known_modules_and_added_to_by_known_functions() -> None:
    made = {
        module for package in ("specagent", "speccore") for module, _, _, name in calls(package) if name.rpartition(".")[2] == "Rendered"
    }
    assert made == RENDERERS
    usual = {"start_of": 2, "standing": 4}  # positional arguments without further words
    passing = {
        (module, where)
        for module, where, call, name in calls("specagent")
        if len(call.args) > usual.get(name.rpartition(".")[2], 99)
        or (name.rpartition(".")[2] in usual and any(k.arg == "more" for k in call.keywords))
    }
    assert passing == MORE_WORDS.keys()


# --- whatever an experiment says ---

NASTY = [
    *(
        "--tools",
        "--api-key",
        "--model",
        "-md",
        "-",
        "--",
        "-1",
        "-1.5",
        "--model=/etc/passwd",
        "--trust-remote-code",
        "--spec-type",
        "-x y",
    ),
    *(
        "$(id)",
        "; rm -rf /",
        "a b",
        "\n--tools",
        "a\0b",
        "../../etc/passwd",
        "/etc/passwd",
        "pkg.Class",
        "\ud800",
        "{port}",
        "",
        " --tools",
        "=--tools",
    ),
]
LLAMA_BUILDS = [b.capabilities for b in reference_builds("llama-server")]
VLLM_BUILDS = [b.capabilities for b in reference_builds("vllm")]
NAMED = sorted({flag for build in LLAMA_BUILDS + VLLM_BUILDS for flag in build.flags if flag.startswith("--")})
ALLOWED = sorted({flag for name in ("llama-server", "vllm") for flag in engine(name).DEFAULT_ALLOWED_FLAGS})
HERE = Bindings(executable="/e/engine", target="/m/target", draft="/m/draft", port=9000)

texts = st.one_of(st.sampled_from(NASTY), st.text(max_size=8))
one_value = st.one_of(texts, st.integers(-9, 9), st.floats(-2, 2), st.booleans())
values = st.one_of(one_value, st.lists(st.one_of(texts, st.integers(-9, 9)), max_size=3))
flags = st.one_of(st.sampled_from(NAMED), st.sampled_from(sorted(ARM_EXTRA_FLAGS)), texts)
keys = st.one_of(
    flags, st.sampled_from(sorted({key for own in EXTRA_KEYS.values() for key in own})), st.sampled_from(["model", "method", "code"])
)
modes = st.one_of(st.sampled_from(sorted(MODES)), texts)
#: Arms as people write them, of which one or two things are then something else.
GOOD_ARMS: list[dict[str, Any]] = [
    {"mode": "off", "control": True},
    {"mode": "draft", "draft_model": "d", "draft_limit": 4},
    {"mode": "draft", "draft_model": "d", "draft_limit": 4, "also": ["ngram-mod"], "extra": {"--spec-draft-poll": 1}},
    {"mode": "mtp", "draft_limit": 2},
    {"mode": "eagle3", "draft_model": "d", "draft_limit": 2},
    {"mode": "ngram", "draft_limit": 4, "ngram_size": 3},
    {"mode": "ngram-mod", "draft_limit": 8},
    {"mode": "suffix"},
]
twists = st.fixed_dictionaries(
    {},
    optional={
        "name": texts,
        "mode": modes,
        "draft_model": texts,
        "draft_device": texts,
        "draft_kv_type_k": texts,
        "draft_kv_type_v": texts,
        "draft_min": st.integers(-2, 2000),
        "p_min": st.floats(-1, 2),
        "also": st.lists(modes, max_size=2),
        "extra": st.dictionaries(keys, values, max_size=2),
    },
)
arms = st.builds(
    lambda good, twist, keep: {"name": "a"} | good | dict(list(twist.items())[:keep]), st.sampled_from(GOOD_ARMS), twists, st.integers(0, 2)
)
engines_settings = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"extra": st.dictionaries(st.one_of(st.sampled_from(ALLOWED), flags), values, max_size=2)}),
    st.fixed_dictionaries({}, optional={"kv_type_k": texts, "kv_type_v": texts, "flash_attention": texts, "batch": st.integers(-2, 9)}),
)


def sent(arm: dict[str, Any], settings_: dict[str, Any]) -> ExperimentSpec | None:
    """As the agent reads what a server sends it: people's rules are not asked, types are. None: refused before anything is rendered."""
    data = {
        "name": "n",
        "target": {"model": "t"},
        "engine": settings_,
        "arms": [{"name": "off", "mode": "off"}, arm],
        "points": [{"workload": "w"}],
    }
    try:
        return read_stored_spec(data)
    except (ValidationError, UnicodeEncodeError):
        return None


def rendered(name: str, spec: ExperimentSpec, build: Capabilities, allowed: list[str]) -> Rendered:
    result: Rendered = engine(name).render(spec.engine, spec.arms[1], build, HERE, allowed_flags=allowed, threads=2)
    return result


def check_words(words: list[str], permitted: set[str], switches: set[str]) -> None:
    """Each word is a permitted flag, or the one value of the flag before it, which no engine can read as a flag."""
    before = ""
    for word in words:
        if word.startswith("-") and not re.fullmatch(r"-[0-9]+(\.[0-9]+)?", word):
            assert word in permitted, word
            before = word
        else:
            assert before, f"{word!r} follows no flag"
            assert before not in switches, f"{word!r} follows {before}, which takes no value"
            assert "\0" not in word
            word.encode()
            before = ""


#: What SpecWeb sets by itself of llama-server, by any name that a build has for it.
LLAMA_FIXED = {
    *("--model", "--host", "--port", "--ctx-size", "--parallel", "--threads", "--gpu-layers", "--cache-type-k", "--cache-type-v"),
    *("--batch-size", "--ubatch-size", "--flash-attn", "--fit", "--cache-prompt", "--no-cache-prompt", "--cache-ram", "--cache-reuse"),
    *("--metrics", "--verbosity", "--no-ui", "--no-webui", "--offline"),
}
LLAMA_ARM = {
    *(SPEC_TYPE_FLAG, *DRAFT_MODEL_FLAGS, *ARM_EXTRA_FLAGS),
    *(flag for own in (_OF_MODELS, *_OF_NGRAMS.values()) for names in own.values() for flag in names),
}


def long_names(build: Capabilities, flags_: set[str] | list[str]) -> set[str]:
    return {build.flags.get(flag, flag) for flag in flags_}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(arm=arms, asked=engines_settings, which=st.sampled_from(range(len(LLAMA_BUILDS))))
def test_words_for_llama_server(arm: dict[str, Any], asked: dict[str, Any], which: int) -> None:
    module, build = engine("llama-server"), LLAMA_BUILDS[which]
    if (spec := sent(arm, asked)) is None:
        return
    allowed = list(module.DEFAULT_ALLOWED_FLAGS)
    result = rendered("llama-server", spec, build, allowed)
    permitted = (
        long_names(build, LLAMA_FIXED | LLAMA_ARM) | set(allowed) | {f"--no-{f.removeprefix('--')}" for f in (*allowed, *ARM_EXTRA_FLAGS)}
    )
    assert result.argv[0] == HERE.executable
    assert result.env == {}
    if result.refusals:  # then it is started nowhere
        return
    check_words(result.argv[1:], permitted | long_names(build, allowed), set(build.switches))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(arm=arms, asked=engines_settings, which=st.sampled_from(range(len(VLLM_BUILDS))))
def test_words_for_vllm(arm: dict[str, Any], asked: dict[str, Any], which: int) -> None:
    module, build = engine("vllm"), VLLM_BUILDS[which]
    if (spec := sent(arm, asked)) is None:
        return
    allowed = list(module.DEFAULT_ALLOWED_FLAGS)
    result = rendered("vllm", spec, build, allowed)
    set_by_us = {
        *("--served-model-name", "--host", "--port", "--max-model-len", "--max-num-seqs", "--kv-cache-dtype", "--max-num-batched-tokens"),
        *("--enable-prefix-caching", "--no-enable-prefix-caching", "--generation-config", "--stream-interval", "--seed"),
        *(
            "--enable-per-request-metrics",
            "--enable-prompt-tokens-details",
            "--enable-tokenizer-info-endpoint",
            SPECULATIVE_CONFIG_FLAG,
            REQUEST_STEPS_FLAG,
        ),
    }
    extra = {*ALLOWABLE, *IMPLIED}
    assert result.argv[:3] == [HERE.executable, "serve", HERE.target]
    if result.refusals:
        return
    check_words(
        result.argv[3:], long_names(build, set_by_us | extra) | {f"--no-{f.removeprefix('--')}" for f in extra}, set(build.switches)
    )
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]*", value) for value in result.env.values())
    if SPECULATIVE_CONFIG_FLAG in result.argv:
        config = json.loads(result.argv[result.argv.index(SPECULATIVE_CONFIG_FLAG) + 1])
        mode = spec.arms[1].mode
        assert config.keys() <= {"method", "model", *FIELD_KEYS[mode].values(), *EXTRA_KEYS[mode]}
        assert config.get("model", HERE.draft) == HERE.draft
        assert config["method"] == module.SPEC_TYPES[mode]


@pytest.mark.parametrize("name", ["llama-server", "vllm"])
def test_a_flag_that_a_hosts_owner_allows_by_mistake_stays_refused_where_it_is_ours(name: str) -> None:
    build = reference_builds(name)[0].capabilities
    owned = sorted(flag for flag in engine(name).OWNED_FLAGS if flag in build.flags)
    for flag in owned:
        spec = sent({"name": "a", "mode": "off", "control": True}, {"extra": {flag: "x"}})
        assert spec is not None
        assert rendered(name, spec, build, owned).refusals, flag


@pytest.mark.parametrize("name", ["llama-server", "vllm"])
@pytest.mark.parametrize("given", [{"kv_type_k": "--tools", "kv_type_v": "--tools"}, {"kv_type_k": "a\0", "kv_type_v": "a\0"}])
def test_a_typed_setting_that_would_be_a_flag_is_refused_though_no_rule_of_peoples_input_was_asked(
    name: str, given: dict[str, Any]
) -> None:
    spec = sent({"name": "a", "mode": "off", "control": True}, given)
    assert spec is not None
    assert rendered(name, spec, reference_builds(name)[0].capabilities, []).refusals


@pytest.mark.parametrize(
    ("arm", "asked"),
    [
        ({"mode": "draft", "draft_model": "d", "draft_device": "--tools"}, {}),
        ({"mode": "draft", "draft_model": "d", "draft_kv_type_k": "-x"}, {}),
        ({"mode": "draft", "draft_model": "d", "extra": {"--spec-draft-cpu-moe": "--tools"}}, {}),
        ({"mode": "draft", "draft_model": "d", "extra": {"--spec-draft-poll": ["-1", "--tools"]}}, {}),
        ({"mode": "draft", "draft_model": "d", "also": ["--tools"]}, {}),
        ({"mode": "off", "control": True, "extra": {"--tools": "all"}}, {}),
        ({"mode": "off", "control": True}, {"extra": {"--swa-full": "x"}}),
        ({"mode": "off", "control": True}, {"extra": {"--numa": "a\0b"}}),
        ({"mode": "off", "control": True}, {"extra": {"--numa": "\ud800"}}),
        ({"mode": "--tools"}, {}),
    ],
)
def test_each_such_thing_is_refused_by_llama_servers_module(arm: dict[str, Any], asked: dict[str, Any]) -> None:
    spec = sent({"name": "a"} | arm, asked)
    assert spec is not None
    for build in LLAMA_BUILDS:
        assert rendered("llama-server", spec, build, list(ALLOWED)).refusals


def test_the_good_arms_are_not_refused() -> None:
    """Else the properties above would hold of nothing."""
    for name, builds, least in (("llama-server", LLAMA_BUILDS, 5), ("vllm", VLLM_BUILDS, 5)):
        specs = [spec for arm in GOOD_ARMS if (spec := sent({"name": "a"} | arm, {})) is not None]
        assert sum(not rendered(name, spec, builds[0], []).refusals for spec in specs) >= least

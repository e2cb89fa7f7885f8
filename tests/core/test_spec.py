"""What people may ask for, and what they read when they can't."""

from __future__ import annotations

import copy
import datetime
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from speccore.spec import MAX_PROBLEMS, Arm, ExperimentSpec, SpecProblem, parse_spec, problem_lines, read_stored_spec

OFF = {"name": "off", "mode": "off"}
DRAFT = {"name": "d", "mode": "draft", "draft_model": "x", "draft_limit": 4}
GOOD: dict[str, Any] = {"name": "t", "target": {"model": "m"}, "arms": [OFF, DRAFT], "points": [{"workload": "count"}]}


def problems(**changes: Any) -> list[SpecProblem]:
    spec, found = parse_spec(copy.deepcopy(GOOD) | changes)
    assert (spec is None) == bool(found)
    return found


def test_a_minimal_experiment_has_the_users_defaults() -> None:
    spec, found = parse_spec(GOOD)
    assert found == []
    assert isinstance(spec, ExperimentSpec)
    assert (spec.blocks, spec.margin, spec.baseline.name, spec.points[0].key) == (5, 0.03, "off", "count/c1/ctx0/t0")
    assert not spec.engine.prefix_cache


LIMIT = "should be a whole number from 1 to 1,024 (most tokens drafted per cycle)"
BLOCKS = "should be a whole number from 1 to 100 (how often each arm is started)"
FLAG = "takes a text, a number, true or false, or a list of texts and numbers, not "


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        # numbers: range, what they mean, what was given
        ({"arms": [OFF, DRAFT | {"draft_limit": 0}]}, "arms.1.draft_limit", LIMIT),
        ({"arms": [OFF, DRAFT | {"draft_limit": -1}]}, "arms.1.draft_limit", LIMIT),
        ({"arms": [OFF, DRAFT | {"draft_limit": 10**6}]}, "arms.1.draft_limit", LIMIT),
        ({"arms": [OFF, DRAFT | {"draft_limit": "abc"}]}, "arms.1.draft_limit", f"{LIMIT}, not the text 'abc'"),
        ({"arms": [OFF, DRAFT | {"draft_limit": 2.5}]}, "arms.1.draft_limit", f"{LIMIT}, not the number 2.5"),
        ({"arms": [OFF, DRAFT | {"draft_limit": {"n": 4}}]}, "arms.1.draft_limit", f"{LIMIT}, not a mapping"),
        ({"blocks": 0}, "blocks", BLOCKS),
        ({"blocks": 101}, "blocks", BLOCKS),
        ({"blocks": None}, "blocks", f"{BLOCKS}, not nothing"),
        ({"blocks": True}, "blocks", "a number is due, not yes or no"),
        ({"blocks": "9" * 5000}, "blocks", f"{BLOCKS}, not the text '999"),
        (
            {"margin": math.nan},
            "margin",
            "should be a number from 0 to 1 (the speed-up that is worth having: 0.03 is 3 %), not the number nan",
        ),
        ({"margin": math.inf}, "margin", "should be a number from 0 to 1 (the speed-up that is worth having: 0.03 is 3 %)"),
        ({"engine": {"start_timeout_s": 0}}, "engine.start_timeout_s", "should be a number over 0 and at most 7,200 (seconds until"),
        (
            {"points": [{"workload": "count", "sampling": {"temperature": "hot"}}]},
            "points.0.sampling.temperature",
            "should be a number from 0 to 5",
        ),
        # texts
        ({"name": "x" * 300}, "name", "has 300 characters; at most 120 are possible"),
        ({"name": 3}, "name", "should be a text, not the number 3: put it in quotes"),
        ({"name": datetime.date(2026, 1, 2)}, "name", "should be a text, not the date 2026-01-02: put it in quotes"),
        ({"name": " "}, "name", "is empty"),
        ({"name": "a\0b"}, "name", "holds a control character: remove it"),
        ({"question": "a\x1b[31mb"}, "question", "holds a control character: remove it"),
        ({"name": "report\u202elmth.a"}, "name", "holds a control character: remove it"),
        ({"question": "a\u2066b"}, "question", "holds a control character: remove it"),
        ({"name": "\ud800"}, "name", "holds half of a character"),
        ({"arms": [OFF, DRAFT | {"name": "<b>"}]}, "arms.1.name", "may hold letters, digits, spaces and . _ + / @ -"),
        ({"engine": {"kv_type_k": "Q8!"}}, "engine.kv_type_k", "may hold lower-case letters, digits and _, as in q8_0"),
        ({"placement": {"labels": {"gpu": 1}}}, "placement.labels.gpu", "should be a text, not the number 1"),
        ({"placement": {"hosts": "box"}}, "placement.hosts", "should be a list, not the text 'box'"),
        ({"placement": {"hosts": ["a\0"]}}, "placement.hosts.0", "holds a control character"),
        # one of several, true or false
        ({"engine": {"flash_attention": "outo"}}, "engine.flash_attention", "should be one of on, off, auto (did you mean 'auto'?)"),
        ({"engine": {"prefix_cache": "maybe"}}, "engine.prefix_cache", "should be true or false, not the text 'maybe'"),
        ({"version": 2}, "version", "should be 1"),
        # shapes
        ({"arms": "off"}, "arms", "should be a list, not the text 'off'"),
        ({"arms": [OFF, DRAFT, 7]}, "arms.2", "should be a mapping of keys, not the number 7"),
        ({"arms": [OFF]}, "arms", "needs at least 2 arms, has 1"),
        ({"points": []}, "points", "needs at least 1 point, has 0"),
        ({"points": [{"workload": f"w{i}"} for i in range(61)]}, "points", "needs at most 60 points, has 61"),
        ({"engine": None}, "engine", "should be a mapping of keys, not nothing"),
        ({"target": {}}, "target.model", "is required (the alias of a model, or its hash)"),
        # keys: the nearest where they stand, else where they belong
        ({"arms": [OFF, DRAFT | {"draftlimit": 4}]}, "arms.1.draftlimit", "unknown key 'draftlimit' (did you mean 'draft_limit'?)"),
        ({"blcoks": 3}, "blcoks", "unknown key 'blcoks' (did you mean 'blocks'?)"),
        ({"engine": {"contxt": 3}}, "engine.contxt", "unknown key 'contxt' (did you mean 'context'?)"),
        ({"context": 3}, "context", "unknown key 'context': it belongs under engine"),
        (
            {"points": [{"workload": "count", "temperature": 1}]},
            "points.0.temperature",
            "unknown key 'temperature': it belongs under sampling",
        ),
        ({"temperature": 1}, "temperature", "unknown key 'temperature': it belongs under points.sampling"),
        ({"warmup": {"qqq": 1}}, "warmup.qqq", "unknown key 'qqq'; known here: mode, requests"),
        ({1: 2}, "1", "a key should be a text, not the number 1: put it in quotes"),
        # modes
        (
            {"arms": [OFF, DRAFT | {"mode": "drafts"}]},
            "arms.1.mode",
            "unknown speculation mode 'drafts' (did you mean 'draft'?); known: off, draft,",
        ),
        ({"arms": [OFF, DRAFT | {"mode": ["draft"]}]}, "arms.1.mode", "should be a text, not a list"),
        # between fields
        ({"arms": [DRAFT, DRAFT | {"name": "e"}]}, "arms", "no baseline: add one arm with mode off"),
        ({"arms": [OFF, OFF | {"name": "off2"}]}, "arms", "2 baselines (off, off2): keep one arm with mode off, mark others control: true"),
        ({"arms": [OFF, DRAFT, DRAFT]}, "arms.2.name", "arm 'd' is there twice: give it another name"),
        ({"arms": [OFF, DRAFT | {"draft_limit": 3, "draft_min": 4}]}, "arms.1.draft_min", "draft_min 4 is over draft_limit 3"),
        ({"arms": [OFF, DRAFT | {"draft_model": None}]}, "arms.1.draft_model", "mode draft needs a draft_model: name a model"),
        ({"arms": [OFF, DRAFT | {"mode": "ngram-mod"}]}, "arms.1.draft_model", "mode ngram-mod has no use for a draft_model: remove it"),
        ({"arms": [OFF | {"draft_limit": 3}, DRAFT]}, "arms.0.draft_limit", "an arm with mode off can't have draft_limit: remove it"),
        ({"arms": [OFF, DRAFT | {"control": True}]}, "arms.1.control", "only an arm with mode off can be a control"),
        ({"points": [{"workload": "count"}] * 2}, "points.1.workload", "point 'count/c1/ctx0/t0' is there twice"),
        (
            {"points": [{"workload": "count", "rate_per_s": 2}, {"workload": "count", "rate_per_s": 2.0000001}]},
            "points.1.workload",
            "there twice",  # both are count/c1/ctx0/t0/r2, by which results are told apart
        ),
        ({"points": [{"workload": "count", "rate_per_s": 1e-300}]}, "points.0.rate_per_s", "should be a number from 0.001 to 10,000"),
        (
            {"points": [{"workload": "count", "concurrency": 4}]},
            "points.0.concurrency",
            "4 requests at once need as many slots; engine.slots is 1",
        ),
        ({"points": [{"workload": "count", "max_tokens": 9000}]}, "points.0.max_tokens", "more than 9000 tokens; engine.context is 4096"),
        # flags
        ({"engine": {"extra": []}}, "engine.extra", "should be a mapping of flags, not a list"),
        (
            {"engine": {"extra": {f"--a{i}": 1 for i in range(12_000)}}},
            "engine.extra",
            "holds 12,000 flags and values; at most 200 are possible",
        ),
        ({"engine": {"extra": {"--a": ["x"] * 60_000}}}, "engine.extra", "holds 60,000 flags and values; at most 200 are possible"),
        ({"engine": {"extra": {"-ngl": 3}}}, "engine.extra.-ngl", "'-ngl' is no long flag such as --override-tensor"),
        ({"engine": {"extra": {"--x; rm -rf /": 3}}}, "engine.extra.--x; rm -rf /", "is no long flag"),
        ({"engine": {"extra": {7: 3}}}, "engine.extra.7", "7 is no long flag"),
        ({"engine": {"extra": {"--rope-scale": math.inf}}}, "engine.extra.--rope-scale", "is inf: a number must be finite"),
        ({"engine": {"extra": {"--tensor-split": [1.0, math.nan]}}}, "engine.extra.--tensor-split", "is nan: a number must be finite"),
        ({"engine": {"extra": {"--a": None}}}, "engine.extra.--a", f"{FLAG}nothing"),
        ({"engine": {"extra": {"--a": [[1]]}}}, "engine.extra.--a", f"{FLAG}a list"),
        ({"engine": {"extra": {"--a": [True]}}}, "engine.extra.--a", f"{FLAG}the truth value true"),
        ({"engine": {"extra": {"--a": "x\0"}}}, "engine.extra.--a", "holds a NUL character, which no command can"),
        ({"engine": {"extra": {"--a": "\ud800"}}}, "engine.extra.--a", "holds half of a character"),
        ({"engine": {"extra": {"--a": "x\n--host"}}}, "engine.extra.--a", "holds a control character: remove it"),
        ({"engine": {"extra": {"--a": ["x", "\x1b[2J"]}}}, "engine.extra.--a", "holds a control character: remove it"),
        ({"engine": {"extra": {"--a": ""}}}, "engine.extra.--a", "has an empty text: give a value, or remove it"),
        ({"engine": {"extra": {"--a": []}}}, "engine.extra.--a", "has an empty list, which would leave it out"),
    ],
)
def test_bad_input_is_refused_in_words(changes: dict[Any, Any], field: str, words: str) -> None:
    spec, (problem,) = parse_spec(copy.deepcopy(GOOD) | changes)
    assert spec is None
    assert problem.field == field
    assert words in problem.message


def test_what_was_stored_before_a_rule_stays_readable() -> None:
    stored = GOOD | {"arms": [OFF, DRAFT | {"mode": "ngram-mod"}]}
    assert ExperimentSpec.model_validate(stored).arms[1].draft_model == "x"


@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [
        ({"blocks": 900}, "blocks", 900),
        ({"name": "n" * 300}, "name", "n" * 300),
        ({"arms": [OFF, DRAFT | {"draft_limit": 5000}]}, "arms.1.draft_limit", 5000),
        ({"arms": [OFF, DRAFT | {"draft_min": 9, "draft_limit": 3}]}, "arms.1.draft_min", 9),
        ({"arms": [OFF, DRAFT | {"mode": "telepathy"}]}, "arms.1.mode", "telepathy"),
        ({"arms": [OFF, *({"name": f"n{i}", "mode": "ngram-simple"} for i in range(60))]}, "arms.60.name", "n59"),
        ({"points": [{"workload": "count", "concurrency": 9}]}, "points.0.concurrency", 9),
        ({"points": [{"workload": "count", "sampling": {"temperature": 9}}]}, "points.0.sampling.temperature", 9),
        ({"engine": {"extra": {f"--f{i}": i for i in range(300)}}}, "engine.extra.--f299", 299),
        ({"placement": {"hosts": ["h" * 300]}}, "placement.hosts.0", "h" * 300),
        ({"runtime": {"version": "v" * 300}}, "runtime.version", "v" * 300),
        ({"colour": "red", "arms": [OFF, DRAFT | {"shape": "round"}]}, "arms.1.name", DRAFT["name"]),
    ],
)
def test_what_was_stored_is_read_whatever_people_may_ask_today(changes: dict[str, Any], path: str, value: Any) -> None:
    stored = json.loads(json.dumps(copy.deepcopy(GOOD) | changes))
    assert parse_spec(stored)[0] is None
    read = read_stored_spec(stored)
    found: Any = read.model_dump(mode="json")
    for step in path.split("."):
        found = found[int(step)] if isinstance(found, list) else found[step]
    assert found == value
    assert read_stored_spec(read.model_dump(mode="json")) == read
    assert {type(a) for a in read.arms} == {Arm}


@pytest.mark.parametrize("changes", [{"arms": "none"}, {"blocks": "many"}, {"target": None}, {"version": 2}])
def test_of_a_wrong_type_nothing_is_read(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        read_stored_spec(GOOD | changes)


def test_every_fault_is_told_at_once_with_its_value() -> None:
    found = problems(blocks=0, seed=-1, engine={"slots": 0})
    assert {(p.field, p.value) for p in found} == {("blocks", "0"), ("seed", "-1"), ("engine.slots", "0")}


def test_faults_between_fields_are_told_beside_those_of_single_fields() -> None:
    found = problems(
        blocks=0,
        arms=[DRAFT, DRAFT | {"draft_model": ""}, DRAFT | {"name": "e", "draft_min": "9", "draft_limit": "3"}],
        points=[{"workload": "count", "concurrency": "4"}, {"workload": "x", "max_tokens": 9000, "probes": 0}],
        engine={"extra": {"--a": None, "-b": 1}, "slots": 2},
    )
    assert {p.field for p in found} == {
        "blocks",
        "arms",
        "arms.1.name",
        "arms.1.draft_model",
        "arms.2.draft_min",
        "points.0.concurrency",
        "points.1.max_tokens",
        "points.1.probes",
        "engine.extra.--a",
        "engine.extra.-b",
    }


def test_no_baseline_is_not_told_where_a_mode_is_unreadable() -> None:
    assert {p.field for p in problems(arms=[{"name": "off", "mode": "offf"}, DRAFT])} == {"arms.0.mode"}


def test_of_very_many_faults_the_first_are_told() -> None:
    found = problems(**{f"key{i}": i for i in range(500)})
    assert len(found) == MAX_PROBLEMS + 1
    assert found[-1].message == f"there are more than {MAX_PROBLEMS} faults: correct these first"


def test_markup_in_a_name_is_text() -> None:
    spec, found = parse_spec(GOOD | {"name": "<script>alert(1)</script>", "question": "a <b>\n & c?\n"})
    assert found == []
    assert spec is not None
    assert (spec.name, spec.question) == ("<script>alert(1)</script>", "a <b>\n & c?")


def test_lines_for_a_person_name_line_field_and_value_once() -> None:
    found = problems(blocks=0, name=3)
    assert sorted(problem_lines([*found, SpecProblem(field="", message="is no YAML", line=7)])) == [
        f"  blocks: {BLOCKS} (given: 0)",
        "  line 7, the file: is no YAML",
        "  name: should be a text, not the number 3: put it in quotes",
    ]


NODES = [
    None,
    True,
    3,
    -1.5,
    math.nan,
    "x",
    "off",
    "",
    [],
    [1],
    {},
    {"x": 1},
    {1: 2},
    b"x",
    {1},
    datetime.date(2026, 1, 2),
    "\ud800",
    "\0",
    10**40,
]
PATHS = [
    *(("name",), ("question",), ("target",), ("target", "model"), ("runtime",), ("runtime", "engine"), ("engine",), ("engine", "context")),
    *(("engine", "extra"), ("engine", "extra", "--a"), ("arms",), ("arms", 0), ("arms", 0, "mode"), ("arms", 1, "draft_limit")),
    *(("arms", 1, "draft_model"), ("arms", 1, "control"), ("arms", 1, "name"), ("points",), ("points", 0), ("points", 0, "sampling")),
    *(("points", 0, "sampling", "temperature"), ("points", 0, "workload"), ("blocks",), ("warmup",), ("requirements",), ("placement",)),
    *(("placement", "hosts"), ("placement", "hosts", 0), ("placement", "labels"), ("placement", "labels", "a"), ("version",), ("seed",)),
]
FULL = GOOD | {
    "question": "?",
    "runtime": {"engine": "llama-server"},
    "engine": {"context": 4096, "extra": {"--a": 1}},
    "points": [{"workload": "count", "sampling": {"temperature": 0}}],
    "warmup": {},
    "requirements": {},
    "placement": {"hosts": ["h"], "labels": {"a": "b"}},
}


@given(st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(NODES)), min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_any_value_at_any_node_is_taken_or_refused_in_words(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    data = copy.deepcopy(FULL)
    for path, value in changes:
        node: Any = data
        for step in path[:-1]:
            there = step in node if isinstance(node, dict) else isinstance(node, list) and isinstance(step, int) and len(node) > step
            node = node[step] if there else {}
        if isinstance(node, dict) or (isinstance(node, list) and isinstance(path[-1], int) and len(node) > path[-1]):
            node[path[-1]] = copy.deepcopy(value)
    before = repr(data)
    spec, found = parse_spec(data)
    assert repr(data) == before
    assert (spec is None) == bool(found)
    for problem in found:
        assert problem.message
        assert not any(said in problem.message for said in ("Input should", "String should", "List should", "valid", "type="))
        problem.model_dump_json()


@pytest.mark.parametrize(
    ("data", "kind"), [([1], "a list"), ("x", "the text 'x'"), (None, "nothing"), (3, "the number 3"), (b"x", "bytes"), ({1}, "a set")]
)
def test_what_is_no_mapping_is_told_so(data: Any, kind: str) -> None:
    spec, found = parse_spec(data)
    assert spec is None
    assert found[0].message == f"an experiment is a mapping of keys, not {kind}"


def test_yaml_reads_a_bare_off_as_false() -> None:
    spec, found = parse_spec(GOOD | {"arms": [{"name": "none", "mode": False}, DRAFT]})
    assert found == []
    assert spec is not None
    assert spec.baseline.name == "none"


def test_equal_experiments_have_one_hash_whatever_is_spelled_out() -> None:
    short, _ = parse_spec(GOOD)
    spelled, _ = parse_spec(dict(reversed(GOOD.items())) | {"blocks": 5, "margin": 0.03})
    other, _ = parse_spec(GOOD | {"blocks": 6})
    assert short is not None
    assert spelled is not None
    assert other is not None
    assert short.spec_hash() == spelled.spec_hash() != other.spec_hash()


@pytest.mark.parametrize(
    ("occupied", "context", "fits"), [(0, 64, True), (936, 1000, False), (935, 1000, True), (4000, 4096, True), (4096, 4096, False)]
)
def test_an_occupied_context_leaves_room_for_the_answer(occupied: int, context: int, fits: bool) -> None:
    point = {"workload": "count", "max_tokens": 64, "occupied_context": occupied}
    found = problems(engine={"context": context}, points=[point])
    said = f"needs a context of more than {occupied + 64} tokens; engine.context is {context}"
    assert [p.message for p in found] == ([] if fits else [said])

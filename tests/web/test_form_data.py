"""The form's text and the spec's data: both ways without loss, rows, and where a fault belongs."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any, get_origin

import pytest
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st
from speccore.spec import MODES, MODES_BESIDE, MODES_WITH_DRAFT_MODEL, ExperimentSpec, parse_spec
from speccore.yamltext import data_to_yaml, read_yaml

from specweb.dashboard import form_choices, form_rows
from specweb.dashboard.form_data import (
    Typed,
    data_of,
    flag_text,
    flag_value,
    labels_twice,
    pairs_of,
    place_of,
    read_typed,
    typed_of,
    unreadable,
    words_of,
)
from specweb.dashboard.form_fields import MODE_WORDS, ROWS, SINGLE

ROOT = Path(__file__).parents[2]

# --- made-up experiments ---

names = st.text(string.ascii_letters + string.digits + "._+/@-", min_size=1, max_size=12).filter(lambda t: t[0].isalnum())
words = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20).map(str.strip).filter(bool)
sentence = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n"), max_size=60).filter(
    lambda t: not t or t.strip()
)
floats = st.floats(0, 1, allow_nan=False)
flags = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8).map(lambda t: f"--{t}")
settings = flags | st.text(string.ascii_lowercase + string.digits + "_", min_size=1, max_size=8).filter(lambda t: t[0].isalpha())
flag_values = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31),
    st.floats(-1e6, 1e6),
    st.text(st.characters(exclude_categories=("Cs", "Cc", "Cf", "Zl", "Zp")), min_size=1, max_size=12),
)
lists = st.lists(flag_values.filter(lambda v: not isinstance(v, bool)), min_size=2, max_size=3)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


@st.composite
def arms(draw: st.DrawFn, name: str) -> dict[str, Any]:
    mode = draw(st.sampled_from([m for m in MODES if m != "off"]))
    return {
        "name": name,
        "mode": mode,
        "draft_model": draw(words) if mode in MODES_WITH_DRAFT_MODEL else None,
        "draft_limit": draw(maybe(st.integers(8, 1024))),
        "draft_min": draw(maybe(st.integers(0, 8))),
        "p_min": draw(maybe(floats)),
        "draft_gpu_layers": draw(maybe(st.integers(0, 99))),
        "ngram_size": draw(maybe(st.integers(1, 64))),
        "also": draw(st.lists(st.sampled_from([m for m in MODES_BESIDE if m != mode]), max_size=3, unique=True)),
        "extra": draw(st.dictionaries(settings, flag_values | lists, max_size=3)),
    }


@st.composite
def specs(draw: st.DrawFn) -> ExperimentSpec:
    arm_names = draw(st.lists(names, min_size=2, max_size=5, unique=True))
    work = draw(st.lists(words, min_size=1, max_size=4, unique=True))
    baseline = {"name": arm_names[0], "mode": "off"}
    data: dict[str, Any] = {
        "name": draw(words),
        "question": draw(sentence),
        "target": {"model": draw(words)},
        "runtime": {"engine": "llama-server", "version": draw(maybe(words)), "backend": draw(maybe(words))},
        "engine": {
            "context": draw(st.integers(2048, 4_194_304)),
            "slots": draw(st.integers(4, 256)),
            "threads": draw(maybe(st.integers(1, 64))),
            "kv_type_k": draw(maybe(st.sampled_from(["f16", "q8_0"]))),
            "flash_attention": draw(st.sampled_from([None, "on", "off", "auto"])),
            "prefix_cache": draw(st.booleans()),
            "start_timeout_s": draw(st.floats(1, 7200)),
            "extra": draw(st.dictionaries(flags, flag_values | lists, max_size=4)),
        },
        "arms": [baseline, *(draw(arms(name)) for name in arm_names[1:])],
        "points": [
            {
                "workload": name,
                "concurrency": draw(st.integers(1, 4)),
                "occupied_context": draw(st.integers(0, 1000)),
                "sampling": {"temperature": draw(floats), "top_k": draw(maybe(st.integers(0, 99))), "min_p": draw(maybe(floats))},
                "max_tokens": draw(st.integers(2, 1000)),
                "probes": draw(st.integers(1, 100)),
            }
            for name in work
        ],
        "blocks": draw(st.integers(1, 100)),
        "warmup": {"requests": draw(st.integers(1, 9))},
        "seed": draw(st.integers(0, 2**31 - 1)),
        "margin": draw(floats),
        "requirements": {"context": draw(maybe(st.integers(1, 9999)))},
        "placement": {
            "hosts": draw(st.lists(words, max_size=3, unique=True)),
            "labels": draw(st.dictionaries(words, words, max_size=3)),
            "count": draw(st.integers(1, 100)),
            "each": draw(st.booleans()),
        },
    }
    parsed, problems = parse_spec(data)
    assert parsed is not None, problems
    return parsed


def sent(pairs: list[tuple[str, str]]) -> Typed:
    """As a browser would send it: newlines as the HTTP form has them."""
    query = QueryDict(mutable=True)
    for name, text in pairs:
        query.appendlist(name, text.replace("\n", "\r\n"))
    return read_typed([(name, text) for name, texts in query.lists() for text in texts])


@given(specs())
def test_an_experiment_goes_through_the_form_unchanged(spec):
    typed, left = typed_of(spec.model_dump(mode="json", exclude_defaults=True))
    assert left == []
    again, problems = parse_spec(data_of(sent(pairs_of(typed))))
    assert again == spec, problems


@given(specs())
def test_an_experiment_goes_through_form_and_yaml_unchanged(spec):
    typed, _ = typed_of(spec.model_dump(mode="json"))
    text = data_to_yaml(data_of(typed))
    back, left = typed_of(read_yaml(text.encode()))
    assert left == []
    assert parse_spec(data_of(back))[0] == spec


@given(
    st.dictionaries(
        st.sampled_from([f.name for f in SINGLE if f.kind != "tick"]), st.text(st.characters(exclude_categories=("Cs", "Cc"))), max_size=12
    )
)
def test_whatever_is_typed_comes_back_as_typed(single):
    typed = Typed(single=single)
    assert sent(pairs_of(typed)).single == single


@given(flag_values)
def test_a_flag_s_value_keeps_its_type(value):
    back = flag_value(flag_text(value))
    assert back == value
    assert isinstance(back, bool) == isinstance(value, bool)


# --- text and values ---


def typed(**single: str) -> Typed:
    return Typed(single={name.replace("__", "-"): text for name, text in single.items()})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        (" 5 ", 5),
        ("five", "five"),
        ("5 blocks", "5 blocks"),
        ("1,000", "1,000"),
        ("0.5", 0.5),
        ("-1", -1),
        ("1e3", 1000.0),
        ("nan", "nan"),
        ("1e999", "1e999"),
        ("٣", "٣"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_a_number_is_a_number_and_anything_else_stays_as_typed(text, value):
    data = data_of(typed(blocks=text))
    assert data["blocks"] == value
    assert type(data["blocks"]) is type(value)


def test_empty_fields_are_left_out():
    assert data_of(typed(name="x", question="", blocks="  ", engine__prefix_cache="")) == {"name": "x", "arms": [], "points": []}


def test_rows_keep_their_order_and_gaps_close():
    got = sent([("arms-10-name", "b"), ("arms-2-name", "a"), ("arms-2-color", "red"), ("arms-99999-name", "far"), ("arms-x-name", "?")])
    assert got.rows["arms"] == [{"name": "a"}, {"name": "b"}]


def test_a_flag_in_several_rows_is_a_list():
    rows = [{"flag": "--a", "value": "x"}, {"flag": "--b", "value": ""}, {"flag": "--a", "value": "2"}, {"flag": "", "value": ""}]
    assert data_of(Typed().with_rows("engine-extra", rows))["engine"]["extra"] == {"--a": ["x", 2], "--b": True}


def test_a_value_without_a_flag_is_a_fault_and_not_dropped():
    data = data_of(Typed().with_rows("engine-extra", [{"flag": "", "value": "lost?"}]))
    assert data["engine"]["extra"] == {"": "lost?"}
    assert place_of("engine.extra.", Typed().with_rows("engine-extra", [{"flag": "", "value": "lost?"}])) == "engine-extra-0-flag"


def arm_of(**row: str) -> dict[str, Any]:
    return data_of(Typed().with_rows("arms", [row]))["arms"][0]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("ngram-mod", ["ngram-mod"]),
        (" ngram-mod , ngram-simple,", ["ngram-mod", "ngram-simple"]),
        ("[ngram-mod, ngram-simple]", ["ngram-mod", "ngram-simple"]),
        ("ngram-mod ngram-simple", ["ngram-mod ngram-simple"]),
        (" , ", ","),
    ],
)
def test_words_with_commas_between_are_a_list(text, data):
    assert arm_of(also=text) == {"also": data}


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("draft_sample_method: greedy, n: 3", {"draft_sample_method": "greedy", "n": 3}),
        ("{p: 0.5, deep: true}", {"p": 0.5, "deep": True}),
        ("--no-async-scheduling", {"--no-async-scheduling": True}),
        ("--lora: [a.gguf, b.gguf]", {"--lora": ["a.gguf", "b.gguf"]}),
        ('a: "1", b: "x, y: z"', {"a": "1", "b": "x, y: z"}),
    ],
)
def test_keys_and_values_with_commas_between_are_a_mapping(text, data):
    assert arm_of(extra=text) == {"extra": data}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1, a: 2", "the key 'a' is there twice"),
        ("a: b: c", "can't be read"),
        ("{a: 1", "can't be read"),
        ("a: [1, 2", "can't be read"),
        ("{a: 1}, {b: 2}", "can't be read"),
    ],
)
def test_what_is_no_mapping_stays_as_typed_and_is_told_beside_its_field(text, words):
    filled = Typed().with_rows("arms", [{"name": "a"}, {"name": "b", "extra": text}])
    assert data_of(filled)["arms"][1]["extra"] == text
    assert typed_of(data_of(filled))[0].rows["arms"][1]["extra"] == text
    ((place, why),) = unreadable(filled)
    assert place == "arms-1-extra"
    assert words in why


def test_a_label_that_is_there_twice_is_told():
    rows = [{"key": "gpu", "value": "a"}, {"key": "", "value": ""}, {"key": " gpu", "value": "b"}]
    assert labels_twice(Typed().with_rows("placement-labels", rows)) == [("placement-labels-2-key", "gpu")]


def test_words_of_yaml_that_are_truth_values_are_shown_as_meant():
    read = typed_of(read_yaml(b"{arms: [{name: off, mode: off}], engine: {flash_attention: on, prefix_cache: yes, threads: yes}}"))[0]
    assert read.rows["arms"] == [{"name": "off", "mode": "off"}]
    assert (read.single["engine-flash_attention"], read.single["engine-prefix_cache"], read.single["engine-threads"]) == (
        "on",
        "on",
        "true",
    )


@pytest.mark.parametrize(
    ("yaml", "left"),
    [
        ("{nmae: x}", ["nmae"]),
        ("{arms: [{name: a, colour: red}]}", ["arms.0.colour"]),
        ("{arms: 3}", ["arms"]),
        ("{arms: [1]}", ["arms"]),
        ("{engine: fast}", ["engine"]),
        ("{name: [a]}", ["name"]),
        ("{engine: {extra: [1]}}", ["engine.extra"]),
        ("{engine: {extra: {--a: {b: 1}}}}", ["engine.extra.--a"]),
        ("{engine: {prefix_cache: perhaps}}", ["engine.prefix_cache"]),
        ("{placement: {hosts: x}}", ["placement.hosts"]),
        ("{placement: {labels: [x]}}", ["placement.labels"]),
        ("{arms: [{also: [3]}]}", ["arms.0.also"]),
        ("{arms: [{also: ['a, b']}]}", ["arms.0.also"]),
        ("{arms: [{extra: {a: {b: 1}}}]}", []),  # and refused beside its field
        ("{arms: [{extra: [1]}]}", ["arms.0.extra"]),
        ("{arms: [{extra: {a: 123456789012345678901234567890}}]}", []),
        ("{arms: [{extra: {a: }}]}", ["arms.0.extra"]),
        ("{arms: [{extra: {}, also: []}]}", []),
        ("{version: 2}", ["version"]),
        ("{version: 1, warmup: {mode: fixed, requests: 2}, runtime: , arms: , placement: {labels: }}", []),
    ],
)
def test_what_the_form_has_no_place_for_is_named(yaml, left):
    assert typed_of(read_yaml(yaml.encode()))[1] == left


# --- rows ---

ARMS = [{"name": "off", "mode": "off"}, {"name": "draft-3", "mode": "draft", "draft_model": "d", "draft_limit": "3", "sweep": ""}]


def after(action: str, arms: list[dict[str, str]] = ARMS) -> tuple[list[str], form_rows.Done]:
    done = form_rows.act(Typed().with_rows("arms", arms), action)
    assert done is not None
    return [row.get("name", "") for row in done.typed.rows["arms"]], done


def test_rows_are_added_removed_duplicated_and_moved():
    assert after("add-arms")[0] == ["off", "draft-3", ""]
    assert after("add-arms")[1].typed.rows["arms"][-1] == {"mode": "draft", "draft_model": "d"}
    assert after("remove-arms-0")[0] == ["draft-3"]
    assert after("duplicate-arms-1")[0] == ["off", "draft-3", "draft-3-copy"]
    assert after("duplicate-arms-1", [*ARMS, {"name": "draft-3-copy"}])[0] == ["off", "draft-3", "draft-3-copy-2", "draft-3-copy"]
    assert after("up-arms-1")[0] == ["draft-3", "off"]
    assert after("down-arms-1")[0] == ["off", "draft-3"]
    assert after("remove-arms-7")[0] == ["off", "draft-3"]
    assert form_rows.act(Typed(), "preview") is None
    assert form_rows.act(Typed(), "remove-nothing-1") is None


def test_the_keyboard_goes_on_where_it_was():
    assert after("add-arms")[1].focus == "f-arms-2-name"
    assert after("remove-arms-1")[1].focus == "do-remove-arms-0"
    assert after("remove-arms-0", [ARMS[0]])[1].focus == "do-add-arms"
    assert after("up-arms-1")[1].focus == "do-down-arms-0"  # up is switched off there
    assert after("down-arms-0")[1].focus == "do-up-arms-1"
    assert after("down-arms-0", [*ARMS, {"name": "c"}])[1].focus == "do-down-arms-1"


def test_a_sweep_makes_one_arm_for_each_limit():
    names, done = after("sweep-arms-1", [ARMS[0], ARMS[1] | {"sweep": "1, 2 3,8, 2"}])
    assert names == ["off", "draft-1", "draft-2", "draft-3", "draft-8"]
    assert [row.get("draft_limit") for row in done.typed.rows["arms"]] == [None, "1", "2", "3", "8"]
    assert {row.get("draft_model") for row in done.typed.rows["arms"][1:]} == {"d"}
    assert done.fault == ""


def test_a_sweep_goes_over_other_fields_too():
    names, done = after("sweep-arms-1", [ARMS[0], ARMS[1] | {"sweep": "2,4; p_min: 0, 0.5"}, {"name": "draft-2-p0", "mode": "draft"}])
    assert names == ["off", "draft-2-p0-2", "draft-2-p0.5", "draft-4-p0", "draft-4-p0.5", "draft-2-p0"]
    assert [(row.get("draft_limit"), row.get("p_min")) for row in done.typed.rows["arms"][1:3]] == [("2", "0"), ("2", "0.5")]
    names, done = after("sweep-arms-1", [ARMS[0], ARMS[1] | {"sweep": "Draft model: small, tiny/v2"}])
    assert names == ["off", "draft-3-small", "draft-3-tiny/v2"]
    assert not any("sweep" in row for row in done.typed.rows["arms"][1:])


@pytest.mark.parametrize(
    ("sweep", "words"),
    [("blocks: 3, 5", "'blocks' is no field that can be swept: draft_model, draft_limit"), ("p_min: ,", "Which values?")],
)
def test_a_sweep_over_what_is_no_axis_says_so(sweep, words):
    assert words in after("sweep-arms-1", [ARMS[0], ARMS[1] | {"sweep": sweep}])[1].fault


@pytest.mark.parametrize(
    ("sweep", "words"),
    [("", "for example 1, 2, 4, 8"), ("1, x", "'x' is no whole number"), ("-1", "'-1'"), (" ".join(map(str, range(1, 50))), "at most 40")],
)
def test_a_sweep_that_can_t_be_changes_nothing_and_says_why(sweep, words):
    names, done = after("sweep-arms-1", [ARMS[0], ARMS[1] | {"sweep": sweep}])
    assert names == ["off", "draft-3"]
    assert words in done.fault
    assert done.focus == "f-arms-1-sweep"
    assert done.typed.rows["arms"][1]["sweep"] == sweep


# --- faults and their fields ---


@pytest.mark.parametrize(
    ("path", "place", "called"),
    [
        ("name", "name", "Name"),
        ("target", "target-model", "Target model"),
        ("target.model", "target-model", "Target model"),
        ("arms", "arms", "Arms"),
        ("arms.1.draft_limit", "arms-1-draft_limit", "Arm 2, draft limit"),
        ("arms.1", "arms-1-name", "Arm 2, name"),
        ("arms.1.also", "arms-1-also", "Arm 2, beside it"),
        ("arms.1.extra.--lora", "arms-1-extra", "Arm 2, further settings"),
        ("arms.7.name", "arms", "Arms"),
        ("points.0.sampling.temperature", "points-0-sampling-temperature", "Point 1, temperature"),
        ("points.0.sampling", "points-0-sampling-temperature", "Point 1, temperature"),
        ("engine.extra.--override-tensor", "engine-extra-1-flag", "Flag 2, flag"),
        ("engine.extra.--override-tensor.0", "engine-extra-1-flag", "Flag 2, flag"),
        ("engine.extra", "engine-extra", "Further flags"),
        ("placement.hosts.0", "placement-hosts", "Hosts"),
        ("placement.labels.gpu", "placement-labels-0-key", "Label 1, label"),
        ("", "", ""),
        ("version", "", ""),
    ],
)
def test_a_fault_stands_beside_its_field(path, place, called):
    filled = Typed(
        rows={
            "arms": list(ARMS),
            "points": [{"workload": "count"}],
            "engine-extra": [{"flag": "--x"}, {"flag": "--override-tensor"}],
            "placement-labels": [{"key": "gpu"}],
        }
    )
    assert place_of(path, filled) == place
    assert words_of(place) == called


# --- the table of fields is whole ---


def test_every_key_of_a_spec_has_a_field():
    shown = {f.path for f in SINGLE} | {f"{group.replace('-', '.')}.*.{f.path}" for group, fields in ROWS.items() for f in fields}
    due = {"version"}  # has one value

    def keys(model: Any, at: str) -> None:
        for name, field in model.model_fields.items():
            kind = field.annotation
            inner = next((a for a in getattr(kind, "__args__", ()) if hasattr(a, "model_fields")), None)
            if hasattr(kind, "model_fields"):
                keys(kind, f"{at}{name}.")
            elif inner:
                keys(inner, f"{at}{name}.*." if get_origin(kind) is list else f"{at}{name}.")
            else:
                due.add(f"{at}{name}")

    keys(ExperimentSpec, "")
    elsewhere = {"version", "engine.extra", "placement.hosts", "placement.labels"}
    assert due - shown == elsewhere
    assert set(MODE_WORDS) == set(MODES)


def test_the_sample_is_the_demo_s_experiment():
    assert form_choices.sample_data() == read_yaml((ROOT / "demo" / "experiment.yaml").read_bytes())

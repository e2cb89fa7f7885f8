"""YAML as people send it: what is refused and in which words, lines of fields, and specs that come back as they went."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from speccore.spec import MODES, MODES_WITH_DRAFT_MODEL, ExperimentSpec, parse_spec
from speccore.yamltext import MAX_BYTES, YamlFault, data_to_yaml, read_document, read_yaml, spec_to_yaml

ROOT = Path(__file__).parents[2]


def aliases(first: str, rest: str) -> bytes:
    """Nine lines, each of which names the one before nine times."""
    lines = [f"a: &a {first}"]
    for one, other in zip("abcdefghi", "bcdefghij", strict=True):
        lines.append(f"{other}: &{other} " + rest.replace("…", ", ".join([f"*{one}"] * 9)))
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (b"x" * 5_000_000, None, "it has 5,000,000 bytes, more than the 262,144 that are read"),
        (aliases("[x, x]", "[…]"), 5, "more than 20,000 values once its aliases (*) are written out"),
        (aliases("{x: 1}", "{<<: […]}"), 5, "more than 20,000 values once its aliases (*) are written out"),
        (b"a: 1\nb: &b [*b]", 2, "an alias (*) stands inside what it names"),
        (b"[" * 200_000, 1, "it is nested more than 20 deep"),
        (b"{a: " * 50_000, 1, "it is nested more than 20 deep"),
        (b"[" + b"[]," * 80_000 + b"]", None, "it holds more than 20,000 values"),
        (b"a: 1\nb: 2\na: 3", 3, "the key 'a' is there twice"),
        (b"a: 1\n---\nb: 2\n", 2, "it holds more than one document: keep what stands before the second ---"),
        (b"a: 1\nb: !!python/object/apply:os.system [ls]", 2, "the tag !!python/object/apply:os.system is not read"),
        (b"a: !!int ''", 1, "the tag !!int is not read: write a plain value"),
        (b"a: !local 1", 1, "the tag !local is not read"),
        (b"a: 1\nb: \xff", 2, "it is no UTF-8 text: save the file as UTF-8"),
        (b"a: 1\nb: \x00", 2, "it holds the control character U+0000: remove it"),
        (b"a: 1\nb: c: d", 2, "put a text with ': ' in quotes"),
        (b"a: 1\n\tb: 2", 2, "a tab stands where spaces are due"),
        (b"a: 1\n? [x]\n: 2", 2, "a key must be a plain word"),
        (b"a: 1\nb: [1", 2, "expected ',' or ']'"),
        (b"a: 1\nb: *c", 2, "undefined alias 'c'"),
        (b"a: 1\n<<: [3]", 2, "<<: takes a mapping"),
    ],
)
def test_what_is_refused(text: bytes, line: int | None, words: str) -> None:
    began = time.perf_counter()
    with pytest.raises(YamlFault) as refused:
        read_yaml(text)
    assert words in refused.value.words
    assert refused.value.line == line
    assert str(refused.value).startswith(f"line {line}: " if line else "it ")
    assert time.perf_counter() - began < 5


def test_the_largest_that_is_read_takes_no_long() -> None:
    text = b"a: '" + b"x" * (MAX_BYTES - 5) + b"'"
    assert len(text) == MAX_BYTES
    began = time.perf_counter()
    assert len(read_yaml(text)["a"]) == MAX_BYTES - 5
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a: 2026-01-02", {"a": "2026-01-02"}),
        ("a: 2026-13-45", {"a": "2026-13-45"}),
        ("a: 12:30", {"a": "12:30"}),
        ("a: 010", {"a": "010"}),
        ("a: [10, -1, 0, 0.5, .5, 1e3, 1.5e-3, .inf]", {"a": [10, -1, 0, 0.5, 0.5, 1000.0, 0.0015, float("inf")]}),
        ("a: " + "9" * 6000, {"a": "9" * 6000}),
        ("a: =", {"a": "="}),
        ("a: [off, on, true, yes]", {"a": [False, True, True, True]}),
        ('{"a": "\\u00e9"}', {"a": "é"}),
        ("\ufeffa: 1", {"a": 1}),
        ("", None),
        # merged keys: an own one wins, then the earlier mapping, also through a merge of merges
        ("a: &a {x: 1}\nb: &b {<<: *a, x: 2}\nc: {<<: *b}", {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 2}}),
        ("a: &a {x: 1}\nb: &b {x: 2, z: 2}\nc: {<<: [*a, *b], z: 9}", {"a": {"x": 1}, "b": {"x": 2, "z": 2}, "c": {"x": 1, "z": 9}}),
    ],
)
def test_what_plain_words_mean(text: str, data: Any) -> None:
    assert read_yaml(text.encode()) == data


def test_a_field_has_a_line() -> None:
    document = read_document(b"name: x\narms:\n  - {name: off}\n  - name: d\n    draft_limit: 0\nengine:\n  extra:\n    --foo: 1\n")
    lines = {f: document.line_of(f) for f in ("name", "arms.1.draft_limit", "arms.1.mode", "arms.7", "engine.extra.--foo", "points", "")}
    assert lines == {"name": 1, "arms.1.draft_limit": 5, "arms.1.mode": 4, "arms.7": 2, "engine.extra.--foo": 8, "points": None, "": None}


def test_the_sample_reads_well_when_written() -> None:
    spec, _ = parse_spec(read_yaml((ROOT / "demo" / "experiment.yaml").read_bytes()))
    assert spec is not None
    written = spec_to_yaml(spec)
    assert "\n- {name: 'off', mode: 'off'}\n- {name: draft-3, mode: draft, draft_model: demo-draft, draft_limit: 3}\n" in written
    assert "\n  start_timeout_s: 60\n" in written
    assert "blocks" not in written  # a default
    assert yaml.safe_load(written)["arms"][0]["mode"] == "off"  # other readers see the word too


def test_a_half_filled_draft_comes_back_as_it_is() -> None:
    draft = {"name": "", "target": {"model": None}, "arms": [{"name": "1e3", "draft_limit": ""}, {}], "points": [], "x": [1, [2], "off"]}
    assert read_yaml(data_to_yaml(draft).encode()) == draft


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 ._+/@-]{0,20}", fullmatch=True)
#: All but what is not seen or turns the direction of writing.
plain = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cf", "Zl", "Zp"))
texts = st.text(plain, min_size=1, max_size=60).filter(str.strip)
flags = st.dictionaries(
    st.from_regex(r"--[a-z0-9][a-z0-9-]{0,12}", fullmatch=True),
    st.one_of(
        texts,
        st.integers(-5, 10**6),
        st.booleans(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.lists(texts, min_size=1, max_size=3),
    ),
    max_size=3,
)


@st.composite
def specs(draw: st.DrawFn) -> ExperimentSpec:
    arms: list[dict[str, Any]] = [{"name": "off", "mode": "off"}]
    for name in draw(st.lists(names.filter(lambda n: n != "off"), min_size=1, max_size=4, unique=True)):
        mode = draw(st.sampled_from(sorted(set(MODES) - {"off"})))
        arm = {
            "name": name,
            "mode": mode,
            "draft_limit": draw(st.none() | st.integers(1, 1024)),
            "p_min": draw(st.none() | st.floats(0, 1)),
        }
        arms.append(arm | ({"draft_model": draw(texts)} if mode in MODES_WITH_DRAFT_MODEL else {}))
    points = [
        {"workload": w, "max_tokens": draw(st.integers(2, 4096)), "sampling": {"temperature": draw(st.floats(0, 5))}}
        for w in draw(st.lists(texts, min_size=1, max_size=4, unique=True))
    ]
    data = {
        "name": draw(texts),
        "question": draw(st.just("") | texts),
        "target": {"model": draw(texts)},
        "engine": {
            "extra": draw(flags),
            "threads": draw(st.none() | st.integers(1, 64)),
            "flash_attention": draw(st.sampled_from([None, "off", "on"])),
        },
        "arms": draw(st.permutations(arms)),
        "points": points,
        "blocks": draw(st.integers(1, 100)),
        "margin": draw(st.floats(0, 1)),
        "placement": {"hosts": draw(st.lists(texts, max_size=2)), "labels": draw(st.dictionaries(texts, texts, max_size=2))},
    }
    spec, problems = parse_spec(data)
    assert spec is not None, problems
    return spec


@given(specs())
@settings(max_examples=60, deadline=None)
def test_a_spec_comes_back_from_its_yaml(spec: ExperimentSpec) -> None:
    back, problems = parse_spec(read_yaml(spec_to_yaml(spec).encode()))
    assert problems == []
    assert back == spec
    assert back.spec_hash() == spec.spec_hash()

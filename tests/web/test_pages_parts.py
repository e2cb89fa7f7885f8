"""The parts of pages that need no database: reading evidence, command differences, marks, colours, plot data."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import plotly
import pytest
from speccore.commandline import command_differences
from speccore.measurement import VerdictWord
from speccore.spec import MODES

from specweb.dashboard import attempt_page, experiment_page, formats
from specweb.dashboard.marks import MARKS, VERDICT_CLASSES, VERDICT_SHAPES, mode_words
from specweb.results import evidence_text
from tests.web import sample

STATIC = Path(__file__).parents[2] / "specweb" / "static" / "specweb"
CSS = (STATIC / "site.css").read_text()


# --- what was asked, in words ---


def test_work_of_one_name_is_told_apart_by_what_else_it_fixes():
    points = [{"workload": "count"}, {"workload": "count", "concurrency": 4}, {"workload": "free-text", "occupied_context": 900}]
    spec = sample.spec(engine={"context": 2048, "slots": 4}, points=points)
    titles = {p.key: "Counting" for p in spec.points[:2]} | {spec.points[2].key: "Free text"}
    assert list(attempt_page.works(spec, titles).values()) == ["Counting, greedy", "Counting, greedy · 4 at once", "Free text"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, []),
        (
            {"context": 2048, "slots": 1, "free_memory_mib": 1024, "quality": "held"},
            ["2,048 tokens per slot", "1 slot", "1,024 MiB of memory left free", "quality shown to be held"],
        ),
    ],
)
def test_what_an_arm_must_hold_stands_with_what_was_asked(asked, words):
    assert experiment_page.required(sample.spec(requirements=asked)) == words


# --- evidence as text ---


@pytest.mark.parametrize(
    ("content", "first", "n", "lines", "more"),
    [
        (b"", 1, 5, [], False),
        (b"a\nb\n", 1, 5, ["a", "b"], False),
        (b"a\nb", 1, 5, ["a", "b"], False),
        (b"a\r\n\nb\n", 1, 2, ["a", ""], True),
        (b"a\nb\nc\n", 2, 1, ["b"], True),
        (b"a\nb\nc\n", 3, 5, ["c"], False),
        (b"a\n", 4, 5, [], False),
        (b"\xff\xc3\xa9\n", 1, 1, ["\ufffdé"], False),
    ],
)
def test_a_range_of_lines(content, first, n, lines, more):
    found = evidence_text.read_lines(io.BytesIO(content), first, n)
    assert [line.text for line in found.lines] == lines
    assert [line.n for line in found.lines] == list(range(first, first + len(lines)))
    assert found.more is more


class Trickle(io.BytesIO):
    """A stream that never gives more than a few bytes at a time, as a decompressor may."""

    def read(self, n: int | None = -1) -> bytes:
        return super().read(min(7, n) if n and n > 0 else 7)


def test_lines_come_out_whole_however_the_bytes_come():
    content = "".join(f"line {i} {'é' * (i % 11)}\n" for i in range(500)).encode()
    whole, split = (evidence_text.read_lines(kind(content), 100, 300) for kind in (io.BytesIO, Trickle))
    assert whole == split
    assert whole.lines[0].text.startswith("line 99 ")


def test_a_line_without_end_is_cut_and_counted():
    content = b"x" * 3_000_000 + b"\nshort\n"
    found = evidence_text.read_lines(io.BytesIO(content), 1, 10)
    assert len(found.lines[0].text) == evidence_text.MAX_LINE_CHARS
    assert found.lines[0].n_cut == 3_000_000 - evidence_text.MAX_LINE_CHARS
    assert found.lines[1] == evidence_text.Line(2, "short")


def test_a_record_is_spread_out_unless_it_is_too_long_or_no_json():
    content = b'{"a":1,"events":[{"t":1},{"t":2}],"final":{"timings":{"n":3}}}\nno json\n' + b"[" * 200_000 + b"\n"
    spread = evidence_text.read_record(io.BytesIO(content), 1)
    assert spread == [
        "{",
        '  "a": 1,',
        '  "events": [',
        '    {"t": 1},',
        '    {"t": 2}',
        "  ],",
        '  "final": {',
        '    "timings": {"n": 3}',
        "  }",
        "}",
    ]
    assert [evidence_text.read_record(io.BytesIO(content), n) for n in (2, 3, 4)] == [None, None, None]


@pytest.mark.parametrize(
    ("field", "hit"),
    [
        ("final.timings.n", ['      "n": 3,']),
        ("events[].t − sent", ['  "sent": 9,', '  "events": [']),
        ("sent", ['  "sent": 9,']),
        ("nothing here", []),
        ("", []),
    ],
)
def test_the_named_field_of_a_record_is_marked(field, hit):
    spread = evidence_text.spread_json(
        b'{"sent":9,"n":1,"events":[{"t":1,"n":5}],"final":{"x":{"n":4,"y":[{}]},"timings":{"n":3,"z":[{}]}}}'
    )
    assert spread is not None
    marked = [text for text, is_hit in attempt_page.record_lines(spread, field) if is_hit]
    assert marked == hit


@pytest.mark.parametrize(
    ("field", "at_s"),
    [
        ("events: last draft_n", 3),
        ("first events[].at_s − sent_at_s", 1),
        ("first content events[].at_s − sent_at_s", 2),
        ("last events[].at_s − sent_at_s", 3),
    ],
)
def test_of_a_records_events_the_one_that_was_read_is_marked(field, at_s):
    events = [
        {"at_s": 1, "kind": "reasoning", "tokens": 1, "draft_n": None},
        {"at_s": 2, "kind": "content", "tokens": 1, "draft_n": 4},
        {"at_s": 3, "kind": "content", "tokens": 12, "draft_n": 8},
        {"at_s": 4, "kind": "", "tokens": 0, "draft_n": None},
    ]
    spread = evidence_text.spread_json(json.dumps({"sent_at_s": 0, "events": events, "final": {"tokens": 9}}).encode())
    assert spread is not None
    (marked,) = [text for text, is_hit in attempt_page.record_lines(spread, field) if is_hit]
    assert marked.startswith(f'    {{"at_s": {at_s},')


# --- commands ---


def test_only_what_an_arm_adds_is_marked():
    spec = sample.spec()
    commands = {
        "off": ["llama-server", "-m", "{target}", "--port", "{port}", "-c", "2048"],
        "draft-3": ["llama-server", "-m", "{target}", "--port", "{port}", "-c", "4096", "-md", "{draft}", "--flag", "two words"],
    }
    off, draft = command_differences(spec, commands)
    assert not any(p.added for p in off.parts)
    assert [p.text for p in draft.parts if p.added] == ["-c 4096", "-md {draft}", "--flag 'two words'"]
    assert draft.missing == ["-c 2048"]
    assert command_differences(spec, {}) == []


# --- looks ---


def test_each_mode_has_its_own_marker_and_colour_in_both_schemes():
    assert set(MARKS) == set(MODES)
    assert len({m.symbol for m in MARKS.values()}) == len({m.path for m in MARKS.values()}) == len(MODES)
    for scheme in schemes():
        colours = [scheme[f"m-{mode}"] for mode in MODES]
        assert len(set(colours)) == len(MODES)
    for mode in MODES:
        assert f".m-{mode} {{ --m: var(--m-{mode}); }}" in CSS


def test_each_verdict_has_a_shape_and_a_colour():
    words = set(VerdictWord.__args__)
    assert set(VERDICT_SHAPES) == set(VERDICT_CLASSES) == words
    assert len(set(VERDICT_SHAPES.values())) == len(words)
    assert all(f".{cls} {{" in CSS for cls in VERDICT_CLASSES.values())


def schemes() -> list[dict[str, str]]:
    """The colour tokens, light and dark."""
    light, dark = re.findall(r":root \{(.*?)\}", CSS, re.S)[:2]
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", text)) for text in (light, dark)]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two sRGB colours (WCAG 2.2, relative luminance)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_is_readable_and_marks_are_visible():
    for tokens in schemes():
        for ink in ("ink", "soft", "faint", "link", "keep", "shorten", "disable", "open", "invalid"):
            for ground in ("bg", "panel"):
                assert contrast(tokens[ink], tokens[ground]) >= 4.5, (ink, ground, tokens["bg"])
        for word in ("keep", "shorten", "disable", "open", "invalid"):
            assert contrast(tokens[word], tokens[f"{word}-bg"]) >= 4.5, word
        assert contrast(tokens["ink"], tokens["hit"]) >= 4.5
        for mode in MODES:
            assert contrast(tokens[f"m-{mode}"], tokens["bg"]) >= 3, mode


def test_the_style_elements_that_the_plot_script_would_add_are_known():
    """A new release of Plotly may name them otherwise; then the page would break its own policy."""
    script = (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_text()
    ours = (STATIC / "plots.js").read_text()
    added = set(re.findall(r'document\.createElement\("style"\);\w+\.id="([0-9a-f]+)"', script))
    assert added
    assert all(name in ours for name in added)
    assert '"plotly.js-style-"' in script
    assert "plotly.js-style-global" in ours
    assert ".no-inline-styles" in script


def test_ratios_and_sizes_read_well():
    assert [formats.ratio(v) for v in (0.805, 1.0, 9.994, 12.34)] == ["0.81×", "1.00×", "9.99×", "12.3×"]
    assert [formats.signed_size(v) for v in (0, 2048, -9.4 * 2**20, 3 * 2**30)] == ["+0 B", "+2.0 KiB", "−9.4 MiB", "+3.0 GiB"]
    assert [formats.duration(s) for s in (0.71, 59.94, 60, 3725)] == ["0.7 s", "59.9 s", "1 min 0 s", "1 h 2 min"]
    assert formats.shortened("one two three", 8) == "one two…"


def test_an_arm_with_drafters_beside_each_other_names_them_all():
    beside = {"name": "both", "mode": "draft", "draft_model": "demo-draft", "also": ["ngram-mod", "ngram-simple"]}
    arms = sample.spec(arms=[{"name": "off", "mode": "off"}, beside]).arms
    assert [mode_words(arm) for arm in arms] == ["off", "draft + ngram-mod + ngram-simple"]

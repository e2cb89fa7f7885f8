"""Names in a report that is pasted stay text, for a Markdown parser and for what GitHub makes of text; and a report fits."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from speccore.markdown import MOST_CHARS, Part, code, fenced, folded, joined, paragraph, table_row, text

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HIDDEN = "\u200b"
#: What GitHub links or draws in text that a parser left alone.
MADE_OF_TEXT = (r"@[A-Za-z0-9]", r"#\d", r"(?i)\bGH-\d", r"[A-Za-z]:\/\/", r"(?i)\bwww\.", r":[A-Za-z0-9_+-]+:", r"\b[0-9a-f]{7,40}\b")
ODD = st.text(alphabet=st.sampled_from("ab1 |`*_<>[]()#@:/\\~&$!-+=.'\"{}\n\t\u202eé模😀"), max_size=40)


def said(markdown: str) -> tuple[set[str], str]:
    """Kinds of inline tokens, and their text."""
    found = [t for block in PARSER.parse(markdown) for t in block.children or []]
    return {t.type for t in found}, "".join(t.content for t in found)


def plain(words: str) -> str:
    return re.sub(r"[\n\t]", " ", words.replace("\u202e", ""))


@given(ODD)
def test_a_name_is_the_same_text_in_a_paragraph_and_nothing_else(words: str) -> None:
    kinds, shown = said(f"x {text(words)} y")
    assert kinds <= {"text"}
    assert shown.replace(HIDDEN, "") == f"x {plain(words)} y"
    html = PARSER.render(paragraph(words)) if plain(words).strip() else "<p></p>"
    assert html.startswith("<p>")
    assert html.count("<") == 2


@given(ODD)
def test_a_name_is_one_cell_of_a_table(words: str) -> None:
    table = "\n".join([table_row(("a", "b")), table_row(("---", "---")), table_row((text(words) or " ", code(words)))])
    cells = [t for t in PARSER.parse(table) if t.type == "inline"]
    assert len(cells) == 4
    assert cells[2].children is not None
    assert "".join(c.content for c in cells[2].children).replace(HIDDEN, "") == plain(words).strip()
    assert {c.type for c in cells[3].children or []} == {"code_inline"}
    assert "".join(c.content for c in cells[3].children or []).strip() == plain(words).strip()


@pytest.mark.parametrize(
    "words",
    [
        "@octocat",
        "a@b.example",
        "#123",
        "x/y#4",
        "gh-7",
        "https://evil.example/",
        "www.evil.example",
        ":rocket:",
        "commit 7e4c0a9f",
        "a1" * 20,
    ],
)
def test_nothing_is_left_that_github_would_link(words: str) -> None:
    _, shown = said(text(words))
    assert not [pattern for pattern in MADE_OF_TEXT if re.search(pattern, shown) and re.search(pattern, words)]
    assert shown.replace(HIDDEN, "") == words


def test_numbers_and_versions_are_left_alone() -> None:
    assert text("2.41× [2.33–2.49], 131072 tokens, b11434") == "2.41× \\[2.33–2.49\\], 131072 tokens, b11434"


def test_code_that_holds_fences_gets_a_longer_one() -> None:
    body = "````\nnot the end\n````"
    (block,) = [t for t in PARSER.parse(fenced(body, "yaml")) if t.type == "fence"]
    assert block.content == body + "\n"


def chars(report: str) -> int:
    return len(report.encode("utf-16-le")) // 2


def test_what_fits_is_left_whole() -> None:
    parts = [Part("a", ["one", "two"]), Part("none", []), Part("b", ["three"], rank=1, around=folded("B"))]
    assert joined(parts) == "one\ntwo\n\n<details><summary>B</summary>\n\nthree\n\n</details>\n"


def test_too_much_is_left_out_by_rank_and_said() -> None:
    rows = [table_row((f"row {i}", "x")) for i in range(50)]
    parts = [
        Part("table", rows, head="| a | b |\n| --- | --- |"),
        Part("evidence", ["😀" * 20_000], rank=1),
        Part("commands", ["y" * 40_000], rank=2),
    ]
    report = joined(parts, "All of it: there")
    assert chars(report) <= MOST_CHARS
    assert "y" * 40_000 in report
    assert "😀" not in report
    assert report.endswith("Left out, since no more than 65,536 characters fit: evidence. All of it: there\n")


def test_a_table_that_is_too_long_ends_with_how_many_rows_are_missing() -> None:
    rows = [table_row((f"row {i} " + "模" * 200, "x")) for i in range(1_000)]
    report = joined([Part("answer", ["keep"]), Part("table", rows, head="| a | b |\n| --- | --- |"), Part("end", ["the end"])])
    assert 60_000 < chars(report) <= MOST_CHARS
    kept = len(re.findall(r"^\| row", report, re.MULTILINE))
    assert f"\n\n… and {1_000 - kept:,} more\n\nthe end\n" in report
    (table,) = [t for t in PARSER.parse(report) if t.type == "tbody_open"]
    assert table.map is not None
    assert table.map[1] - table.map[0] == kept

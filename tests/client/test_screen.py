"""What a terminal, a pipe and a program get."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from specclient.screen import Column, Screen, cut, safe, table_lines, width_of

COLUMNS = (Column("name", least=6), Column("n", right=True), Column("verdict", least=8))
ROWS = [("a name that is rather long", "7", "keep · faster"), ("b", "1,000", "disable · slower")]


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def screen(kind: type[io.TextIOWrapper] = io.TextIOWrapper, encoding: str = "utf-8", **environ: str) -> Screen:
    streams = [kind(io.BytesIO(), encoding=encoding) for _ in range(2)]
    return Screen(streams[0], streams[1], environ)


def written(it: Any) -> bytes:
    it.flush()
    return bytes(it.buffer.getvalue())


def test_a_table_is_cut_to_the_terminal_and_nowhere_else() -> None:
    wide = table_lines(COLUMNS, ROWS, 0)
    assert wide[2] == "a name that is rather long      7  keep · faster"
    assert wide[3] == "b                           1,000  disable · slower"
    for room in (40, 30, 24):
        narrow = table_lines(COLUMNS, ROWS, room)
        assert max(map(width_of, narrow)) <= room
        assert "1,000" in narrow[3], "numbers are never cut"
        assert "…" in narrow[2]


def test_wide_and_combining_letters_keep_the_columns() -> None:
    lines = table_lines(COLUMNS[:2], [("東京のカード", "1"), ("e\u0301tude", "2"), ("plain", "3")], 0)
    assert {width_of(line) for line in lines} == {width_of(lines[0])}
    assert cut("東京のカード", 6) == "東京…"


def test_no_name_steers_the_terminal() -> None:
    for nasty in ("\x1b]0;title\x07", "a\rb", "\u202egnp", "\u200fx", "\x9b2J", "x\u2028y", "\x00"):
        assert safe(nasty).isprintable(), repr(nasty)
    it = screen(Terminal)
    it.table(COLUMNS[:1], [("\x1b[31mred\x1b[0m",)])
    assert b"\x1b" not in written(it.out)


def test_colours_are_for_terminals_that_want_them() -> None:
    def keep(it: Screen) -> bytes:
        it.table(COLUMNS, ROWS)
        return written(it.out)

    assert b"\x1b[32mkeep" in keep(screen(Terminal))
    assert b"\x1b" not in keep(screen(Terminal, NO_COLOR="1"))
    assert b"\x1b" not in keep(screen(Terminal, TERM="dumb"))
    assert b"\x1b" not in keep(screen())


def test_a_line_that_is_written_over_is_for_terminals() -> None:
    for kind, shown in ((Terminal, True), (io.TextIOWrapper, False)):
        it = screen(kind)
        it.show("half")
        it.note("done")
        assert (b"half" in written(it.err), b"done\n" in written(it.err)) == (shown, True)


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", "×".encode()), ("utf-8", "×".encode()), ("latin-1", b"\xd7")])
def test_no_locale_lacks_a_letter(encoding: str, shown: bytes) -> None:
    it = screen(encoding=encoding)
    it.print("1.5× 東 \ud800")
    assert written(it.out).startswith(b"1.5" + shown)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_json_is_json_wherever_it_goes_and_steers_nothing(encoding: str) -> None:
    value = {"name": "\x1b[2J \x9b2J \u202e × 東 😀", "n": 1.5}
    it = screen(encoding=encoding)
    it.json(value)
    raw = written(it.out)
    text = raw.decode("latin-1" if encoding == "latin-1" else "utf-8")
    assert not any(c in text for c in "\x1b\x9b\u202e")
    assert json.loads(text) == value


def test_a_complaint_stands_on_standard_error_with_what_to_do() -> None:
    it = screen()
    it.complain("it is\x1b[2J wrong", "do this")
    assert written(it.err).decode() == "error: it is\ufffd[2J wrong\n  → do this\n"
    assert written(it.out) == b""

"""Tables of other people: cells as they are written there, columns as somebody maps them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speccore.importers import read_file
from speccore.importers.cells import CellWrong, Figure, devices, figure
from speccore.importers.csv_table import table_of
from speccore.importers.mapping import Column, Mapping, mapping_of, proposed
from speccore.importers.places import Refused

from tests.imports.recorded import content

CELLS = {
    "45.2": Figure(45.2),
    " 1,024.5 ": Figure(1024.5),
    "45.2*": Figure(45.2, note="*"),
    "61.0 [1]": Figure(61.0, note="[1]"),
    "38 (Q4 only)": Figure(38.0, note="(Q4 only)"),
    "12¹": Figure(12.0, note="¹"),
    "~12": Figure(12.0, note="about"),
    "38.5 ± 0.4": Figure(38.5, note="± 0.4"),
    "45 tok/s": Figure(45.0),
    "40-45": Figure(low=40.0, high=45.0),
    "40 – 45 t/s *": Figure(low=40.0, high=45.0, note="*"),
    "40 to 45": Figure(low=40.0, high=45.0),
    "0": Figure(0.0),
}


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_is_read_as_it_is_written(cell: str) -> None:
    assert figure(cell, "tokens/s") == CELLS[cell]


@pytest.mark.parametrize("cell", ["", "-", "–", "—", "n/a", "N/A", "?", "TBD", "— *"])
def test_a_dash_is_missing_and_never_0(cell: str) -> None:
    assert figure(cell, "tokens/s") is None


WRONG = {
    "fast": "is no number",
    "45,2": "no thousands separator",
    "45 ms": "is in ms",
    "-3": "is negative",
    "1e400": "is no number",
    "1e30": "more than",
    "45-40": "runs backwards",
    "45 furlongs": "behind the number",
    "4k": "behind the number",
    "--5": "is no number",
    "1" + " " * 1_900 + "fast": "behind the number",  # to be told at once: patterns may not try every way to part the spaces
    "1" + "’" * 1_900: "is no number",
    "1" + "*" * 1_900: "is no number",
}


@pytest.mark.parametrize("cell", WRONG)
def test_a_cell_that_can_t_be_its_column_s_is_refused(cell: str) -> None:
    with pytest.raises(CellWrong) as caught:
        figure(cell, "tokens/s")
    assert WRONG[cell] in caught.value.reason
    assert caught.value.remedy


def test_a_percentage_is_no_share_and_is_not_made_one() -> None:
    with pytest.raises(CellWrong):
        figure("65%", "share")
    with pytest.raises(CellWrong):
        figure("65", "share")
    assert figure("65%", "%") == Figure(65.0)
    assert figure("0.56-0.94", "share") == Figure(low=0.56, high=0.94)


def test_a_decimal_comma_is_read_where_it_is_said() -> None:
    assert figure("1.024,5", "tokens/s", ",") == Figure(1024.5)


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=40))
def test_any_cell_is_a_figure_missing_or_refused_in_words(cell: str) -> None:
    found, told = None, ""
    try:
        found = figure(cell, "tokens/s")
    except CellWrong as wrong:
        told = f"{wrong.reason}: {wrong.remedy}"
    values = [] if found is None else [v for v in (found.value, found.low, found.high) if v is not None]
    assert all(0 <= v <= 1e7 for v in values)
    assert told or found is None or values


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("RTX 3090", ("RTX 3090",)),
        ("2x RTX 3090", ("RTX 3090",)),
        ("2 × RTX 3090 + Tesla P40", ("RTX 3090", "Tesla P40")),
        ("RTX 3090 & RTX 3060", ("RTX 3090", "RTX 3060")),
        ("RTX 4090 x2", ("RTX 4090",)),
        ("Xeon E5-2680 v4 / P100", ("Xeon E5-2680 v4", "P100")),
        ("A100-SXM4-80GB", ("A100-SXM4-80GB",)),
        ("", ()),
    ],
)
def test_devices_that_share_a_cell_are_each_found(cell: str, names: tuple[str, ...]) -> None:
    assert devices(cell) == names


def community() -> Mapping:
    table = table_of(content("community.csv"))
    return proposed(table.headers, table.samples)


def test_a_public_table_s_columns_are_proposed() -> None:
    roles = {c.header: (c.role, c.unit) for c in community().columns}
    assert roles == {
        "card": ("hardware", ""),
        "model": ("model", ""),
        "baseline": ("number", "tokens/s"),
        "with": ("number", "tokens/s"),
        "limit": ("setting", ""),
        "acceptance": ("number", "share"),
        "contributor": ("contributor", ""),
        "notes": ("notes", ""),
    }


def test_a_public_table_keeps_ranges_dashes_and_footnotes() -> None:
    found = read_file(content("community.csv"), "table", community())
    assert found.faults == ()
    assert len(found.runs) == 4
    assert found.warnings == ("1 row holds no number, and is left out.",)
    first, second, third, fourth = found.runs
    assert (first.hardware, first.devices, first.contributor, first.settings) == ("2x RTX 3090", ("RTX 3090",), "ann", {"limit": "4"})
    assert [(n.value, n.low, n.high, n.note) for n in first.numbers] == [
        (24.1, None, None, ""),
        (45.2, None, None, "*"),
        (None, 0.56, 0.94, ""),
    ]
    assert second.devices == ("RTX 3090", "Tesla P40")
    assert [n.kind.key for n in second.numbers] == ["baseline", "acceptance"]
    assert [(n.kind.key, n.value, n.note) for n in third.numbers] == [("baseline", 12.0, "about")]
    assert [(n.low, n.high) for n in fourth.numbers] == [(None, None), (None, None), (0.81, 0.88)]
    assert [r.line for r in found.runs] == [2, 3, 4, 5]


def test_a_wrong_cell_refuses_the_table_with_line_and_column() -> None:
    found = read_file(content("community.csv").replace(b"9.7", b"9.7 ms"), "table", community())
    (fault,) = found.faults
    assert (found.runs, fault.line, fault.field, fault.value) == ((), 3, "baseline", "9.7 ms")
    assert "is in ms" in fault.reason


def test_a_mapping_is_read_back_as_it_is_told() -> None:
    table = table_of(content("community.csv"))
    assert mapping_of(community().as_json(), table.headers) == (community(), [])


def number(**more: str) -> dict[str, object]:
    return {"columns": {"speed": {"as": "number", "unit": "tokens/s"} | more}}


BAD_MAPPINGS: dict[str, tuple[object, str]] = {
    "no object": ([], "mapping"),
    "no number": ({"columns": {"a": {"as": "model"}}}, "mapping.columns"),
    "unknown role": ({"columns": {"a": {"as": "colour"}}}, "mapping.columns.a"),
    "unknown unit": (number(unit="furlongs"), "mapping.columns.speed.unit"),
    "unknown metric": (number(metric="velocity"), "mapping.columns.speed.metric"),
    "unknown key": (number(colour="red"), "mapping.columns.speed.colour"),
    "a number as text": ({"columns": {"a": {"as": "number", "unit": 3}}}, "mapping.columns.a.unit"),
    "two models": ({"columns": {"a": {"as": "model"}, "b": {"as": "model"}, **number()["columns"]}}, "mapping.columns"),  # type: ignore[dict-item]
    "decimal sign": (number() | {"decimal": ";"}, "mapping.decimal"),
    "constant": (number() | {"constants": {"colour": "red"}}, "mapping.constants.colour"),
    "column and constant": (
        {"columns": {"a": {"as": "model"}, **number()["columns"]}, "constants": {"model": "x"}},
        "mapping.constants.model",
    ),  # type: ignore[dict-item]
    "unknown part": (number() | {"rows": 3}, "mapping.rows"),
}


@pytest.mark.parametrize("case", BAD_MAPPINGS)
def test_a_wrong_mapping_is_refused_with_its_field(case: str) -> None:
    value, field = BAD_MAPPINGS[case]
    found, faults = mapping_of(value)
    assert found is None
    assert field in [f.field for f in faults]
    assert all(f.remedy for f in faults)


def test_a_column_that_the_table_lacks_is_named() -> None:
    _, faults = mapping_of(number(), ["tempo", "model"])
    assert faults[0].field == "mapping.columns.speed"
    assert "tempo" in faults[0].remedy


BAD_TABLES = {
    "no words": (b",,\n,,\n", "no cell"),
    "an empty quotation": (b'""\n', "no cell"),
    "header only": (b"a,b\n", "no row"),
    "one column": (b"a\n1\n", "one column"),
    "a nameless column": (b"a,,c\n1,2,3\n", "no name"),
    "the same name twice": (b"a,a\n1,2\n", "two columns"),
    "more cells than columns": (b"a,b\n1,2,3\n", "3 cells"),
    "an open quotation": (b'a,b\n"1,2\n', "no CSV"),
    "too many rows": (b"a,b\n" + b"1,2\n" * 2_001, "at most 2,000"),
    "a cell of thousands": (b"a,b\n1," + b"x" * 2_001 + b"\n", "2,000 characters"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_a_table_that_is_none_is_refused(case: str) -> None:
    data, words = BAD_TABLES[case]
    with pytest.raises(Refused) as caught:
        table_of(data)
    assert words in caught.value.fault.reason


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_other_delimiters_are_found(delimiter: str) -> None:
    text = delimiter.join(("card", "speed")) + "\n" + delimiter.join(("P40", "9.7")) + "\n"
    table = table_of(text.encode())
    assert (table.headers, table.rows) == (("card", "speed"), ((2, ("P40", "9.7")),))


def test_a_length_as_people_write_it_stays_words() -> None:
    columns = (Column("ctx", "context_tokens"), Column("speed", "number", unit="tokens/s"))
    (run,) = read_file(b"ctx,speed\n8k,12\n", "table", Mapping(columns)).runs
    assert (run.context_tokens, run.settings) == (None, {"ctx": "8k"})

"""docs/import.md says of each tool's numbers what the importers say."""

from __future__ import annotations

import json
import re
from pathlib import Path

from speccore.importers import TOOLS, markdown_table
from speccore.importers.cells import UNITS
from speccore.importers.mapping import CONSTANTS, WORDS, mapping_of

DOC = (Path(__file__).parents[2] / "docs" / "import.md").read_text()


def test_its_table_is_the_importers_own() -> None:
    assert markdown_table() in DOC  # rewrite it with speccore.importers.markdown_table()


def test_every_tool_says_what_its_numbers_are() -> None:
    for importer in TOOLS.values():
        for kind in importer.kinds():
            assert kind.definition
            assert kind.name


def test_its_mapping_is_one_and_its_words_are_known() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", DOC, re.DOTALL)
    assert mapping_of(json.loads(example))[1] == []
    assert all(f"`{word}`" in DOC for word in (*WORDS, *CONSTANTS, *[u for u in UNITS if u]))

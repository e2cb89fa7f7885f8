"""The map of the agent in its README against its modules."""

from __future__ import annotations

import re
from pathlib import Path

AGENT = Path(__file__).parents[2] / "agent"


def test_every_module_has_its_place_in_the_map_and_no_other() -> None:
    table = (AGENT / "README.md").read_text().partition("## How it is built")[2]
    placed = [name for line in table.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    modules = {path.stem for path in (AGENT / "specagent").glob("*.py")} - {"__init__", "__main__"}
    assert sorted(placed) == sorted(modules)

"""A parser of vLLM's options as its recorded help lists them: names, whether a value follows, the values that are listed, numbers.

Made from the help alone, and by other code than the one under test, so that a command can be held against it.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

HELP = (Path(__file__).parents[1] / "logs" / "vllm" / "v0.32.0.help-all.txt").read_text(encoding="utf-8")


class Refused(Exception):
    """The parser does not take the command."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise Refused(message)


def parser() -> argparse.ArgumentParser:
    made = _Parser(allow_abbrev=False, add_help=False)
    made.add_argument("model")
    for block in re.split(r"\n(?=  -)", HELP)[1:]:
        head, text = _parts(block.split("\n\n")[0])
        names = re.findall(r"(?:^|, )(-{1,2}[A-Za-z][\w-]*)", re.sub(r"[{\[][^}\]]*[}\]]", "", head))
        if names == ["-h", "--help"] or "--help" in names:
            continue
        if head == ", ".join(names):
            made.add_argument(*names, action="store_true", dest=names[0].lstrip("-"))
            continue
        listed = re.search(r"\{([^}]*)\}", head)
        default = re.search(r"\(default: ([^()]*)\)\s*$", text)
        kind = int if default and re.fullmatch(r"\d+", default[1]) else float if default and re.fullmatch(r"\d+\.\d+", default[1]) else str
        choices = listed[1].split(",") if listed else None
        many = bool(re.search(r"\[\w+ \.\.\.\]", head))
        made.add_argument(*names, type=str if choices else kind, choices=choices, nargs="+" if many else None, dest=names[0].lstrip("-"))
    return made


def _parts(block: str) -> tuple[str, str]:
    """The names with what follows them, and the text, which stands from column 24 on."""
    first, *rest = block.split("\n")
    head, _, beside = first.strip().partition("  ")
    return head, " ".join([beside.strip(), *(line.strip() for line in rest if line.startswith(" " * 20))])

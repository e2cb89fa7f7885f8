"""llama-server's ``--help``: the flags that a build lists, which of them take no value, and what it can draft with."""

from __future__ import annotations

import hashlib
import re

from ..inventory import Capabilities
from .llamacpp_arms import DRAFT_LIMIT_FLAGS, DRAFT_MODEL_FLAGS, SPEC_TYPE_FLAG, SPEC_TYPES
from .llamacpp_flags import is_speculation

REMOVED = "the argument has been removed"

#: What a build takes by itself, as a number.
_DEFAULT = re.compile(r"\(default: (-?[0-9]{1,9}(?:\.[0-9]{1,9})?)[,)]")
_ENTRY = re.compile(r"^(?P<names>-{1,2}[A-Za-z0-9][\w.-]*(?:,\s+-{1,2}[A-Za-z0-9][\w.-]*)*)(?P<rest>.*)$")


def capabilities(help_text: str) -> Capabilities:
    """Reads ``--help``. A flag whose text says that it has been removed is listed as removed, not as a capability."""
    flags: dict[str, str] = {}
    removed: list[str] = []
    spec_types: list[str] = []
    switches: set[str] = set()
    defaults: dict[str, str] = {}
    one_type = False
    for names, metavar, description in _entries(help_text):
        if REMOVED in f"{metavar} {description}":  # a long name leaves no gap before its text
            removed += names
            continue
        longs = _canonical(names)
        flags.update(longs)
        if not metavar:
            switches.update(longs.values())
        for long in {flag for flag in longs.values() if is_speculation(flag)}:
            if told := _DEFAULT.search(description):
                defaults[long] = told[1]
        if SPEC_TYPE_FLAG in names:
            spec_types = [t for t in re.split(r"[,|]", metavar.strip("[]{}<>")) if t and t != "none"]
            one_type = "|" in metavar
    removed = [name for name in removed if name not in flags]
    return Capabilities(
        dialect=_dialect(flags, spec_types),
        flags=flags,
        removed_flags=removed,
        spec_types=spec_types,
        one_spec_type=one_type,
        switches=sorted(switches),
        defaults=dict(sorted(defaults.items())),
        help_sha256=hashlib.sha256(help_text.encode()).hexdigest(),
    )


def _entries(help_text: str) -> list[tuple[list[str], str, str]]:
    """(names, metavar, description) of each option; a description goes on in indented lines."""
    entries: list[tuple[list[str], str, str]] = []
    for line in help_text.splitlines():
        match = _ENTRY.match(line)
        if match and not line.startswith("-----"):
            names = re.split(r",\s+", match["names"])
            metavar, _, description = match["rest"].strip().partition("  ") if match["rest"].startswith(" ") else ("", "", "")
            if match["rest"].startswith("   "):  # a column gap: the flag takes no value
                metavar, description = "", match["rest"].strip()
            entries.append((names, metavar, description.strip()))
        elif entries and line.startswith(" "):
            names, metavar, description = entries[-1]
            entries[-1] = (names, metavar, f"{description} {line.strip()}")
    return entries


def _canonical(names: list[str]) -> dict[str, str]:
    """Each name of one option → its first long name; the negative forms (--no-x) are an option of their own."""
    positive = next((n for n in names if n.startswith("--") and not n.startswith("--no-")), "")
    negative = next((n for n in names if n.startswith("--no-")), "")
    result: dict[str, str] = {}
    for i, name in enumerate(names):
        if name.startswith("--"):
            is_negative = name.startswith("--no-")
        else:  # a short name stands before the long one that it abbreviates
            is_negative = next((n for n in names[i:] if n.startswith("--")), "").startswith("--no-")
        result[name] = (negative if is_negative else positive) or positive or negative or name
    return result


def _dialect(flags: dict[str, str], spec_types: list[str]) -> str:
    if SPEC_TYPES["draft"] in spec_types:
        return "spec-type"
    if any(flag in flags for flag in DRAFT_MODEL_FLAGS) and any(flag in flags for flag in DRAFT_LIMIT_FLAGS):
        return "draft-flag"  # builds may list --spec-type too, for n-grams alone
    return "spec-type" if spec_types else "none"

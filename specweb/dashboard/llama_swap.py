"""A configuration of llama-swap: an entry for each recommended arm, which requests choose by the kind of their work. No database access."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .launch_forms import Form, Piece, Setting

#: llama-swap takes nothing shorter.
_LEAST_TIMEOUT_S = 15
_LONGEST_MACRO = 63
_NAME_FLAG = "--served-model-name"


@dataclass(frozen=True)
class Entry:
    """An arm with its command, cut before each flag, and the keys of the points that it is recommended at."""

    arm: str
    command: list[list[str]]
    points: list[str]


def llama_swap(entries: Sequence[Entry], undecided: Sequence[str], model: str, setting: Setting, start_timeout_s: float) -> Form:
    """All entries as one configuration; what their commands begin with alike stands once, as a macro."""
    target = slug(model[:12] if re.fullmatch(r"[0-9a-f]{64}", model) else model)
    names = _names(entries, target)
    commands = [_as_entry(e.command, names[e.arm][0], setting) for e in entries]
    n = _n_common(commands) if len(entries) > 1 else 0
    macro = f"{target.replace('.', '-')[: _LONGEST_MACRO - 7]}-common"
    found = [Piece(_head(undecided, math.ceil(max(start_timeout_s, _LEAST_TIMEOUT_S))))]
    if n:
        found += [Piece(f'macros:\n  "{macro}": '), *_block(commands[0][:n], setting, "    "), Piece("\n")]
    found.append(Piece("models:\n"))
    for entry, command in zip(entries, commands, strict=True):
        own, *aliases = names[entry.arm]
        found += [Piece(f"  {json.dumps(own)}:\n    cmd: ")]
        found += _block([[f"${{{macro}}}"], *command[n:]] if n else command, setting, "      ", macro=bool(n))
        found.append(Piece(_tail(own, aliases, setting, named=any(unit[0] == _NAME_FLAG for unit in command))))
    words = "; ".join(f"“{', '.join(names[e.arm][1:])}” for {e.arm}" for e in entries)
    note = (
        f"Save it as llama-swap’s config.yaml, or put its entries into yours. The model that a request names chooses: {words}. "
        "Two entries don’t run at once unless its matrix or groups say so, so that a change of work costs a start."
    )
    return Form("llama-swap", note, found)


def slug(text: str) -> str:
    """A name that needs no quotes in an address, in YAML or in a request."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:60] or "model"


def _names(entries: Sequence[Entry], target: str) -> dict[str, list[str]]:
    """Arm → its entry's name, then its aliases, one for each kind of work; each name once."""
    taken: set[str] = set()

    def free(name: str) -> str:
        found = next(n for n in (name, *(f"{name}-{i}" for i in range(2, len(taken) + 3))) if n not in taken)
        taken.add(found)
        return found

    works = [{_work(p) for p in e.points} for e in entries]
    found = {e.arm: [free(f"{target}-{slug(e.arm)}")] for e in entries}
    for i, entry in enumerate(entries):
        others = set().union(*(w for j, w in enumerate(works) if j != i))
        # Of work that is asked in several ways with several answers, the way stays in the name.
        said = [slug(p.replace("/", "-")) if _work(p) in others else slug(_work(p)) for p in entry.points]
        found[entry.arm] += [free(f"{target}-{name}") for name in dict.fromkeys(said)]
    return found


def _work(point: str) -> str:
    return point.partition("/")[0]


def _as_entry(command: Sequence[Sequence[str]], name: str, setting: Setting) -> list[list[str]]:
    """The command with the port that llama-swap draws, and vLLM's word for the model where requests come under another name."""
    ours = {"--port": ["--port", "${PORT}"], _NAME_FLAG: [_NAME_FLAG, name]}
    found = [ours.get(unit[0], list(unit)) for unit in command]
    # Values of its list `env` can't hold "${", which is a macro there.
    inline = [f"{k}={v}" for k, v in sorted(setting.env.items()) if "${" in v]
    return [["env", *inline], *found] if inline else found


def _n_common(commands: Sequence[Sequence[Sequence[str]]]) -> int:
    n = 0
    for units in zip(*commands, strict=False):
        if any(unit != units[0] for unit in units):
            break
        n += 1
    return n


def word(text: str) -> str:
    """A word as llama-swap's splitter reads it. What looks like a macro of somebody else's is taken apart."""
    if text == "${PORT}":
        return text
    return shlex.quote(text).replace("${", "$''{")


def _block(command: Sequence[Sequence[str]], setting: Setting, indent: str, *, macro: bool = False) -> list[Piece]:
    """A line for each flag; in one quoted string where a path holds what such a block can't."""
    lines = [" ".join(map(word, unit)) for unit in command]
    if macro:
        lines[0] = command[0][0]
    if any(not line.isprintable() or "\ufeff" in line for line in lines):
        return [Piece(json.dumps(" ".join(lines)))]
    found = [Piece("|-")]
    for unit, line in zip(command, lines, strict=True):
        found.append(Piece(f"\n{indent}"))
        # Where it listens is llama-swap's to say.
        measuring = unit[0] in setting.dialect.MEASURING_FLAGS and unit[0] not in ("--host", "--port", _NAME_FLAG)
        found.append(Piece(line, whole=True, aside=measuring))
    return found


def _head(undecided: Iterable[str], timeout_s: int) -> str:
    left = "".join(f"# no entry for {_comment(text)}\n" for text in undecided)
    return f"{left}healthCheckTimeout: {timeout_s}\n"


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text).replace("${", "$ {")


def _tail(name: str, aliases: Sequence[str], setting: Setting, *, named: bool) -> str:
    env = [f"{k}={v}" for k, v in sorted(setting.env.items()) if "${" not in v]
    lines = ["    proxy: http://127.0.0.1:${PORT}"]
    lines += [f"    useModelName: {json.dumps(name)}"] if named else []
    lines += ["    env:", *(f"      - {json.dumps(e, ensure_ascii=False)}" for e in env)] if env else []
    lines += [f"    aliases: {json.dumps(aliases)}", "    ttl: 0 # seconds without a request after which it ends; 0: never"]
    return "\n" + "\n".join(lines) + "\n"

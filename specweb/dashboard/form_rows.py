"""What the buttons of a row do to what was typed: add, remove, duplicate, move, and sweep an arm over values. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from speccore.spec import ExperimentSpec
from speccore.sweeps import AXES, swept

from .form_data import Row, Typed
from .form_fields import ROWS

_ACTION = re.compile(rf"(add|remove|duplicate|up|down|sweep)-({'|'.join(map(re.escape, ROWS))})(?:-([0-9]{{1,4}}))?")
_NO_PLACES = str.maketrans("{}", "  ")  # what is typed in the form is a name, and no pattern of one
#: Most rows of a group, where the spec has a limit.
MOST = {
    group: next(m.max_length for m in ExperimentSpec.model_fields[group].metadata if hasattr(m, "max_length"))
    for group in ("arms", "points")
}


@dataclass(frozen=True)
class Done:
    """``focus`` is the id of what a keyboard goes on with; ``fault`` says beside that field why nothing was changed."""

    typed: Typed
    focus: str
    fault: str = ""


def act(typed: Typed, action: str) -> Done | None:
    """Does what a row's button asks for; None if the action isn't one of a row."""
    match = _ACTION.fullmatch(action)
    if match is None:
        return None
    verb, group = match[1], match[2]
    rows = typed.rows[group]
    if verb == "add":
        done = [*rows, _new_row(group, rows)]
        return Done(typed.with_rows(group, done), _first_field(group, len(rows)))
    i = int(match[3] or 0)
    if i >= len(rows):
        return Done(typed, f"do-add-{group}")
    if verb == "sweep":
        return _sweep(typed, i)
    return _change(typed, verb, group, i)


def _change(typed: Typed, verb: str, group: str, i: int) -> Done:
    rows = list(typed.rows[group])
    if verb == "duplicate":
        rows.insert(i + 1, _copied(group, rows, i))
        return Done(typed.with_rows(group, rows), _first_field(group, i + 1))
    if verb == "remove":
        del rows[i]
        return Done(typed.with_rows(group, rows), f"do-remove-{group}-{min(i, len(rows) - 1)}" if rows else f"do-add-{group}")
    j = i - 1 if verb == "up" else i + 1
    if 0 <= j < len(rows):
        rows[i], rows[j] = rows[j], rows[i]
        i = j
    # At an end the button of this direction is switched off, so the other one gets the focus.
    other = {0: "down", len(rows) - 1: "up"}.get(i, verb)
    return Done(typed.with_rows(group, rows), f"do-{other}-{group}-{i}")


def _first_field(group: str, i: int) -> str:
    return f"f-{group}-{i}-{ROWS[group][0].name}"


def _new_row(group: str, rows: list[Row]) -> Row:
    """A further row starts from what the rows before it have in common with what usually follows."""
    last = rows[-1] if rows else {}
    if group == "points":
        return {name: last.get(name, "") for name in ("max_tokens", "probes", "concurrency") if last.get(name)}
    if group == "arms":
        model = next((row["draft_model"] for row in reversed(rows) if row.get("draft_model")), "")
        mode = "draft" if any(row.get("mode") == "off" for row in rows) else "off"
        return {"mode": mode} | ({"draft_model": model} if model and mode == "draft" else {})
    return {}


def _copied(group: str, rows: list[Row], i: int) -> Row:
    copy = {k: v for k, v in rows[i].items() if k != "sweep"}
    if group == "arms" and copy.get("name"):
        copy["name"] = _free_name(f"{copy['name']}-copy", {row.get("name", "") for row in rows})
    return copy


def _free_name(wanted: str, taken: set[str]) -> str:
    n, name = 2, wanted
    while name in taken:
        name, n = f"{wanted}-{n}", n + 1
    return name


def _sweep(typed: Typed, i: int) -> Done:
    """One arm for each combination of the values, in place of the arm."""
    rows = typed.rows["arms"]
    field, arm = f"f-arms-{i}-sweep", rows[i]
    axes, fault = _axes(arm.get("sweep", ""))
    if fault:
        return Done(typed, field, fault)
    n = math.prod(map(len, axes.values())) + len(rows) - 1
    if n > MOST["arms"]:
        return Done(typed, field, f"That would make {n:,} arms, and an experiment has at most {MOST['arms']}.")
    limit = arm.get("draft_limit", "").strip()
    stem = arm.get("name", "").strip() or arm.get("mode", "") or "arm"
    stem = stem.removesuffix(f"-{limit}") if limit and "draft_limit" in axes else stem
    written = {k: v for k, v in arm.items() if k != "sweep"} | {"name": stem.translate(_NO_PLACES)} | axes
    made = swept({"arms": [*rows[:i], written, *rows[i + 1 :]]}).data["arms"]
    return Done(typed.with_rows("arms", made), f"f-arms-{i}-name")


def _axes(text: str) -> tuple[dict[str, list[str]], str]:
    """Field → values of ``1, 2, 4; p_min: 0, 0.5``, where a part without a field means draft limits; and what is wrong with it."""
    axes: dict[str, list[str]] = {}
    for part in filter(str.strip, text.split(";")):
        head, colon, tail = part.partition(":")
        name = re.sub(r"[\s-]+", "_", head.strip().lower()) if colon else "draft_limit"
        if name not in AXES:
            return {}, f"{head.strip()!r} is no field that can be swept: {', '.join(AXES)}."
        listed = (tail if colon else part).replace(",", " " if name == "draft_limit" else ",")
        values = [v.strip() for v in (listed.split() if name == "draft_limit" else listed.split(","))]
        if name == "draft_limit" and (wrong := [v for v in values if not re.fullmatch(r"[0-9]{1,7}", v)]):
            return {}, f"{wrong[0]!r} is no whole number. Give draft limits with commas between them, for example 1, 2, 4, 8."
        values = [str(int(v)) for v in values] if name == "draft_limit" else [v for v in values if v]
        axes[name] = list(dict.fromkeys([*axes.get(name, []), *values]))
    if not axes or not all(axes.values()):
        return {}, "Which values? Give draft limits, for example 1, 2, 4, 8; or another field, for example p_min: 0, 0.5."
    return axes, ""

"""What was typed in the experiment form, as text, and the spec's data that it stands for; both ways, and nothing is lost. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from speccore.spec import ExperimentSpec

from .form_fields import FIXED, ROW_WORDS, ROWS, SINGLE, Field
from .form_flow import flow_text, list_value, map_fault, map_value

_ROW_FIELD = re.compile(rf"({'|'.join(map(re.escape, ROWS))})-([0-9]{{1,4}})-(.+)")
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?")
_YES, _NO = frozenset({"true", "yes", "on", "1"}), frozenset({"", "false", "no", "off", "0"})
HOSTS = "placement-hosts"
#: Rows of one kind that the form shows: more than an experiment may have, and few enough to be laid out at once.
MOST_ROWS = 200
Row = dict[str, str]


@dataclass(frozen=True)
class Typed:
    """The text of each field by its name. A tick is ``on`` or nothing. A row of ``arms`` may also hold ``sweep``, values for more arms."""

    single: dict[str, str] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=lambda: {group: [] for group in ROWS})
    hosts: list[str] = field(default_factory=list)

    def with_rows(self, group: str, rows: Sequence[Row]) -> Typed:
        return replace(self, rows={**self.rows, group: list(rows)})

    @property
    def is_too_long(self) -> bool:
        """More rows than a form shows."""
        return max(len(self.hosts), *map(len, self.rows.values())) > MOST_ROWS


def read_typed(sent: Iterable[tuple[str, str]]) -> Typed:
    """From the pairs of a sent form. Rows keep their order; gaps in their numbers close. Other names are passed over."""
    single: dict[str, str] = {}
    found: dict[str, dict[int, Row]] = {group: {} for group in ROWS}
    hosts: list[str] = []
    singles = {f.name for f in SINGLE}
    known = {group: {f.name for f in fields} | ({"sweep"} if group == "arms" else set()) for group, fields in ROWS.items()}
    for name, raw in sent:
        text = raw.replace("\r\n", "\n")
        if name in singles:
            single[name] = text
        elif name == HOSTS:
            hosts.append(text)
        elif (match := _ROW_FIELD.fullmatch(name)) and match[3] in known[match[1]]:
            found[match[1]].setdefault(int(match[2]), {})[match[3]] = text
    rows = {group: [numbered[i] for i in sorted(numbered)] for group, numbered in found.items()}
    return Typed(single, rows, list(dict.fromkeys(hosts)))


def pairs_of(typed: Typed) -> list[tuple[str, str]]:
    """What a browser would send for it."""
    pairs = [*typed.single.items()]
    for group, rows in typed.rows.items():
        pairs += [(f"{group}-{i}-{name}", text) for i, row in enumerate(rows) for name, text in row.items()]
    return pairs + [(HOSTS, host) for host in typed.hosts]


def data_of(typed: Typed) -> dict[str, Any]:
    """The spec's data: empty fields left out, numbers as numbers, what is no number as the text that was typed."""
    data: dict[str, Any] = {}
    for f in SINGLE:
        _fill(data, f, typed.single.get(f.name, ""))
    if extra := _extra_of(typed.rows["engine-extra"]):
        data.setdefault("engine", {})["extra"] = extra
    for group in ("arms", "points"):
        data[group] = [_row_data(ROWS[group], row) for row in typed.rows[group]]
    if typed.hosts:
        data.setdefault("placement", {})["hosts"] = typed.hosts
    if labels := {row.get("key", "").strip(): row.get("value", "").strip() for row in typed.rows["placement-labels"] if any(row.values())}:
        data.setdefault("placement", {})["labels"] = labels
    return {key: data[key] for key in ExperimentSpec.model_fields if key in data}


def labels_twice(typed: Typed) -> list[tuple[str, str]]:
    """(field name, label) of each label that an earlier row has too: data could hold only one of them."""
    seen: set[str] = set()
    twice = []
    for i, row in enumerate(typed.rows["placement-labels"]):
        key = row.get("key", "").strip()
        if any(row.values()) and key in seen:
            twice.append((f"placement-labels-{i}-key", key))
        seen.add(key)
    return twice


def unreadable(typed: Typed) -> list[tuple[str, str]]:
    """(field name, why) of each text that should be a mapping and can't be read as one."""
    fields = [(group, f) for group, own in ROWS.items() for f in own if f.kind == "map"]
    texts = [(f"{group}-{i}-{f.name}", row.get(f.name, "").strip()) for group, f in fields for i, row in enumerate(typed.rows[group])]
    return [(name, why) for name, text in texts if text and (why := map_fault(text))]


def _row_data(fields: Sequence[Field], row: Row) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for f in fields:
        _fill(data, f, row.get(f.name, ""))
    return data


def _fill(data: dict[str, Any], f: Field, text: str) -> None:
    value = _value(f, text)
    if value is None:
        return
    *parents, last = f.path.split(".")
    for parent in parents:
        data = data.setdefault(parent, {})
    data[last] = value


def _value(f: Field, text: str) -> Any:
    """The value of a field, or None for one that is left out."""
    if f.kind == "tick":
        return True if text else None
    shown = text if f.kind == "area" else text.strip()
    if not shown.strip():
        return None
    if f.kind in _READERS:
        return _READERS[f.kind](shown)
    return shown


def _number(text: str) -> int | float | str:
    if _WHOLE.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


#: Kinds of fields whose text stands for something else, with what reads it; what can't be read stays the text that was typed.
_READERS: dict[str, Callable[[str], Any]] = {"number": _number, "list": list_value, "map": map_value}


def _extra_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Flag → value; a flag of several rows gets a list."""
    given: dict[str, list[Any]] = {}
    for row in rows:
        if any(row.values()):
            given.setdefault(row.get("flag", "").strip(), []).append(flag_value(row.get("value", "")))
    return {flag: values[0] if len(values) == 1 else values for flag, values in given.items()}


def flag_value(text: str) -> Any:
    """The value of a flag as typed: nothing is yes, numbers and truth values are themselves, quotes keep a text a text."""
    text = text.strip()
    if text in ("", "true", "false"):
        return text != "false"
    if text.startswith('"'):
        try:
            quoted = json.loads(text)
        except ValueError:
            return text
        return quoted if isinstance(quoted, str) else text
    return _number(text)


def flag_text(value: Any) -> str:
    """What one types for a value of a flag."""
    if isinstance(value, bool):
        return "" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return value if flag_value(value) == value and "\n" not in value else json.dumps(value, ensure_ascii=False)


def typed_of(data: Mapping[Any, Any]) -> tuple[Typed, list[str]]:
    """The form for data from YAML or of an earlier experiment, and the dotted paths of what the form has no place for."""
    left: list[str] = []
    whole = {str(k): v for k, v in data.items()}
    engine, placement = _copied(whole, "engine"), _copied(whole, "placement")
    rows = {group: _row_texts(group, whole.pop(group, None), left) for group in ("arms", "points")}
    rows["engine-extra"] = _extra_texts(engine.pop("extra", None), left)
    rows["placement-labels"] = _label_texts(placement.pop("labels", None), left)
    for group in [group for group, found in rows.items() if len(found) > MOST_ROWS]:
        left.append(group.replace("-", "."))
        rows[group] = []
    hosts = placement.pop("hosts", None) or []
    if not (isinstance(hosts, list) and len(hosts) <= MOST_ROWS and all(isinstance(h, str) for h in hosts)):
        left.append("placement.hosts")
        hosts = []
    single = _texts(SINGLE, whole, "", left)
    return Typed(single, {group: rows[group] for group in ROWS}, list(dict.fromkeys(hosts))), left


def _copied(whole: dict[str, Any], key: str) -> dict[str, Any]:
    """The mapping under a key, copied into its place; a stand-in where there is none."""
    if not isinstance(whole.get(key), dict):
        return {}
    copied = dict(whole[key])
    whole[key] = copied
    return copied


def _row_texts(group: str, given: Any, left: list[str]) -> list[Row]:
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(row, dict) for row in given):
        left.append(group)
        return []
    return [_texts(ROWS[group], row, f"{group}.{i}.", left) for i, row in enumerate(given)]


def _extra_texts(given: Any, left: list[str]) -> list[Row]:
    if given is None:
        return []
    if not isinstance(given, dict):
        left.append("engine.extra")
        return []
    rows = []
    for flag, value in given.items():
        values = value if isinstance(value, list) and value else [value]
        if all(isinstance(v, str | int | float) or v is None for v in values):
            rows += [{"flag": str(flag), "value": "" if v is None else flag_text(v)} for v in values]
        else:
            left.append(f"engine.extra.{flag}")
    return rows


def _label_texts(given: Any, left: list[str]) -> list[Row]:
    if given is None:
        return []
    if not isinstance(given, dict) or any(isinstance(v, list | dict) for v in given.values()):
        left.append("placement.labels")
        return []
    return [{"key": str(k), "value": "" if v is None else _scalar(v)} for k, v in given.items()]


def _texts(fields: Sequence[Field], node: Mapping[Any, Any], at: str, left: list[str]) -> Row:
    """The text of each field that the data has."""
    by_path = {f.path: f for f in fields}
    found: Row = {}

    def walk(node: Mapping[Any, Any], prefix: str) -> None:
        for key, value in node.items():
            path = f"{prefix}{key}"
            f = by_path.get(path)
            text = _text(f, value) if f else None
            if f and text is not None:
                found[f.name] = text
            elif not f and isinstance(value, dict) and any(p.startswith(f"{path}.") for p in by_path):
                walk(value, f"{path}.")
            elif value is not None and not (path in FIXED and FIXED[path] == value and not at):
                left.append(f"{at}{path}")

    walk(node, "")
    return found


def _text(f: Field, value: Any) -> str | None:
    """What one types for a value; None where the field can't show it."""
    if (f.kind == "list" and isinstance(value, list)) or (f.kind == "map" and isinstance(value, dict)):
        return flow_text(value)
    if isinstance(value, list | dict | set | bytes):
        return None
    if f.kind == "tick":
        said = "" if value is None else str(value).lower()
        return "on" if said in _YES else "" if said in _NO else None
    if f.word and isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def place_of(path: str, typed: Typed) -> str:
    """The name of the field that a problem's dotted path belongs beside, or of a group of rows; empty: the whole."""
    if path == "engine.extra":
        path = "engine.extra."  # a value without a flag, where there is one
    for group, key in (("engine-extra", "flag"), ("placement-labels", "key")):
        if path.startswith(head := group.replace("-", ".") + "."):
            said = path.removeprefix(head)
            for i, row in enumerate(typed.rows[group]):
                own = row.get(key, "").strip()
                if (said == own and any(row.values())) or (own and said.startswith(f"{own}.")):
                    return f"{group}-{i}-{key}"
            return group
    if path.startswith("placement.hosts"):
        return HOSTS
    names = [*(f.name for f in SINGLE), *ROWS]
    names += [f"{g}-{i}-{f.name}" for g, fields in ROWS.items() for i in range(len(typed.rows[g])) for f in fields]
    parts = path.split(".") if path else []
    for n in range(len(parts), 0, -1):
        name = "-".join(parts[:n])
        if name in names:
            return name
        if inside := next((one for one in names if one.startswith(f"{name}-")), ""):
            return inside
    return ""


def words_of(name: str) -> str:
    """What a field is called in a list of problems, e.g. ``Arm 2, draft limit``."""
    if match := _ROW_FIELD.fullmatch(name):
        group, i, own = match.groups()
        label = next((f.label for f in ROWS[group] if f.name == own), own)
        return f"{ROW_WORDS[group]} {int(i) + 1}, {label[:1].lower()}{label[1:]}"
    groups = {"arms": "Arms", "points": "Points", "engine-extra": "Further flags", "placement-labels": "Labels", HOSTS: "Hosts"}
    return groups.get(name) or next((f.label for f in SINGLE if f.name == name), "")

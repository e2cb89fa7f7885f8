"""A proposed plan taken into the form: so many blocks, and so many probes at each point that asks one request at a time. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from speccore.yamltext import data_to_yaml, read_yaml

from .form_data import Typed
from .form_page import Reply, Sent

#: ``take-10-4``: 10 blocks of 4 probes; ``take-10``: the probes stay.
_ACTION = re.compile(r"take-([1-9][0-9]{0,2})(?:-([1-9][0-9]{0,3}))?")
ONE = ("", "1")


def is_take(action: str) -> bool:
    return _ACTION.fullmatch(action) is not None


def take(sent: Sent, action: str) -> Reply | None:
    """None if the action is none of these. A text that can't be read stays as it is."""
    match = _ACTION.fullmatch(action)
    if match is None:
        return None
    blocks, probes = match[1], match[2]
    words = f"{blocks} block{'' if blocks == '1' else 's'}" + (f" of {probes} probe{'' if probes == '1' else 's'}" if probes else "")
    if sent.view != "yaml":
        return Reply(replace(sent, typed=_typed(sent.typed, blocks, probes)), focus="f-blocks", notice=f"The plan is {words} now.")
    try:
        data = read_yaml(sent.yaml.encode("utf-8", "replace"))
    except ValueError:
        return Reply(sent, focus="f-yaml")
    if not isinstance(data, dict):
        return Reply(sent, focus="f-yaml")
    text = data_to_yaml(_data(data, int(blocks), int(probes or 0)))
    notice = f"The plan is {words} now; the text is written anew, without its comments."
    return Reply(replace(sent, yaml=text, before=sent.yaml), focus="f-yaml", notice=notice)


def _typed(typed: Typed, blocks: str, probes: str | None) -> Typed:
    rows = [
        row | {"probes": probes} if probes and row.get("concurrency", "").strip() in ONE and not row.get("rate_per_s", "").strip() else row
        for row in typed.rows["points"]
    ]
    return replace(typed.with_rows("points", rows), single=typed.single | {"blocks": blocks})


def _data(data: dict[str, Any], blocks: int, probes: int) -> dict[str, Any]:
    points = data.get("points")
    if probes and isinstance(points, list):
        points = [
            p | {"probes": probes} if isinstance(p, dict) and p.get("concurrency", 1) == 1 and p.get("rate_per_s") is None else p
            for p in points
        ]
    return data | {"blocks": blocks} | ({"points": points} if points is not None else {})

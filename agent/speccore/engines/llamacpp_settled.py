"""What llama-server settles by itself for the target's context, as its log tells: batches, outputs and state kept for drafts."""

from __future__ import annotations

import re
from collections.abc import Iterable

_COUNT = r"[0-9]{1,15}(?![0-9])"
_NUMBERS = {
    "n_batch": re.compile(rf"llama_context: n_batch *= ({_COUNT})"),
    "n_ubatch": re.compile(rf"llama_context: n_ubatch *= ({_COUNT})"),
    "outputs_per_sequence": re.compile(rf"llama_context: n_outputs_max_per_seq = ({_COUNT})"),
    "state_copies": re.compile(rf"llama_context: n_rs_seq *= ({_COUNT})"),
}
_WORDS = {
    "kv_unified": re.compile(r"llama_context: kv_unified *= (true|false)"),
    "flash_attention": re.compile(r"Flash Attention (enabled|disabled)"),
}
_SAID = {"true": "on", "enabled": "on", "false": "off", "disabled": "off"}


def settled(lines: Iterable[str]) -> tuple[dict[str, str | float], dict[str, int]]:
    """Values and the lines that tell them, of the first context that is made: the target's."""
    values: dict[str, str | float] = {}
    places: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if "llama_context:" not in line and "Flash Attention" not in line:
            continue
        for name, pattern in (*_NUMBERS.items(), *_WORDS.items()):
            if name not in values and (found := pattern.search(line)):
                values[name], places[name] = _SAID.get(found[1]) or float(found[1]), number
    return values, places

"""Speculation modes that SpecWeb knows, and what is told apart by them."""

from __future__ import annotations

BASELINE_MODE = "off"

#: Speculation modes that SpecWeb knows, with the kind of drafter behind each.
MODES: dict[str, str] = {
    "off": "off",
    "draft": "model",
    "mtp": "model",
    "eagle": "model",
    "eagle3": "model",
    "medusa": "model",
    "mlp-speculator": "model",
    "dflash": "model",
    "dspark": "model",
    "ngram": "ngram",
    "ngram-simple": "ngram",
    "ngram-map-k": "ngram",
    "ngram-map-k4v": "ngram",
    "ngram-mod": "ngram",
    "ngram-cache": "ngram",
    "suffix": "ngram",
}
#: Modes that need a second model file.
MODES_WITH_DRAFT_MODEL = frozenset({"draft", "eagle", "eagle3", "medusa", "mlp-speculator", "dflash", "dspark"})
#: Drafters without a model that an engine may let stand beside another one.
MODES_BESIDE = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
#: Drafters whose state outlives a request: each point gets a trial of its own.
STATEFUL_MODES = frozenset({"ngram-mod", "ngram-cache", "suffix"})


def is_model_drafter(mode: str) -> bool:
    """Whether a model proposes the tokens (it must then draft something, or speculation is not engaged).

    False for a mode of another release, of which nothing is known.
    """
    return MODES.get(mode) == "model"

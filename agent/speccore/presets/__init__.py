"""Ready-made experiments, as data of this package. Where they say TARGET and DRAFT, a model's alias is put in."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from ..errors import SpecError
from ..yamltext import read_yaml

TARGET, DRAFT = "TARGET", "DRAFT"


@dataclass(frozen=True)
class Preset:
    """``data`` as an experiment's file has it, but for the models."""

    name: str
    data: dict[str, Any]

    @property
    def question(self) -> str:
        return str(self.data["question"])

    @property
    def needs_draft(self) -> bool:
        return any(arm.get("draft_model") == DRAFT for arm in self.data["arms"])

    def bound(self, target: str, draft: str | None) -> dict[str, Any]:
        """The experiment with models put in. Raises :class:`SpecError` if a draft model is due and none is named."""
        if self.needs_draft and not draft:
            raise SpecError(f"the preset {self.name} needs a draft model", remedy="Name one with --draft ALIAS.", field="draft")
        arms = [arm | {"draft_model": draft} if arm.get("draft_model") == DRAFT else arm for arm in self.data["arms"]]
        return self.data | {"target": {"model": target}, "arms": arms}


def presets() -> dict[str, Preset]:
    return {preset.name: preset for preset in _all()}


def preset(name: str) -> Preset:
    """Raises :class:`SpecError` with the nearest name."""
    known = presets()
    if name not in known:
        raise SpecError(f"there is no preset {name!r}{nearest(name, known)}; known: {', '.join(known)}", remedy="", value=name)
    return known[name]


def nearest(word: str, known: Iterable[str]) -> str:
    match = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {match[0]!r}?)" if match else ""


@cache
def _all() -> tuple[Preset, ...]:
    files = sorted((f for f in resources.files(__package__).iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name)
    return tuple(Preset(f.name.removesuffix(".yaml"), read_yaml(f.read_bytes())) for f in files)

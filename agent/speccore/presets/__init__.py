"""Ready-made experiments, as data of this package. Where they name a role such as TARGET, a model's alias is put in."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from ..errors import SpecError
from ..spec_words import shown
from ..sweeps import swept
from ..yamltext import read_yaml

TARGET, DRAFT, LARGER = "TARGET", "DRAFT", "LARGER"
SPARE_MEMORY = "spare-memory"  # the preset whose parts use one model in two quantisations
#: Keys of a preset's file that are no part of an experiment.
_OWN_KEYS = ("needs", "models", "experiments")
_USUAL = {TARGET: "the model that is asked", DRAFT: "its draft model"}


@dataclass(frozen=True)
class Role:
    """A model that a preset has a place for. ``model`` is what it was written for, or the role's own name.

    ``like`` are the parts that an alias must have to be taken without being named.
    """

    name: str
    model: str
    words: str
    like: tuple[str, ...] = ()

    def among(self, aliases: Iterable[str]) -> str | None:
        """The alias that has all its parts, the shortest of several."""
        found = [alias for alias in aliases if self.like and set(self.like) <= _parts(alias)]
        return min(found, key=lambda alias: (len(alias), alias), default=None)


@dataclass(frozen=True)
class Preset:
    """``data`` as an experiment's file has it, but for the models. ``of`` is the preset that it is a part of, with its question."""

    name: str
    data: dict[str, Any]
    needs: str
    roles: dict[str, Role]
    of: str = ""
    of_question: str = ""

    @property
    def question(self) -> str:
        return str(self.data["question"])

    def matched(self, aliases: Iterable[str], named: Mapping[str, str] | None = None) -> dict[str, str]:
        """The alias of each role: as ``named``, or else the one among ``aliases`` that fits. A role without one is left out."""
        known = list(aliases)
        found = {role.name: (named or {}).get(role.name) or role.among(known) for role in self.roles.values()}
        return {name: alias for name, alias in found.items() if alias}

    def bound(self, models: Mapping[str, str]) -> dict[str, Any]:
        """The experiment with an alias for each role, sweeps made into arms. Raises :class:`SpecError` for a role without a model."""
        for role in self.roles.values():
            if not models.get(role.name):
                raise _unbound(self.name, role)
        if strange := sorted(models.keys() - self.roles.keys()):
            words = f"the preset {self.name} has no place for {shown(strange[0])}; it has {', '.join(self.roles)}"
            raise SpecError(words, remedy="Leave it out.", field=strange[0])
        data = {key: _with_models(value, models) if key in ("target", "arms") else value for key, value in self.data.items()}
        made: dict[str, Any] = swept(data).data
        return made

    def as_written(self) -> dict[str, Any]:
        """The experiment with the models that it was written for."""
        return self.bound({role.name: role.model for role in self.roles.values()})


def _unbound(preset_name: str, role: Role) -> SpecError:
    kind = {TARGET: "model", DRAFT: "draft model"}.get(role.name, f"model for {role.name}")
    option = {TARGET: "--target ALIAS", DRAFT: "--draft ALIAS"}.get(role.name, f"--model {role.name}=ALIAS")
    more = f" ({role.words})" if role.words not in _USUAL.values() else ""
    return SpecError(
        f"the preset {preset_name} needs a {kind}{more}",
        remedy=f"Name one with {option}; `specweb-agent doctor` lists them.",
        field=role.name,
    )


def presets() -> dict[str, Preset]:
    return {preset.name: preset for preset in _all()}


def preset(name: str) -> Preset:
    """Raises :class:`SpecError` with the nearest name, or with the parts of a preset that has several."""
    known = presets()
    if parts := [p.name for p in known.values() if p.of == name]:
        words = f"the preset {name} is {len(parts)} experiments to stand side by side"
        raise SpecError(words, remedy=f"Name one: {', '.join(parts)}.", value=name)
    if name not in known:
        raise SpecError(f"there is no preset {name!r}{nearest(name, known)}; known: {', '.join(known)}", remedy="", value=name)
    return known[name]


def nearest(word: str, known: Iterable[str]) -> str:
    match = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {match[0]!r}?)" if match else ""


def _with_models(value: Any, models: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {k: _with_models(v, models) for k, v in value.items()}
    if isinstance(value, list):
        return [_with_models(v, models) for v in value]
    return models.get(value, value) if isinstance(value, str) else value


def _parts(alias: str) -> set[str]:
    """Of ``Qwen3-0.6B-Q8_0.gguf``: qwen3, 0.6b, q8_0."""
    return set(re.split(r"[-\s/:@]+", alias.lower().removesuffix(".gguf")))


@cache
def _all() -> tuple[Preset, ...]:
    files = sorted((f for f in resources.files(__package__).iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name)
    return tuple(found for f in files for found in _read(f.name.removesuffix(".yaml"), read_yaml(f.read_bytes())))


def _read(name: str, file: dict[str, Any]) -> list[Preset]:
    needs, parts = str(file.get("needs", "")), file.get("experiments")
    if parts is None:
        data = {key: value for key, value in file.items() if key not in _OWN_KEYS}
        return [Preset(name, data, needs, _roles(file, data))]
    of = {"of": name, "of_question": str(file["question"])}
    return [Preset(f"{name}/{part}", data, needs, _roles(file, data), **of) for part, data in parts.items()]


def _roles(file: dict[str, Any], data: dict[str, Any]) -> dict[str, Role]:
    """Those that the experiment uses, in the order of the file, else of their use."""
    told = file.get("models", {})
    used = [data["target"]["model"], *(arm.get("draft_model") for arm in data["arms"])]
    names = [name for name in [*told, *used] if name in used and name in {*told, *_USUAL}]
    found = {}
    for name in dict.fromkeys(names):
        about = told.get(name, {})
        found[name] = Role(name, about.get("model", name), about.get("is", _USUAL.get(name, "")), tuple(about.get("like", ())))
    return found

"""A workload: a named, versioned, immutable list of items to ask, with how each answer is checked."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer, model_validator

from .canonical import sha256_of


class Lean(BaseModel):
    """Part of a workload. Fields that came later are left out where they are unset, so that no older content changes its hash."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    LATER: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _lean(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        whole: dict[str, Any] = usual(self)
        return {k: v for k, v in whole.items() if k not in self.LATER or v != type(self).model_fields[k].default}


class Check(Lean):
    """How an answer is judged, always from its text.

    ``count`` continues a number sequence from ``start``; ``python`` must parse as code; ``brackets`` is code whose brackets,
    quotes and comments close; ``json`` must be the ``expected`` value; ``tool`` a call of the tool that ``expected`` names, with
    the arguments there: ``{"name": …, "arguments": {…}}``.
    """

    LATER = frozenset({"expected"})
    kind: Literal["count", "python", "json", "tool", "brackets"]
    start: int | None = None
    expected: JsonValue = None

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Check:
        if self.kind == "json" and self.expected is None:
            raise ValueError("expected: a check of kind json needs the value that is right, other than null")
        if self.kind == "tool" and not _is_call(self.expected):
            raise ValueError('expected: a check of kind tool needs {"name": "…", "arguments": {…}}')
        if self.kind not in ("json", "tool") and self.expected is not None:
            raise ValueError(f"expected: a check of kind {self.kind} has none")
        return self


def _is_call(value: JsonValue) -> bool:
    if not isinstance(value, dict) or set(value) != {"name", "arguments"}:
        return False
    return isinstance(value["name"], str) and bool(value["name"]) and isinstance(value["arguments"], dict)


class Item(BaseModel):
    """One prompt. ``reference_tokens`` fixes the work L of equal_work_s; unset: the median baseline length."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: str = Field(min_length=1, max_length=80)
    prompt: str = Field(min_length=1)
    reference_tokens: int | None = Field(default=None, ge=2)
    check: Check | None = None


class Workload(BaseModel):
    """``warmup`` items are reserved: no probe uses them."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str = Field(min_length=1, max_length=80, pattern=r"^[a-z0-9][a-z0-9-]*$")
    version: int = Field(ge=1)
    title: str = Field(max_length=120)
    description: str = ""
    items: list[Item] = Field(min_length=1)
    warmup: list[Item] = Field(min_length=1)

    @property
    def ref(self) -> str:
        return f"{self.name}@{self.version}"

    def content_hash(self) -> str:
        return sha256_of(self.model_dump(mode="json"))

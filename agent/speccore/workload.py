"""A workload: a named, versioned, immutable list of items to ask, with how each answer is checked."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from .canonical import sha256_of


class Check(BaseModel):
    """How an answer is judged: ``count`` continues a number sequence from ``start``; ``python`` must parse as code."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: Literal["count", "python"]
    start: int | None = None


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

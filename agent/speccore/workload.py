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


class Turn(BaseModel):
    """One request of a task. ``answer`` is the recorded transcript's, which becomes history: never the arm's own.

    ``tool_wait_s``: seconds that the tools take which this turn's answer calls, before the next turn is asked.
    ``rebuild``: this text takes the place of all history before the turn. ``max_tokens`` unset: the point's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    prompt: str = Field(min_length=1)
    answer: str = ""
    tool_wait_s: float = Field(default=0, ge=0, le=600)
    rebuild: str | None = Field(default=None, min_length=1)
    reference_tokens: int | None = Field(default=None, ge=2)
    max_tokens: int | None = Field(default=None, ge=2, le=131_072)
    check: Check | None = None


class Message(BaseModel):
    """What stands before a prompt in a conversation that was recorded; nothing of it is answered anew."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    role: Literal["system", "user", "assistant"]
    content: str = Field(min_length=1)


class Item(BaseModel):
    """One prompt, or the turns of a task. ``reference_tokens`` fixes the work L of equal_work_s; unset: the median baseline length.

    ``history``: what a single prompt stands behind. ``max_tokens``: of its answer at most so many, where the point allows more.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    LATER: ClassVar[frozenset[str]] = frozenset({"history", "max_tokens"})
    id: str = Field(min_length=1, max_length=80)
    prompt: str = ""
    turns: list[Turn] = Field(default=[], max_length=50)
    reference_tokens: int | None = Field(default=None, ge=2)
    check: Check | None = None
    history: list[Message] = Field(default=[], max_length=200)
    max_tokens: int | None = Field(default=None, ge=2, le=131_072)

    @model_validator(mode="after")
    def _one_kind(self) -> Item:
        if bool(self.prompt) == bool(self.turns):
            raise ValueError(f"item {self.id!r} has {'both a prompt and turns' if self.turns else 'neither a prompt nor turns'}: give one")
        if not self.turns:
            return self
        if self.check or self.reference_tokens:
            raise ValueError(f"item {self.id!r} has turns: give check and reference_tokens to them")
        if self.max_tokens:
            raise ValueError(f"item {self.id!r} has turns: give max_tokens to them")
        if self.history:
            raise ValueError(f"item {self.id!r} has turns: begin with rebuild of the first turn instead of a history")
        if self.turns[-1].tool_wait_s:
            raise ValueError(f"item {self.id!r}: nothing follows the last turn's tool_wait_s: remove it")
        if silent := next((n for n, turn in enumerate(self.turns[:-1], 1) if not turn.answer), None):
            raise ValueError(f"item {self.id!r}: turn {silent} has no answer for the next turn's history: give the recorded one")
        return self

    @model_serializer(mode="wrap")
    def _plain(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """An item of one prompt is written, and hashed, as it was before there were tasks."""
        data: dict[str, Any] = whole(self)
        data.pop("prompt" if self.turns else "turns", None)
        return {k: v for k, v in data.items() if k not in self.LATER or v}

    @property
    def opening(self) -> str:
        """What the first request of the item begins with."""
        if self.turns:
            return (self.turns[0].rebuild or "") + self.turns[0].prompt
        return "".join(text for _, text in self.messages)

    @property
    def messages(self) -> list[tuple[str, str]]:
        """(role, text) of all that a single prompt's answer is asked behind, the prompt last."""
        return [*((m.role, m.content) for m in self.history), ("user", self.prompt)]


class Workload(BaseModel):
    """``warmup`` items are reserved: no probe uses them."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str = Field(min_length=1, max_length=80, pattern=r"^[a-z0-9][a-z0-9-]*$")
    version: int = Field(ge=1)
    title: str = Field(max_length=120)
    description: str = ""
    items: list[Item] = Field(min_length=1)
    warmup: list[Item] = Field(min_length=1)

    @model_validator(mode="after")
    def _all_alike(self) -> Workload:
        if len({bool(item.turns) for item in self.items}) > 1:
            raise ValueError(f"workload {self.name!r} mixes tasks of several turns with single prompts: make two workloads of them")
        return self

    @property
    def is_task(self) -> bool:
        """Whether an item is several requests, asked one after another."""
        return bool(self.items[0].turns)

    @property
    def ref(self) -> str:
        return f"{self.name}@{self.version}"

    def content_hash(self) -> str:
        return sha256_of(self.model_dump(mode="json"))

"""The base of what people write: strict with who asks, lenient with what was stored or comes from a peer of another release."""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

#: The context of a validation in which no rule of people's input counts, only types: such a rule may be younger than the data.
STORED: Mapping[str, Any] = {"stored": True}
#: Types of the errors that a limit raises and no wrong type.
_LIMITS = {"greater_than", "greater_than_equal", "less_than", "less_than_equal", "multiple_of", "finite_number"}
_LIMITS |= {"string_too_short", "string_too_long", "string_pattern_mismatch", "too_short", "too_long"}


def is_stored(info: ValidationInfo) -> bool:
    return bool(info.context and info.context.get("stored"))


class Person(BaseModel):
    """Unknown keys are refused from people, and ignored in what is stored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any, info: ValidationInfo) -> Any:
        return {k: v for k, v in data.items() if k in cls.model_fields} if isinstance(data, dict) and is_stored(info) else data

    @field_validator("*", mode="wrap")
    @classmethod
    def _stored(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            if not is_stored(info) or any(e["type"] not in _LIMITS for e in error.errors(include_url=False, include_input=False)):
                raise
        return _without_limits(cls, info.field_name or "").validate_python(value, context=info.context)

    @field_validator("*", mode="before")
    @classmethod
    def _numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """``draft_limit: yes`` is a slip and not a one."""
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation in (int, float, int | None, float | None):
            raise ValueError("a number is due, not yes or no")
        return value


@cache
def _without_limits(model: type[Person], field: str) -> TypeAdapter[Any]:
    return TypeAdapter(_bare(model.model_fields[field].annotation))


def _bare(kind: Any) -> Any:
    """A type without what ``Annotated`` demands of its values, also inside."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _bare(args[0])
    if origin in (Union, types.UnionType):
        return Union[tuple(_bare(a) for a in args)]  # noqa: UP007 - the members are known at run time only
    if origin in (list, dict):
        return origin[tuple(_bare(a) for a in args)]
    return kind

"""The engines that SpecWeb can start and read. A new engine is one module here with its recorded fixtures."""

from __future__ import annotations

from types import ModuleType

from ..errors import SpecError
from . import llamacpp, vllm
from .shapes import SYMBOLIC, Asked, Bindings, LogRequest, MetricsPair, ParsedStream, ProbeCounts, Rendered

__all__ = [
    "SYMBOLIC",
    "Asked",
    "Bindings",
    "LogRequest",
    "MetricsPair",
    "ParsedStream",
    "ProbeCounts",
    "Rendered",
    "engine",
    "llamacpp",
    "vllm",
]

_ENGINES: dict[str, ModuleType] = {"llama-server": llamacpp, "vllm": vllm}


def default_allowed_flags() -> list[str]:
    """Flags of ``extra`` that a host accepts unless its owner says otherwise, of all engines."""
    return list(dict.fromkeys(flag for module in _ENGINES.values() for flag in module.DEFAULT_ALLOWED_FLAGS))


def names() -> list[str]:
    return list(_ENGINES)


def register(name: str, module: ModuleType) -> None:
    """Makes an engine known by its name, of at most 20 letters; see docs/engines.md for what its module has."""
    _ENGINES[name] = module


def engine(name: str) -> ModuleType:
    """The module that renders for the engine and reads what it leaves; raises ``SpecError`` for an unknown one."""
    if name not in _ENGINES:
        raise SpecError(f"engine {name!r} is not offered; known: {', '.join(_ENGINES)}", remedy="Name one of the known engines.")
    return _ENGINES[name]

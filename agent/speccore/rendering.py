"""The command of an arm on a host, whichever way the build runs there."""

from __future__ import annotations

from collections.abc import Collection

from . import attached
from .engines import SYMBOLIC, Bindings, Rendered, engine
from .inventory import RuntimeInfo
from .spec import Arm, EngineSettings


def render(
    runtime: RuntimeInfo, settings: EngineSettings, arm: Arm, bindings: Bindings, *, allowed_flags: Collection[str], threads: int
) -> Rendered:
    """As the engine's module renders it; of servers that stand already the address of the one that stands for the arm."""
    if runtime.kind == "attached":
        return attached.render(runtime, arm, symbolic=bindings == SYMBOLIC)
    rendered: Rendered = engine(runtime.engine).render(
        settings, arm, runtime.capabilities, bindings, allowed_flags=allowed_flags, threads=threads
    )
    return rendered

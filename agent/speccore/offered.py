"""Which speculation modes an engine build offers, and what it lacks for the others: found by rendering a small arm of each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType

from . import engines
from .errors import SpecError
from .inventory import RuntimeInfo
from .modes import BASELINE_MODE, MODES, MODES_WITH_DRAFT_MODEL
from .spec import Arm, EngineSettings

_LIMIT = 4  # some modes can't be asked for without one
_BUILD_LACKS = ", which this build doesn't"


@dataclass(frozen=True)
class Offered:
    """``lacking``: mode of the engine → what it needs that this build doesn't have. ``baseline``: why not even that runs; empty if it does."""

    modes: list[str] = field(default_factory=list)
    lacking: dict[str, str] = field(default_factory=dict)
    baseline: str = ""


def offered(runtime: RuntimeInfo) -> Offered:
    """By the same rendering that makes the commands, so that what is promised is what runs. Of attached servers nothing is known."""
    capabilities = hashlib.sha256(runtime.capabilities.model_dump_json().encode()).digest()
    return _offered(_Asked((runtime.engine, runtime.kind, capabilities), runtime))


@dataclass(frozen=True)
class _Asked:
    """A build, the same as another one of which all that decides is the same: pages ask for the same builds again and again."""

    what_decides: tuple[str, str, bytes]
    runtime: RuntimeInfo = field(compare=False)


@lru_cache(maxsize=512)
def _offered(asked: _Asked) -> Offered:
    runtime = asked.runtime
    try:
        module = engines.engine(runtime.engine)
    except SpecError:
        return Offered()
    if runtime.kind == "attached":
        return Offered()
    common = _refusals(module, runtime, Arm(name="off", mode=BASELINE_MODE))
    found = Offered(baseline=next(iter(common), ""))
    for mode in (mode for mode in MODES if mode != BASELINE_MODE):
        arms = [_arm(mode, None), _arm(mode, _LIMIT)]
        if all(module.never_possible(EngineSettings(), [arm]) for arm in arms):
            continue
        against = [[words for words in _refusals(module, runtime, arm) if words not in common] for arm in arms]
        if all(against):
            found.lacking[mode] = against[0][0].removeprefix(f"mode {mode} ").split(_BUILD_LACKS)[0]
        else:
            found.modes.append(mode)
    return found


def _arm(mode: str, limit: int | None) -> Arm:
    helper = "helper" if mode in MODES_WITH_DRAFT_MODEL else None
    return Arm(name=mode, mode=mode, draft_model=helper, draft_limit=limit)


def _refusals(module: ModuleType, runtime: RuntimeInfo, arm: Arm) -> list[str]:
    """The reasons against the arm, without its name."""
    rendered = module.render(EngineSettings(), arm, runtime.capabilities, engines.SYMBOLIC, allowed_flags=(), threads=1)
    return [refusal.message.removeprefix(f"arm {arm.name!r}: ") for refusal in rendered.refusals]

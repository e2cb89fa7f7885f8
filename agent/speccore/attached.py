"""Servers that somebody else started: asked and never started, so that nothing is restarted between trials.

Such a runtime has one server for each arm, by the arm's name. It is chosen only by an experiment that says so, and what is
compared on it is marked as not restarted: a trial is no start of a server there, and what was started with which files and
settings is known only as far as the servers tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from .canonical import canonical_json
from .engines.shapes import Rendered
from .errors import ArmNotSupported, SpecError
from .inventory import RuntimeInfo
from .spec import Arm, ExperimentSpec

#: Stands in the place of a command.
WORD = "attached"
LABEL = "not restarted"
#: Of a model that only a server tells of: its hash is of what is said, and there is no file to look at.
SERVED = "served"
#: What nobody can check of a server that somebody else started, in words.
UNCHECKED = (
    "the hashes of its program and model files",
    "the command it was started with",
    "settings it does not report (threads, layers on the GPU, batch sizes, KV types, further flags)",
    "its memory",
    "what runs beside it",
    "whether it was restarted meanwhile",
)


def render(runtime: RuntimeInfo, arm: Arm, *, symbolic: bool = False) -> Rendered:
    """The address of the arm's server in the place of a command; refused where there is none by the arm's name.

    ``symbolic``: a word for it, since it is the host's own as paths are.
    """
    address = runtime.servers.get(arm.name, "")
    if address:
        return Rendered(argv=[WORD, "{server}" if symbolic else address])
    named = ", ".join(runtime.servers)
    refusal = ArmNotSupported(
        f"arm {arm.name!r}: no server of this attached runtime stands for it; servers are there for {named}",
        remedy="Name the arm as its server is named in the agent's configuration under servers, or add a server there.",
        arm=arm.name,
    )
    return Rendered(argv=[WORD], refusals=[refusal.body()])


def helper(spec: ExperimentSpec, arm: Arm) -> str:
    """The helper model that the host must have for an arm; an attached server has loaded its own, and doesn't name it."""
    return "" if spec.runtime.attached else arm.draft_model or ""


def faults(spec: ExperimentSpec) -> Iterator[SpecError]:
    """What can't be had from servers that are not restarted."""
    if not spec.runtime.attached:
        return
    n_trials = spec.blocks * len(spec.points)
    for i, arm in enumerate(spec.arms):
        if arm.is_stateful and n_trials > 1:
            yield SpecError(
                f"arm {arm.name!r}: mode {arm.mode} remembers earlier requests, and an attached server keeps that from one trial to the next",
                remedy="Let the agent start the engine for this arm, or take the arm out.",
                field=f"arms.{i}.mode",
                value=arm.mode,
            )
    for flag, value in spec.engine.extra.items():
        yield SpecError(
            f"engine.extra: {flag} can't be given to a server that stands already, nor be read from it",
            remedy="Remove it, or let the agent start the engine.",
            field=f"engine.extra.{flag}",
            value=value,
        )
    if spec.fit:
        yield SpecError(
            "fit starts the engine with one context after another, and attached servers are never started",
            remedy="Set fit to false, or let the agent start the engine.",
            field="fit",
            value=True,
        )


def told_of(module: ModuleType, props: Mapping[str, Any]) -> dict[str, Any]:
    """What a server says of itself that must be equal in all arms."""
    build, model = module.build_and_model(props)
    context, slots = module.context_and_slots(props)
    return {"build": build, "model": model, "context": context, "slots": slots}


def pair_fields(module: ModuleType, props: Mapping[str, Any]) -> dict[str, str]:
    """In the place of command and environment, of which nothing is known; the addresses differ by design."""
    return {"served": canonical_json(told_of(module, props)).decode()}

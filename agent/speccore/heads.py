"""Whether a head that drafts from the target's hidden states is there and fits, told from the files before anything is started.

What llama-server does otherwise: without a head for multi-token prediction, or with one for other widths, it ends at its start;
with a file that is no EAGLE-3 head it starts all the same, and serves without speculation.
"""

from __future__ import annotations

from collections.abc import Mapping

from .errors import ErrorBody, HeadMissing
from .inventory import ModelInfo, RuntimeInfo
from .spec import Arm, ExperimentSpec

#: What the file of a head calls its architecture, by mode.
ARCHITECTURES = {"eagle3": "eagle3", "dflash": "dflash", "dspark": "dflash"}  # the last is a kind of the one before


def refusals(spec: ExperimentSpec, target: ModelInfo, drafts: Mapping[str, ModelInfo], runtime: RuntimeInfo) -> dict[str, ErrorBody]:
    """By arm; ``drafts``: helpers by arm. What is not known of a file is not held against it."""
    if runtime.kind == "attached":
        return {}
    found = {arm.name: refusal(arm, target, drafts.get(arm.name), runtime) for arm in spec.arms}
    return {arm: refused for arm, refused in found.items() if refused}


def refusal(arm: Arm, target: ModelInfo, draft: ModelInfo | None, runtime: RuntimeInfo) -> ErrorBody | None:
    """That the engine would not start with this head, or not draft with it; None where it will, or where that is not known."""
    if arm.mode == "mtp":
        return _of_mtp(arm, target, draft, runtime)
    wanted = ARCHITECTURES.get(arm.mode)
    if not wanted or runtime.engine != "llama-server" or not draft or draft.architecture in ("", wanted):
        return None
    words = f"arm {arm.name!r}: {draft.alias} is no {arm.mode} head: its architecture is {draft.architecture}, and a head's is {wanted}"
    return HeadMissing(
        words, remedy="Name the file of a head that was made for the target, or choose mode draft.", model=draft.alias
    ).body()


def _of_mtp(arm: Arm, target: ModelInfo, draft: ModelInfo | None, runtime: RuntimeInfo) -> ErrorBody | None:
    if draft and runtime.engine != "llama-server":
        return None  # what other engines make of a head in a file of its own is theirs to say
    holder = draft or target
    if holder.n_layers is not None and not holder.has_mtp:
        words = f"arm {arm.name!r}: {holder.alias} has no head for mtp"
        return HeadMissing(words, remedy="Take a model file that has one, or another mode.", model=holder.alias).body()
    widths = (draft.memory.hidden or draft.memory.width, target.memory.width) if draft and draft.memory and target.memory else (0, 0)
    if draft and 0 != widths[0] != widths[1] != 0:
        words = (
            f"arm {arm.name!r}: the head in {draft.alias} goes by hidden states of {widths[0]:,} numbers, {target.alias} has {widths[1]:,}"
        )
        return HeadMissing(words, remedy="Name the file of a head that was made for the target.", model=draft.alias).body()
    return None

"""Whether an engine can read a model at all, told from the model's form before anything is started."""

from __future__ import annotations

from collections.abc import Mapping

from . import engines
from .attached import SERVED
from .errors import ErrorBody, ModelFormat
from .inventory import ModelInfo, RuntimeInfo

#: Forms of models, as a person calls them.
WORDS = {"gguf": "a GGUF file", "hf": "a folder with config.json and safetensors"}


def refusals(target: ModelInfo, drafts: Mapping[str, ModelInfo], runtime: RuntimeInfo) -> dict[str, ErrorBody]:
    """By arm, '' for the target: why the engine can't read the model. ``drafts``: helpers by arm."""
    found = {}
    for arm, model in [("", target), *drafts.items()]:
        if refused := _refusal(model, runtime, arm):
            found[arm] = refused
    return found


def _refusal(model: ModelInfo, runtime: RuntimeInfo, arm: str) -> ErrorBody | None:
    read: tuple[str, ...] = getattr(engines.engine(runtime.engine), "MODEL_FORMATS", ())
    if runtime.kind == "attached":
        return None
    if model.format == SERVED:
        said = f"{model.alias} is known by the word of a server that stands already, and no file of it is offered here"
        remedy = "Ask that server (runtime.attached: true), or name the model's file in the agent's configuration."
        return ModelFormat(f"arm {arm!r}: {said}" if arm else said, remedy=remedy, model=model.alias, format=model.format).body()
    if not arm and model.drafts_for and runtime.engine == "vllm":
        said = (
            f"{model.alias} is a helper that drafts for {model.drafts_for}: vLLM would load that in its place, and speculate in every arm"
        )
        return ModelFormat(said, remedy="Name the model itself as the target, and this one in an arm.", model=model.alias).body()
    if not read or model.format in read:
        return None
    wants = " or ".join(WORDS.get(name, name) for name in read)
    said = f"{runtime.engine} reads {wants}, and {model.alias} is {WORDS.get(model.format, model.format)}"
    return ModelFormat(f"arm {arm!r}: {said}" if arm else said, model=model.alias, format=model.format).body()

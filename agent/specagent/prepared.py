"""A job with everything that it needs from this host: models, engine build, and the command that starts each of its arms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from speccore import engines, model_formats
from speccore.errors import ArmNotSupported, EngineLoadedOther, ErrorBody, ModelFormat, SpecWebError
from speccore.inventory import ModelInfo
from speccore.protocol import JobOffer, ProbePlan, WarmupPlan
from speccore.rendering import render as render_arm
from speccore.workload import Item, Workload

from . import containers
from .asking import Address
from .inventory import Host
from .runtimes import Runtime, engine_environment

_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(API|ACCESS|PRIVATE)_?KEY", re.IGNORECASE)
_HIDDEN = "(set, and not shown)"


@dataclass(frozen=True)
class PreparedJob:
    """A job with everything that it needs from this host, looked up once. ``workloads`` by a point's name for it."""

    offer: JobOffer
    workloads: Mapping[str, Workload]
    host: Host
    runtime: Runtime
    target: ModelInfo
    drafts: Mapping[str, ModelInfo]  # by arm
    threads: int

    @property
    def dialect(self) -> ModuleType:
        return engines.engine(self.runtime.info.engine)

    def item(self, plan: ProbePlan | WarmupPlan) -> Item:
        workload = self.workloads[self.offer.spec.point(plan.point).workload]
        items = workload.warmup if isinstance(plan, WarmupPlan) and not plan.ahead else workload.items
        return next(i for i in items if i.id == plan.item)


def launch_command(job: PreparedJob, arm: str, at: Address) -> tuple[engines.Rendered, dict[str, str]]:
    """An arm's command on this host with the engine's whole environment. Raises the refusals as one error."""
    draft = job.drafts.get(arm)
    bindings = engines.Bindings(
        executable=job.runtime.info.executable, target=job.target.path, draft=draft.path if draft else "", host=at.host, port=at.port
    )
    rendered = render(job, arm, bindings)
    return rendered, engine_environment({**job.runtime.env, **rendered.env})


def check_models(job: PreparedJob) -> None:
    """Raises if the engine can't read a model of the job, or could only by running code that the model's folder brings."""
    for refused_model in model_formats.refusals(job.target, job.drafts, job.runtime.info).values():
        raise ModelFormat(refused_model.message)
    own = job.runtime.architectures
    for model in [job.target, *job.drafts.values()]:
        if model.custom_code and own and model.architecture not in own:
            raise ModelFormat(
                f"{model.alias} is of the architecture {model.architecture or 'of no name'}, for which its folder brings code (auto_map): "
                "this build has none of its own, and no code of a model's folder is ever run",
                remedy="Take a newer build of the engine, or another model.",
            )


def without_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """An environment as evidence shows it: of what is a secret by its name, only that it was set."""
    return {name: _HIDDEN if _SECRET.search(name) else value for name, value in env.items()}


def check_loaded(job: PreparedJob, props: dict[str, Any]) -> None:
    """A server without a model is healthy too (router mode); so is one with another context."""
    settings = job.offer.spec.engine
    inside = job.runtime.info.kind == "container"
    target = containers.path_inside(job.target, containers.TARGET) if inside else job.target.path
    if problem := job.dialect.loaded_problem(props, settings, target, settings.context):
        raise EngineLoadedOther(problem)


def check_asked(job: PreparedJob) -> None:
    """Raises what the points would ask that this engine answers with an error."""
    for never in job.dialect.never_asked(job.offer.spec):
        raise ArmNotSupported(never.message, remedy=never.remedy, **never.details)


def render(job: PreparedJob, arm: str, bindings: Any) -> engines.Rendered:
    """The launch command of an arm on this host. Raises the refusals as one error."""
    rendered = render_arm(
        job.runtime.info,
        job.offer.spec.engine,
        job.offer.spec.arm(arm),
        bindings,
        allowed_flags=job.host.inventory.allowed_flags,
        threads=job.threads,
    )
    if rendered.refusals:
        raise refused(arm, rendered.refusals)
    return rendered


def refused(arm: str, refusals: list[ErrorBody]) -> SpecWebError:
    """What this build or host can't do for an arm, as one error with the first refusal's remedy."""
    text = "; ".join(r.message for r in refusals)
    return ArmNotSupported(f"arm {arm!r}: {text}", remedy=refusals[0].remedy or None, codes=[r.code for r in refusals])

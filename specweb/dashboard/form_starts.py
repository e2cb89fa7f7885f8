"""What a new experiment starts from: the sample, an earlier experiment, a finished job to be reproduced, or a preset."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest
from speccore.errors import SpecError
from speccore.presets import DRAFT, LARGER, SPARE_MEMORY, TARGET, Preset, preset

from specweb.accounts.models import Team
from specweb.experiments import offers
from specweb.experiments.models import Job
from specweb.experiments.services.reproducing import reproduction_of
from specweb.results import page_queries

from . import form_choices

#: As the database holds it.
MAX_ALIAS = 200


@dataclass(frozen=True)
class Start:
    """``data`` None: what is usual."""

    team: Team
    data: dict[str, Any] | None = None
    notice: str = ""


def start_of(request: HttpRequest, teams: Sequence[Team]) -> Start:
    """By the address. Raises ``Http404`` for what isn't there, or not for this person."""
    team = next((t for t in teams if t.slug == request.GET.get("team")), teams[0])
    if wanted := request.GET.get("preset", ""):
        return _preset(team, wanted, request.GET.get("model", "").strip()[:MAX_ALIAS])
    if wanted := request.GET.get("reproduce", ""):
        return _reproduced(request, teams, team, wanted)
    wanted = request.GET.get("from", "")
    if wanted == "sample":
        return Start(team, form_choices.sample_data(), "This is the sample experiment. Change what you like, or submit it as it is.")
    return _copied(request, teams, team, wanted) if wanted else Start(team)


def _copied(request: HttpRequest, teams: Sequence[Team], team: Team, wanted: str) -> Start:
    earlier = offers.experiment_to_copy(request.user, _uuid(wanted))
    if earlier is None:
        raise Http404
    notice = f"This is what “{earlier.name}” asked. It stays as it is; what you submit becomes an experiment of its own."
    own = next((t for t in teams if t.pk == earlier.team_id), team)
    return Start(own, earlier.parsed_spec.model_dump(mode="json", exclude_defaults=True), notice)


def _reproduced(request: HttpRequest, teams: Sequence[Team], team: Team, wanted: str) -> Start:
    job = page_queries.job_shown(request.user, _uuid(wanted))
    if job is None:
        raise Http404
    own = next((t for t in teams if t.pk == job.experiment.team_id), team)
    data = reproduction_of(job)
    others = _others_with_its_models(own, job, data)
    if others:
        data["placement"] = {"hosts": others}
    where = f"Ticked {'is' if len(others) == 1 else 'are'} {', '.join(others)}, which {'has' if len(others) == 1 else 'have'} its models"
    lacking = "No other host of this team has its models yet: put the same files there first, or it runs where it ran before"
    ran_on = f", which ran on {job.host.name}" if job.host and own.pk == job.experiment.team_id else ""
    return Start(
        own,
        data,
        f"This asks the same as “{job.experiment.name}”{ran_on}: models by their hashes, prompts by their version, the engine’s version, "
        f"and the seed. {where if others else lacking}.",
    )


def _others_with_its_models(team: Team, job: Job, data: dict[str, Any]) -> list[str]:
    wanted = {data["target"]["model"], *(arm["draft_model"] for arm in data["arms"] if arm.get("draft_model"))}
    found = []
    for host in offers.hosts_of(team):
        if host.pk == job.host_id or host.inventory is None:
            continue
        models = host.inventory.parsed.models
        if wanted <= {m.manifest_hash for m in models} | {m.alias for m in models}:
            found.append(host.name)
    return found


def _preset(team: Team, wanted: str, target: str) -> Start:
    try:
        found = preset(wanted)
    except SpecError:
        raise Http404 from None
    models, missing = models_for(found, form_choices.inventories_of(offers.hosts_of(team)), target)
    needs = f" It needs {found.needs}." if found.needs else ""
    lacking = f" None of this team’s hosts has {', '.join(missing)}: choose another model, or add it there." if missing else ""
    return Start(team, found.bound(models), f"This is the preset “{found.name}”. {found.question}{needs}{lacking}")


def models_for(found: Preset, inventories: Sequence[Any], wanted: str = "") -> tuple[dict[str, str], list[str]]:
    """An alias for each role, the one that it was written for where no host has any; and the words of those that are missing.

    ``wanted``: the alias of the target, where somebody chose one; it stands even if no host has it.
    """
    target, draft = form_choices.pair_with(inventories, wanted) if wanted else form_choices.likely_pair(inventories)
    named = {role: model.alias for role, model in ((TARGET, target), (DRAFT, draft)) if model and role in found.roles}
    named = {role: alias for role, alias in named.items() if not found.roles[role].like}
    if found.of == SPARE_MEMORY and (pair := form_choices.quantisations(inventories)):
        named |= {role: model.alias for role, model in zip((TARGET, LARGER), pair) if role in found.roles}
    if wanted and TARGET in found.roles:
        named[TARGET] = wanted
    models = found.matched([m.alias for i in inventories for m in i.models], named)
    missing = [role.words for role in found.roles.values() if role.name not in models]
    return {role.name: models.get(role.name, role.model) for role in found.roles.values()}, missing


def _uuid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise Http404 from None

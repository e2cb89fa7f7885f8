"""More blocks for an experiment that ended on a host: a job of its own, pinned to the host, build and models of the first."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import IntegrityError, transaction
from speccore.errors import NotPossible, SpecError
from speccore.extending import MOST_BLOCKS
from speccore.inventory import HostInventory
from speccore.jobstate import FINAL, JobState
from speccore.spec import ExperimentSpec

from specweb import queue
from specweb.accounts import audit
from specweb.experiments.models import Host, Job, Origin

from .placement import NoFit, fit
from .plans import blocks_of, family_of, next_block, plan_of_added


def add_blocks(job: Job, n_blocks: int, *, by: str) -> Job:
    """A waiting job of ``n_blocks`` further blocks for the answer that ``job`` is part of.

    Raises :class:`NotPossible` where that answer isn't finished or its host can't run the same, and :class:`SpecError` where
    there are too many.
    """
    family = family_of(job)
    spec = family[0].experiment.parsed_spec
    first = next_block(family, spec)
    if not 1 <= n_blocks <= MOST_BLOCKS or first - 1 + n_blocks > MOST_BLOCKS:
        most = MOST_BLOCKS - first + 1
        raise SpecError(
            f"{n_blocks} blocks can't be added to {first - 1}: an answer has {MOST_BLOCKS} at the most",
            remedy=f"Add from 1 to {most}." if most > 0 else "Submit a new experiment, planned with as many.",
            field="blocks",
            value=n_blocks,
        )
    refuse_if_open(family)
    if not any(j.state == JobState.PROCESSED for j in family):
        raise NotPossible(
            f"job {job.pk} is {job.state} and has no finished answer to add to",
            remedy="Run its missing blocks, or try it again from the start.",
        )
    return extend(family, list(range(first, first + n_blocks)), by=by, verb="extend", words=f"{n_blocks} further blocks")


def refuse_if_open(family: Sequence[Job]) -> None:
    """Raises :class:`NotPossible` while a job of the answer has not ended: what it will bring is not known."""
    if running := next((j for j in family if j.state not in FINAL), None):
        remedy = "Wait for its end, or cancel it."
        if running is family[0]:
            raise NotPossible(f"job {running.pk} is {running.state}: nothing can be added before it has ended", remedy=remedy)
        raise NotPossible(f"blocks are being added already, by job {running.pk}, which is {running.state}", remedy=remedy)


def extend(family: Sequence[Job], blocks: list[int], *, by: str, verb: str, words: str) -> Job:
    """Stores the job of those blocks. Raises :class:`NotPossible`, also where somebody else was first."""
    first = family[0]
    if why_not := unable(first):
        raise NotPossible(why_not[0], remedy=why_not[1])
    plan_of_added(first.experiment, first.experiment.parsed_spec, family, blocks)  # is refused now, not when a worker plans it
    try:
        with transaction.atomic():
            new = Job.objects.create(
                experiment_id=first.experiment_id,
                wanted_host_id=first.host_id,
                extends=first,
                blocks=blocks,
                reason=f"waits to be dispatched: {words}, as {by} asked",
            )
            asked = first.experiment
            audit.record(f"job.{verb}", new.pk, asked.name_to_maintainers, team=asked.team, by=by, before=f"job {first.pk}", after=words)
            transaction.on_commit(lambda: queue.send("dispatch"))
    except IntegrityError:
        raise NotPossible("blocks are being added already", remedy="Look at the experiment's newest job.") from None
    return new


def unable(first: Job) -> tuple[str, str] | None:
    """Why nothing can be added to an answer of this job, and what to do; None if it can be."""
    if first.experiment.origin != Origin.SERVICE:
        return f"job {first.pk} was run without this service", "Submit the experiment here, or run it again and upload that."
    if first.host is None or first.plan is None or first.runtime is None or first.target is None:
        return f"no host ever took job {first.pk}", "Try it again from the start."
    host = Host.objects.select_related("inventory").filter(pk=first.host_id).first()
    if host is None or host.revoked_at:
        return f"{first.host.name}, on which the earlier blocks ran, was revoked", "Run the experiment on another host: Reproduce."
    if host.inventory is None:
        return f"{host.name} has not said what it offers", "Wait for its agent's next inventory."
    return _lacks(first, host.name, host.inventory.parsed)


def _lacks(first: Job, host: str, inventory: HostInventory) -> tuple[str, str] | None:
    remedy = "Blocks of another build or model can't stand in one comparison with these. Submit the experiment anew, or Reproduce it."
    assert first.runtime is not None
    if not any(r.manifest_hash == first.runtime.manifest_hash for r in inventory.runtimes):
        return f"{host} no longer offers the engine build {first.runtime.manifest_hash[:12]} of the earlier blocks", remedy
    there = {m.manifest_hash for m in inventory.models}
    wanted = {
        "the target": first.target.manifest_hash if first.target else "",
        **{f"the helper of {a}": h for a, h in first.draft_hashes.items()},
    }
    if gone := [f"{what} {sha256[:12]}" for what, sha256 in wanted.items() if sha256 not in there]:
        return f"{host} no longer has {', '.join(gone)}", remedy
    found = fit(pinned(first), inventory)
    return (f"{host} {found.reason}", remedy) if isinstance(found, NoFit) else None


def pinned(first: Job) -> ExperimentSpec:
    """The experiment with the build and models of ``first`` by their hashes, in place of what names could let drift."""
    spec = first.experiment.parsed_spec
    if first.runtime is None or first.target is None:
        return spec
    arms = [a.model_copy(update={"draft_model": h}) if (h := first.draft_hashes.get(a.name)) else a for a in spec.arms]
    runtime = spec.runtime.model_copy(update={"manifest_hash": first.runtime.manifest_hash})
    target = spec.target.model_copy(update={"model": first.target.manifest_hash})
    return spec.model_copy(update={"arms": arms, "runtime": runtime, "target": target})


def spec_to_place(job: Job) -> ExperimentSpec:
    """What a host must offer to take the job."""
    return pinned(job.extends) if job.extends else job.experiment.parsed_spec


def blocks_in_words(job: Job) -> str:
    """``blocks 6–10``, of a job that adds to an answer."""
    blocks = blocks_of(job, job.experiment.parsed_spec)
    if not blocks:
        return "no block"
    whole = blocks == list(range(blocks[0], blocks[-1] + 1))
    if len(blocks) == 1:
        return f"block {blocks[0]}"
    return f"blocks {blocks[0]}–{blocks[-1]}" if whole else f"blocks {', '.join(map(str, blocks))}"

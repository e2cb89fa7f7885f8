"""The blocks that an answer lacks: run by a job of their own, so that what was measured need not be measured again."""

from __future__ import annotations

from speccore.errors import NotPossible

from specweb.experiments.models import Job
from specweb.experiments.services.more import extend, refuse_if_open
from specweb.experiments.services.plans import blocks_of

from .joining import lacking_blocks


def run_the_rest(job: Job, *, by: str) -> Job:
    """A waiting job of the blocks that aren't whole. Raises :class:`NotPossible` where there are none, or nothing else."""
    family, lacking = lacking_blocks(job)
    refuse_if_open(family)
    spec = family[0].experiment.parsed_spec
    planned = {block for each in family for block in blocks_of(each, spec)}
    if not lacking:
        raise NotPossible(f"no block of job {job.pk} is missing", remedy="Add blocks to it for a narrower interval.")
    if len(lacking) == len(planned):
        raise NotPossible(f"no block of job {job.pk} is whole", remedy="Try it again from the start.")
    words = f"block{'' if len(lacking) == 1 else 's'} {', '.join(map(str, lacking))}, which the earlier jobs lack"
    return extend(family, lacking, by=by, verb="rest", words=words)

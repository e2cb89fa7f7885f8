"""What a run in a folder asked, to be asked again on this machine."""

from __future__ import annotations

from pathlib import Path

from speccore.errors import SpecError
from speccore.inventory import HostInventory
from speccore.protocol import JobOffer
from speccore.reproduce import reproduction
from speccore.selfrun import INVENTORY, JOB, WORKLOADS
from speccore.spec import ExperimentSpec, parse_spec, problem_lines
from speccore.workload import Workload

from .local import read_json


def read_again(folder: Path) -> ExperimentSpec:
    """Pinned to what it ran with. Raises :class:`SpecError` for what is no run's folder."""
    try:
        offer = JobOffer.model_validate(read_json(folder / JOB))
        inventory = HostInventory.model_validate(read_json(folder / INVENTORY))
        held = {name: Workload.model_validate(data) for name, data in read_json(folder / WORKLOADS).items()}
    except (OSError, ValueError, AttributeError) as error:
        said = str(error).splitlines()[0] if str(error) else "it is of another shape"
        raise SpecError(f"{folder} holds no run that can be read: {said}", remedy="Name the folder that `run` has left.") from error
    data = reproduction(
        offer.spec,
        workloads={name: workload.ref for name, workload in held.items()},
        target_hash=offer.target_hash,
        draft_hashes=offer.draft_hashes,
        runtime=next((r for r in inventory.runtimes if r.manifest_hash == offer.runtime_hash), None),
    )
    spec, problems = parse_spec(data)
    if spec is None:
        raise SpecError("\n".join([f"what {folder} asked can't be asked any more:", *problem_lines(problems)]), remedy="")
    return spec

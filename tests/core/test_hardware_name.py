"""What a host's hardware is called."""

from __future__ import annotations

import pytest
from speccore.inventory import Device, HostInventory


def host(n_cores: int) -> HostInventory:
    return HostInventory(
        agent_version="0.1.0",
        hostname="box",
        os={"system": "Linux"},
        boot_id="boot",
        cpu_model="Some CPU",
        n_cores=n_cores,
        memory_bytes=2**30,
        devices=[Device(uuid="cpu-1", kind="cpu", name="Some CPU", memory_bytes=2**30)],
        runtimes=[],
        models=[],
        allowed_flags=[],
    )


@pytest.mark.parametrize(("n", "named"), [(1, "CPU · Some CPU, 1 core"), (2, "CPU · Some CPU, 2 cores")])
def test_a_host_without_a_card_is_called_by_its_processor(n: int, named: str) -> None:
    assert host(n).hardware_name() == named

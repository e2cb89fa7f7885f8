"""What an engine in a container can reach, read and change: the agent reaches it, and it reaches nobody."""

from __future__ import annotations

import socket as sockets
import subprocess
import sys
from collections.abc import Iterator

import docker
import pytest
from specagent import ready
from specagent.arm_engine import standing
from specagent.asking import Address

from tests.docker.conftest import TAG, Bench, wait_until

OUTSIDE = "203.0.113.2"
_LISTEN = "import socket, time; s = socket.create_server(('0.0.0.0', 4000)); print('listens', flush=True); time.sleep(600)"


@pytest.fixture(scope="module")
def outside(socket: str) -> Iterator[Address]:
    """Another machine, which this one has a way to: a network of its own behind a cable."""
    there = subprocess.Popen(["unshare", "--net", sys.executable, "-c", _LISTEN], stdout=subprocess.PIPE, text=True)
    try:
        assert there.stdout
        assert there.stdout.readline() == "listens\n"
        for command in (
            "ip link add cable-here type veth peer name cable-there",
            f"ip link set cable-there netns {there.pid}",
            "ip addr add 203.0.113.1/24 dev cable-here",
            "ip link set cable-here up",
            "ip route add default via 203.0.113.2",
            f"nsenter -t {there.pid} -n ip addr add {OUTSIDE}/24 dev cable-there",
            f"nsenter -t {there.pid} -n ip link set cable-there up",
        ):
            subprocess.run(command.split(), check=True)
        at = Address(OUTSIDE, 4000)
        sockets.create_connection(at, timeout=5).close()
        yield at
    finally:
        there.kill()
        there.wait()
        if there.stdout:
            there.stdout.close()


@pytest.fixture
def ordinary(bench: Bench) -> Iterator[str]:
    """A container of the same image as anybody would start it: what our restrictions are measured against."""
    network = bench.client.create_network("ordinary")["Id"]
    host = bench.client.create_host_config(network_mode="ordinary")
    made = bench.client.create_container(TAG, entrypoint=["/bin/sleep"], command=["600"], host_config=host)["Id"]
    bench.client.start(made)
    yield made
    bench.client.remove_container(made, force=True)
    bench.client.remove_network(network)


def reaches(bench: Bench, container: str, at: Address) -> bool:
    code, _ = bench.inside(container, f"timeout 2 bash -c 'exec 3<>/dev/tcp/{at.host}/{at.port}'")
    return code == 0


def gateway(bench: Bench, container: str) -> str:
    (network,) = bench.client.inspect_container(container)["NetworkSettings"]["Networks"].values()
    return str(bench.client.inspect_network(network["NetworkID"])["IPAM"]["Config"][0]["Gateway"])


def test_the_agent_reaches_it_and_it_reaches_nobody(bench: Bench, outside: Address, ordinary: str, never) -> None:
    job = bench.job(bench.host())
    with (
        sockets.create_server(("0.0.0.0", 0)) as service,
        standing(job, "off", bench.folder / "one", never) as one,
        standing(job, "off", bench.folder / "two", never) as two,
    ):
        port = service.getsockname()[1]
        ours = {c["Id"]: c for c in bench.client.containers(filters={"label": "specweb.attempt"})}
        assert len(ours) == 2
        assert ready.fetch(one.at, "/health")[0] == ready.fetch(two.at, "/health")[0] == 200
        assert reaches(bench, ordinary, outside), "there is a way out, for containers that have one"
        assert reaches(bench, ordinary, Address(gateway(bench, ordinary), port)), "and a way to this machine's services"
        for container in ours:
            (network,) = bench.client.inspect_container(container)["NetworkSettings"]["Networks"].values()
            other = one.at if network["IPAddress"] == two.at.host else two.at
            itself = Address("127.0.0.1", one.at.port)
            assert reaches(bench, container, itself)
            assert not reaches(bench, container, outside)
            assert not reaches(bench, container, Address(gateway(bench, container), port)), "this machine's own service"
            assert not reaches(bench, container, Address("203.0.113.1", port)), "by another of its addresses"
            assert not reaches(bench, container, other), "another engine"


def test_it_can_write_nothing_but_its_scratch_folder_and_has_no_power(bench: Bench, never) -> None:
    with standing(bench.job(bench.host()), "draft-3", bench.folder / "one", never):
        container = bench.standing()
        assert bench.inside(container, "touch /tmp/a && id -u") == (0, "65534\n")
        for path in ("/a", "/engine/bin/a", "/models/a", "/models/target/target.gguf", "/etc/a"):
            code, said = bench.inside(container, f"touch {path}")
            assert code == 1, path
            assert "Read-only file system" in said or "Permission denied" in said
        _, status = bench.inside(container, "cat /proc/1/status")
        told = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert {told[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        assert told["NoNewPrivs"] == "1"
        seen = bench.client.inspect_container(container)
        assert seen["HostConfig"]["Privileged"] is False
        assert seen["HostConfig"]["PidsLimit"] == 4096
        assert all(m["RW"] is False for m in seen["Mounts"])


def test_a_model_that_only_its_owner_may_read_is_read_as_its_owner(bench: Bench, tmp_path, never) -> None:
    import os
    import shutil

    own = tmp_path / "own"
    own.mkdir()
    for name in ("target", "draft"):
        shutil.copy(bench.models / f"{name}.gguf", own)
        os.chown(own / f"{name}.gguf", 4321, 4321)
        (own / f"{name}.gguf").chmod(0o600)
    bench.models = own
    with standing(bench.job(bench.host()), "off", tmp_path / "one", never):
        assert bench.inside(bench.standing(), "id -u") == (0, "4321\n")


def test_an_engine_that_is_gone_takes_its_network_with_it(bench: Bench, never) -> None:
    before = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True).stdout
    with standing(bench.job(bench.host()), "off", bench.folder / "one", never) as engine:
        assert bench.left()
        with pytest.raises(docker.errors.APIError):
            bench.client.inspect_network("bridge-that-is-not-there")
        assert engine.engine.pid > 0
    assert bench.left() == []
    wait_until(lambda: subprocess.run(["ip", "-br", "link"], capture_output=True, text=True).stdout == before, "its bridge is gone")

"""What a container engine is asked for, which files and whose rights, and what happens where there is none: no dockerd is needed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from specagent import container_runtime, containers, probing, processes
from specagent.config import Config, Limits, RuntimeEntry
from specagent.container_runtime import check_variables
from specagent.container_start import ContainerStart, seen_pid
from specagent.container_stats import held
from specagent.containers import DRAFT, NOBODY, TARGET, Mount, Place
from specagent.docker_engine import ContainerEngineUnusable, address_of
from specagent.filecache import FileCache
from specagent.inventory import take_inventory
from specagent.probing import RuntimeBroken
from specagent.runtimes import read_runtime
from specagent.sweep import sweep_records
from speccore.inventory import ModelInfo

IMAGE = "ghcr.io/example/llama@sha256:" + "a" * 64
PLACE = Place(docker="unix:///nowhere/docker.sock", image_id="sha256:" + "b" * 64, user="", limits=Limits())


def made(place: Place = PLACE, engine: str = "llama-server", **changes: object) -> dict:
    asked = {
        "user": NOBODY,
        "network": "specweb-1",
        "labels": {"specweb.attempt": "1"},
        "mounts": [Mount("/m/a.gguf", "/models/target/a.gguf")],
    }
    return containers.body(place, engine, ["/app/llama-server", "--port", "8080"], {"HOME": "/tmp"}, **(asked | changes))


def place(**limits: object) -> Place:
    return Place(PLACE.docker, PLACE.image_id, "", Limits.model_validate(limits))


def model(path: Path, *names: str) -> ModelInfo:
    return ModelInfo(alias="m", manifest_hash="h", manifest=dict.fromkeys(names, "0" * 64), path=str(path), size_bytes=1)


def test_it_may_do_nothing_that_an_engine_does_not_need() -> None:
    asked = made()
    host = asked["HostConfig"]
    assert asked["Image"] == PLACE.image_id, "the very image that was looked at, never a name"
    assert asked["Entrypoint"] + asked["Cmd"] == ["/app/llama-server", "--port", "8080"]
    assert asked["User"] == NOBODY
    assert host["CapDrop"] == ["ALL"]
    assert "CapAdd" not in host
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["ReadonlyRootfs"] is True
    assert "Privileged" not in host
    assert "PortBindings" not in host
    assert host["NetworkMode"] == "specweb-1"
    assert host["RestartPolicy"] == {"Name": "no"}
    assert host["PidsLimit"] == 4096
    assert host["Mounts"] == [{"Type": "bind", "Source": "/m/a.gguf", "Target": "/models/target/a.gguf", "ReadOnly": True}]
    network = containers.network_body("specweb-1", {})
    assert (network["Driver"], network["Internal"]) == ("bridge", True)


def test_the_owners_limits_are_asked_for_and_swap_is_no_way_around_them() -> None:
    host = made(place(memory_mib=2048, cpus="0-3,8", pids=99, shm_mib=64, scratch_mib=32))["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 2 << 30
    assert host["CpusetCpus"] == "0-3,8"
    assert host["PidsLimit"] == 99
    assert host["ShmSize"] == 64 << 20
    assert host["Tmpfs"]["/tmp"].startswith("rw,nosuid,nodev,noexec,size=32m")
    assert "Memory" not in made()["HostConfig"]


def test_only_an_engine_that_compiles_may_run_what_it_has_written() -> None:
    assert ",exec," in made(engine="vllm")["HostConfig"]["Tmpfs"]["/tmp"]
    assert ",noexec," in made()["HostConfig"]["Tmpfs"]["/tmp"]


def test_gpus_are_asked_for_by_name_or_all_of_them() -> None:
    def requests(*gpus: str) -> list[dict] | None:
        return made(Place(PLACE.docker, PLACE.image_id, "", Limits(), gpus))["HostConfig"].get("DeviceRequests")

    assert requests() is None
    assert requests("all") == [{"Driver": "", "Capabilities": [["gpu"]], "Count": -1}]
    assert requests("GPU-1", "1") == [{"Driver": "", "Capabilities": [["gpu"]], "DeviceIDs": ["GPU-1", "1"]}]


def test_of_a_split_model_each_part_is_mounted_and_the_first_is_named(tmp_path: Path) -> None:
    parts = ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]
    for name in [*parts, "other.gguf"]:
        (tmp_path / name).write_text("x")
    split = model(tmp_path / parts[0], *parts)
    assert containers.path_inside(split, TARGET) == f"/models/target/{parts[0]}"
    assert containers.mounts_of(split, TARGET) == [Mount(str(tmp_path / name), f"/models/target/{name}") for name in parts]


def test_a_folder_of_links_is_mounted_file_by_file_from_where_they_lead(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (blobs / f"blob-{name}").write_text("x")
        (snapshot / name).symlink_to(blobs / f"blob-{name}")
    (snapshot / "secret.txt").write_text("no part of the model")
    folder = model(snapshot, "config.json", "model.safetensors")
    assert containers.path_inside(folder, DRAFT) == DRAFT
    assert containers.mounts_of(folder, DRAFT) == [
        Mount(str(blobs / "blob-config.json"), "/models/draft/config.json"),
        Mount(str(blobs / "blob-model.safetensors"), "/models/draft/model.safetensors"),
    ]


def test_whose_rights_it_has(tmp_path: Path) -> None:
    open_file, closed = tmp_path / "open", tmp_path / "closed"
    open_file.touch(0o644)
    closed.touch(0o600)
    (for_all,), (for_owner,) = [Mount(str(open_file), "/m")], [Mount(str(closed), "/m")]
    root, me = (0, 0), (os.getuid(), os.getgid())
    assert containers.user_for("", [for_all], root) == NOBODY
    assert containers.user_for("root", [for_all], root) == NOBODY
    assert containers.user_for("0:0", [for_all], root) == NOBODY
    assert containers.user_for("vllm", [for_all], root) == "vllm", "the image's own"
    assert containers.user_for("vllm", [for_all, for_owner], root) == "{}:{}".format(*me), "who may read the model"
    assert containers.user_for("vllm", [for_all], (1000, 1001)) == "1000:1001", "an agent's own rights are all that it can give"


def test_where_it_can_not_be_told_whether_a_container_is_left_the_record_stays(tmp_path: Path) -> None:
    record = tmp_path / "engines" / "attempt-1.json"
    record.parent.mkdir()
    start = ContainerStart(["/app/llama-server"], {}, PLACE, "llama-server", IMAGE, [])
    with pytest.raises(ContainerEngineUnusable, match="does not answer: No such file or directory") as unusable:
        start.begin(tmp_path, tmp_path / "server.log", record)
    assert unusable.value.remedy
    assert start.shown["kind"] == "container"
    assert start.shown["container"]["image"] == IMAGE
    assert json.loads(record.read_text())["container"] == {"docker": PLACE.docker, "folder": str(record.with_suffix(".container"))}


def test_a_record_stays_while_its_container_engine_does_not_answer(tmp_path: Path) -> None:
    folder = tmp_path / "attempt-1.container"
    folder.mkdir()
    record = {
        "attempt": "attempt-1",
        "boot_id": processes.boot_id(),
        "agent": [1, 1],
        "container": {"docker": PLACE.docker, "folder": str(folder)},
    }
    path = tmp_path / "attempt-1.json"
    path.write_text(json.dumps(record))
    assert sweep_records(tmp_path) == []
    assert path.exists()
    path.write_text(json.dumps(record | {"boot_id": "an earlier one"}))
    assert sweep_records(tmp_path, [PLACE.docker]) == []
    assert path.exists(), "a container's remains live through a restart of the machine"
    assert folder.exists()


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:2375", "ssh://somebody@elsewhere"])
def test_a_container_engine_of_another_machine_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ContainerEngineUnusable, match="not reached by a socket of this machine"):
        address_of(address)
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(ContainerEngineUnusable):
        address_of("")
    assert address_of("unix:///mine.sock") == "unix:///mine.sock"


def test_without_a_container_engine_the_build_is_broken_and_the_rest_of_the_host_is_not(config: Config, tmp_path: Path) -> None:
    entry = RuntimeEntry(image=IMAGE, docker=f"unix://{tmp_path}/none.sock")
    with pytest.raises(RuntimeBroken, match=r"none.sock does not answer: No such file or directory") as broken:
        read_runtime(entry, FileCache(tmp_path / "files.json"))
    assert broken.value.remedy
    host = take_inventory(
        config.model_copy(update={"runtimes": [entry, *config.runtimes], "models": []}), FileCache(config.state_dir / "files.json")
    )
    assert [r.info.kind for r in host.runtimes] == ["process"]
    (told,) = host.inventory.broken_runtimes
    assert (told.kind, told.path) == ("container", IMAGE)
    assert told.remedy
    assert host.container_engines() == []


def test_memory_by_the_container_engines_statistics_leaves_out_what_the_kernel_can_drop() -> None:
    assert held({"usage": 900, "stats": {"inactive_file": 100}}) == 800
    assert held({"usage": 900, "stats": {"total_inactive_file": 300}}) == 600
    assert held({"usage": 900}) == 900
    assert held({"usage": 0}) is None
    assert held({}) is None, "of one that has ended"


def test_a_process_of_the_same_number_that_is_not_the_containers_is_not_taken_for_it() -> None:
    assert seen_pid(os.getpid(), "f" * 64) == 0
    assert seen_pid(0, "f" * 64) == 0


def test_what_an_image_said_is_remembered_and_files_still_are_not_mixed_up_with_it(tmp_path: Path) -> None:
    store, file = tmp_path / "facts.json", tmp_path / "f"
    file.write_text("x")
    cache = FileCache(store)
    cache.remember("sha256:1 help", "usage")
    digest = cache.sha256(file)
    cache.save()
    again = FileCache(store)
    assert again.recall("sha256:1 help") == "usage"
    assert again.recall("sha256:2 help") is None
    assert again.get(file, "sha256") == digest


def test_of_what_a_program_in_an_image_prints_so_much_is_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "MOST_BYTES", 1000)
    kept: list[tuple[bytes | None, bytes | None]] = []
    asked = iter([(b"x" * 400, None)] * 50 + [(None, b"y" * 400)] * 50)
    container_runtime.take(asked, kept)
    assert sum(len(part or b"") for pair in kept for part in pair) == 1200
    assert next(asked, None) is None  # read to its end all the same: a full pipe would hold it up


def test_an_image_may_not_set_what_would_change_the_engine_past_its_command() -> None:
    with pytest.raises(RuntimeBroken, match="the image sets LLAMA_ARG_SPEC_TYPE") as broken:
        check_variables("llama-server", ["PATH=/usr/bin", "LLAMA_ARG_HOST=0.0.0.0", "LLAMA_ARG_SPEC_TYPE=ngram-simple"])
    assert "LLAMA_ARG_SPEC_TYPE" in broken.value.remedy
    with pytest.raises(RuntimeBroken, match="VLLM_PLUGINS"):
        check_variables("vllm", ["VLLM_PLUGINS=mine"])
    check_variables("llama-server", ["LLAMA_ARG_HOST=0.0.0.0"])  # as the project's own images do
    check_variables("vllm", ["LD_PRELOAD=/usr/lib/libtcmalloc.so"])  # it is in the image, and so in its digest

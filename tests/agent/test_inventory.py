"""What the agent says of this machine, its engine builds and its models, held against the files themselves."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import gguf
import pytest
from specagent import filecache, inventory
from specagent.config import Config, ModelEntry, RuntimeEntry
from specagent.filecache import FileCache
from specagent.inventory import Host, NoEngine, chosen_runtime, take_inventory
from specagent.models import model_info
from specagent.runtimes import RuntimeBroken, configured_runtimes, read_runtime
from speccore.errors import BuildChanged, ModelFileMissing, NoHostCanRun
from speccore.inventory import HostInventory

from tests.agent.conftest import make_spec


def cache(tmp_path: Path) -> FileCache:
    return FileCache(tmp_path / "files.json")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_machine(host: Host) -> None:
    told = host.inventory
    assert told.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert told.os["system"] == "Linux"
    assert told.os["libc"].startswith("glibc")
    assert told.n_cores >= 1
    assert told.memory_bytes > 1 << 30
    assert told.devices[0].kind == "cpu"
    assert told.devices[0].uuid.startswith("CPU-")
    assert told.default_threads() == 1  # as configured
    assert told.problems == []
    assert HostInventory.model_validate_json(told.model_dump_json()) == told


def test_it_is_the_same_each_time(config: Config, host: Host) -> None:
    again = take_inventory(config, FileCache(config.state_dir / "files.json"))
    assert again.inventory.content_hash() == host.inventory.content_hash()


def test_an_engine_build_is_its_libraries_too(host: Host, llama_server: Path) -> None:
    info = host.runtimes[0].info
    assert info.manifest["llama-server"] == sha256(llama_server)
    for name in ("libllama-server-impl.so", "libllama.so.0", "libggml-cpu.so.0", "libggml-vulkan.so.0"):
        assert info.manifest[name] == sha256(llama_server.with_name(name))
    assert not any(name.startswith(("libc.", "libstdc++", "libm.")) for name in info.manifest)
    assert info.capabilities.dialect == "spec-type"
    assert "draft-simple" in info.capabilities.spec_types
    assert info.source_commit == "7e4c0a9"
    assert info.version.endswith("(build 1, commit 7e4c0a9)")
    assert info.backend == "cpu"  # no Vulkan device here, though its library is there


def test_another_library_is_another_build(tmp_path: Path, llama_server: Path, host: Host) -> None:
    copy = tmp_path / "build"
    shutil.copytree(llama_server.parent, copy)
    runtime = read_runtime(RuntimeEntry(path=copy / "llama-server"), cache(tmp_path))
    same = runtime.info
    host.check_build(runtime)
    assert same.manifest_hash == host.runtimes[0].info.manifest_hash
    with (copy / "libggml-cpu.so.0").open("ab") as f:
        f.write(b"\0")
    other = read_runtime(RuntimeEntry(path=copy / "llama-server"), cache(tmp_path)).info
    assert other.manifest_hash != same.manifest_hash
    assert other.manifest["llama-server"] == same.manifest["llama-server"]
    with pytest.raises(BuildChanged, match="of the engine build is another one than was advertised"):
        host.check_build(runtime)


def test_a_backend_that_is_only_loaded_at_run_time_counts(tmp_path: Path, llama_server: Path) -> None:
    copy = tmp_path / "build"
    shutil.copytree(llama_server.parent, copy)
    (copy / "libggml-other.so").write_bytes(b"a backend")
    manifest = read_runtime(RuntimeEntry(path=copy / "llama-server"), cache(tmp_path)).info.manifest
    assert manifest["libggml-other.so"] == sha256(copy / "libggml-other.so")


def test_a_build_with_a_missing_library_says_which(tmp_path: Path, llama_server: Path) -> None:
    copy = tmp_path / "build"
    shutil.copytree(llama_server.parent, copy)
    for path in copy.glob("libmtmd*"):
        path.unlink()
    with pytest.raises(RuntimeBroken, match="libmtmd"):
        read_runtime(RuntimeEntry(path=copy / "llama-server"), cache(tmp_path))


def test_a_program_that_is_no_engine_is_not_offered_as_one(tmp_path: Path) -> None:
    with pytest.raises(RuntimeBroken, match="is no llama-server: its --help lists no --model and no --port"):
        read_runtime(RuntimeEntry(path=Path("/bin/true").resolve()), FileCache(tmp_path / "cache.json"))


@pytest.mark.parametrize(("content", "said"), [("#!/bin/sh\nexec llama-server\n", "is a script"), (None, "no executable file")])
def test_what_is_no_build(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "llama-server"
    if content:
        path.write_text(content)
        path.chmod(0o755)
    with pytest.raises(RuntimeBroken, match=said):
        read_runtime(RuntimeEntry(path=path), cache(tmp_path))


def test_another_program_is_no_build(tmp_path: Path) -> None:
    with pytest.raises(RuntimeBroken, match=r"/bin/false ends with 1 \(.+\) at --help"):
        read_runtime(RuntimeEntry(path=Path("/bin/false")), cache(tmp_path))


def test_builds_are_found_by_variable_and_path(monkeypatch: pytest.MonkeyPatch, llama_server: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("LLAMA_SERVER", str(llama_server))
    assert [e.path for e in configured_runtimes(Config())] == [llama_server]
    monkeypatch.delenv("LLAMA_SERVER")
    monkeypatch.setenv("PATH", str(llama_server.parent))
    assert [e.path for e in configured_runtimes(Config())] == [llama_server]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert configured_runtimes(Config()) == []


def test_models_are_read_from_their_files(host: Host, config: Config) -> None:
    target, draft = host.inventory.models
    assert target.manifest == {"target.gguf": sha256(config.models[0].path)}
    assert (target.architecture, target.quantization, target.n_layers) == ("llama", "Q8_0", 4)
    assert (target.context_length, target.vocab_size, target.n_parameters) == (2048, 2048, 3737856)
    assert not target.has_mtp
    assert target.tokenizer_hash == draft.tokenizer_hash != ""
    assert target.chat_template_hash
    assert target.manifest_hash != draft.manifest_hash


@pytest.mark.parametrize("n_heads", [0, 1])
def test_a_model_with_a_head_for_several_tokens(tmp_path: Path, n_heads: int) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "qwen35")
    writer.add_block_count(5)
    writer.add_nextn_predict_layers(n_heads)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = model_info("m", path, cache(tmp_path))
    assert (model.has_mtp, model.architecture, model.n_layers) == (n_heads > 0, "qwen35", 5)


def test_what_can_not_be_used_is_named_and_left_out(config: Config) -> None:
    broken = config.models[0].path.with_name("broken.gguf")
    broken.write_bytes(b"GGUF" + b"\0" * 40)
    not_gguf = broken.with_name("text.gguf")
    not_gguf.write_text("hello")
    models = [
        *config.models,
        ModelEntry(alias="gone", path=broken.with_name("gone.gguf")),
        ModelEntry(alias="broken", path=broken),
        ModelEntry(alias="text", path=not_gguf),
        ModelEntry(alias="target", path=broken),
    ]
    runtimes = [*config.runtimes, RuntimeEntry(path=Path("/nowhere/llama-server"))]
    changed = Config.model_validate(config.model_dump() | {"models": models, "runtimes": runtimes, "model_folders": [Path("/nowhere")]})
    told = take_inventory(changed, FileCache(config.state_dir / "files.json")).inventory
    assert [m.alias for m in told.models] == ["target", "draft"]
    assert len(told.runtimes) == 1
    for word in ("gone.gguf", "'broken'", "'text'", "twice", "model folder"):
        assert any(word in p for p in told.problems), (word, told.problems)
    (build,) = told.broken_runtimes
    assert (build.engine, build.kind, build.path) == ("llama-server", "process", "/nowhere/llama-server")
    assert build.why == "/nowhere/llama-server is no executable file"
    assert build.remedy


def test_folders_are_searched_and_split_models_are_one(tmp_path: Path, config: Config, demo_models: Path) -> None:
    folder = tmp_path / "many"
    (folder / "deep").mkdir(parents=True)
    shutil.copy(demo_models / "draft.gguf", folder / "deep" / "one.gguf")
    for n in (1, 2):
        shutil.copy(demo_models / "draft.gguf", folder / f"big-0000{n}-of-00002.gguf")
    only = Config.model_validate(config.model_dump() | {"models": [], "model_folders": [folder]})
    one, big = sorted(take_inventory(only, cache(tmp_path)).inventory.models, key=lambda m: m.alias, reverse=True)
    assert (one.alias, big.alias) == ("one", "big")
    assert sorted(big.manifest) == ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]
    assert big.size_bytes == 2 * one.size_bytes


def test_files_are_hashed_once_until_they_change(tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []
    real = filecache.file_sha256
    monkeypatch.setattr(filecache, "file_sha256", lambda path, progress: hashed.append(path) or real(path, progress))
    path = config.models[0].path
    first = cache(tmp_path)
    before = model_info("m", path, first)
    first.save()
    again = model_info("m", path, cache(tmp_path))
    assert (again, hashed) == (before, [path])
    with path.open("ab") as f:
        f.write(b"\0" * 32)
    assert model_info("m", path, cache(tmp_path)).manifest_hash != before.manifest_hash
    assert hashed == [path, path]


def test_a_model_that_changed_since_is_not_used(host: Host) -> None:
    model = host.inventory.models[0]
    assert host.model(model.manifest_hash) == model
    with Path(model.path).open("ab") as f:
        f.write(b"\0")
    with pytest.raises(ModelFileMissing, match="another one"):
        host.model(model.manifest_hash)
    with pytest.raises(ModelFileMissing, match="no model"):
        host.model("0" * 64)


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ({}, True),
        ({"version": "0.1.0-dev"}, True),
        ({"source_commit": "7e4c0a9f00ba4"}, True),
        ({"source_commit": "7e4c"}, True),
        ({"backend": "cpu"}, True),
        ({"version": "9.9"}, False),
        ({"source_commit": "abcdef0"}, False),
        ({"backend": "cuda"}, False),
        ({"manifest_hash": "0" * 64}, False),
        ({"engine": "vllm"}, False),
    ],
)
def test_the_selector_picks_a_build(host: Host, selector: dict[str, str], fits: bool) -> None:
    spec = make_spec(runtime=selector)
    if fits:
        assert chosen_runtime(spec, host.inventory.runtimes) == host.inventory.runtimes[0]
    else:
        with pytest.raises(NoHostCanRun, match="7e4c0a9"):
            chosen_runtime(spec, host.inventory.runtimes)


def test_no_build_at_all_is_the_hosts_fault() -> None:
    with pytest.raises(NoEngine):
        chosen_runtime(make_spec(), [])


def test_a_machine_without_an_id_draws_one_and_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_MACHINE_ID", tmp_path / "none")
    first = inventory._machine_uuid(tmp_path / "state")
    assert first == inventory._machine_uuid(tmp_path / "state")
    assert first != inventory._machine_uuid(tmp_path / "other")


@pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's")
@pytest.mark.parametrize(("quota", "cores"), [("max 100000", None), ("150000 100000", 1), ("50000 100000", 1)])
def test_a_cgroups_quota_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int | None) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(inventory, "_CPU_MAX", tmp_path / "cpu.max")
    told = inventory.n_usable_cores()
    assert told == cores if cores else told >= 1

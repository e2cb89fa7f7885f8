"""The same experiment as process and in a container: the same evidence, the same numbers to be had, and nothing left."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from specagent import container_start, evidence, probing
from specagent.config import Config, RuntimeEntry
from specagent.filecache import FileCache
from specagent.inventory import Host, take_inventory
from specagent.runtimes import read_runtime
from speccore import engines
from speccore.measure import measure_attempt
from speccore.measurement import Withheld

from tests.agent.conftest import Ran, make_spec
from tests.docker.conftest import TAG, Bench
from tests.docker.image import ENGINE, FAKE_VLLM, VLLM_HELP


def run(bench: Bench, host: Host, out: str) -> Ran:
    ran = Ran(host, make_spec(), bench.workload, bench.folder / out)
    assert ran.run().outcome == "completed"
    return ran


#: Need looks of the sampler half a second apart, which a quick machine does not leave time for.
NEED_TIME = {"cpu_percent_mean", "others_busy_percent"}
#: Why a number is withheld by the speed of the moment: arrivals that a busy machine read together, an answer that a quick one gave at once.
BUSY = {"client_late", "one_arrival", "queued", "tokens_batched", "too_short"}


def had(value: Any, name: str = "") -> dict[str, str]:
    """Each field with whether something stands in it, or why its number is withheld; without the values, of lists the first."""
    if isinstance(value, Mapping) and "withheld" in value:
        return {name: "something" if value["reason_code"] in BUSY else f"withheld: {value['reason_code']}"}
    if isinstance(value, Mapping) and not {"source", "value"} <= set(value):
        return {k: v for key in value if key not in NEED_TIME for k, v in had(value[key], f"{name}.{key}").items()}
    if isinstance(value, list):
        return had(value[0], f"{name}[]") if value else {name: "empty"}
    return {name: "nothing" if value is None else "something"}


def test_as_a_process_and_in_a_container_it_leaves_the_same_evidence_and_the_same_numbers(bench: Bench, llama_server: Path) -> None:
    config = bench.config()
    as_process = Config(**{**config.model_dump(), "runtimes": [RuntimeEntry(path=llama_server)], "state_dir": bench.folder / "state-2"})
    runs = {
        "container": run(bench, bench.host(), "in-a-container"),
        "process": run(bench, take_inventory(as_process, FileCache(as_process.state_dir / "files.json")), "as-a-process"),
    }
    assert bench.left() == []
    files: dict[str, dict[str, set[str]]] = {}
    fields: dict[str, dict[str, dict[str, str]]] = {}
    answers: dict[str, dict[str, list[str]]] = {}
    for kind, ran in runs.items():
        for report, folder in ran.sink.done:
            trial, found = report.trial, evidence.read(folder)
            assert report.outcome == "ok", report.error
            files.setdefault(trial, {})[kind] = set(found)
            measured = measure_attempt(found, ran.offer.spec, ran.workloads)
            fields.setdefault(trial, {})[kind] = had(measured.model_dump(mode="json"))
            records = [json.loads(line) for line in found["records.jsonl"].splitlines()]
            answers.setdefault(trial, {})[kind] = [r["ids_sha256"] for r in records]
            launch = json.loads(found["launch.json"])
            assert launch["kind"] == kind
            samples = [json.loads(line) for line in found["samples.jsonl"].splitlines()]
            assert max(s.get("rss_bytes") or 0 for s in samples) > 4 << 20, "its memory was seen"
            assert any(s.get("pss_bytes") for s in samples)
            assert not isinstance(measured.peak_memory_bytes, Withheld)
    assert len(files) == 2
    for trial in files:
        assert files[trial]["container"] == files[trial]["process"]
        assert set(fields[trial]["container"].items()) ^ set(fields[trial]["process"].items()) == set()
        assert answers[trial]["container"] == answers[trial]["process"], "the same build answers the same"


def test_the_evidence_tells_how_the_container_was_held(bench: Bench) -> None:
    ran = run(bench, bench.host(cpus="0", memory_mib=900, pids=300), "out")
    _, folder = next((r, f) for r, f in ran.sink.done if "draft" in r.trial)
    launch = json.loads((folder / "launch.json").read_text())
    told = launch["container"]
    assert launch["argv"][0] == ENGINE
    assert "/models/target/target.gguf" in launch["argv"]
    assert "/models/draft/draft.gguf" in launch["argv"]
    assert [m["target"] for m in told["mounts"]] == ["/models/target/target.gguf", "/models/draft/draft.gguf"]
    assert all(m["read_only"] for m in told["mounts"])
    assert told["image"] == told["image_id"] == bench.image
    assert told["limits"]["memory_bytes"] == 900 << 20
    assert (told["limits"]["cpus"], told["limits"]["pids"]) == ("0", 300)
    assert (told["user"], told["cap_drop"], told["read_only_root"]) == ("65534:65534", ["ALL"], True)
    assert told["network"]["internal"] is True
    assert told["network"]["host_services"] == "closed"
    assert (told["exit_code"], told["oom_killed"]) == (0, False)
    assert (launch["exit_code"], launch["stopped_by"]) == (0, "agent")
    assert launch["host"] == told["address"]
    assert "specweb.attempt" not in json.dumps(launch["env"])


def test_where_its_processes_can_not_be_seen_its_memory_comes_from_the_container_engine(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_start, "seen_pid", lambda *_: 0)
    spec = make_spec(points=[{"workload": "numbers", "max_tokens": 400, "probes": 10}])
    ran = Ran(bench.host(), spec, bench.workload, bench.folder / "out")
    assert ran.run().outcome == "completed"
    _, folder = ran.sink.done[0]
    told = json.loads((folder / "launch.json").read_text())["container"]
    assert "statistics" in told["memory_from"]
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    assert max(s.get("rss_bytes") or 0 for s in samples) > 4 << 20
    assert not any(s.get("pss_bytes") or s.get("others_cpu_percent") for s in samples), "what can't be seen is not told"


def test_a_baseline_gets_no_file_of_the_helper(bench: Bench) -> None:
    ran = run(bench, bench.host(), "out")
    _, folder = next((r, f) for r, f in ran.sink.done if r.trial.endswith("off"))
    told = json.loads((folder / "launch.json").read_text())["container"]
    assert [m["target"] for m in told["mounts"]] == ["/models/target/target.gguf"]


def test_an_image_is_identified_by_its_digest_and_asked_what_it_can_do(bench: Bench) -> None:
    (runtime,) = bench.host().runtimes
    info = runtime.info
    assert (info.kind, info.image, info.executable, info.backend) == ("container", bench.image, ENGINE, "cpu")
    assert info.manifest == {f"image:{ENGINE}": bench.image.removeprefix("sha256:")}
    assert info.source_commit == "7e4c0a9"
    assert "draft-simple" in info.capabilities.spec_types
    assert bench.left() == [], "nothing is left of asking"


def test_vllm_in_an_image_is_asked_in_its_own_way(bench: Bench) -> None:
    (entry,) = bench.config(path=FAKE_VLLM, engine="vllm").runtimes
    info = read_runtime(entry, FileCache(bench.folder / "files.json")).info
    assert (info.engine, info.kind, info.version, info.backend) == ("vllm", "container", "0.32.0+cpu", "cpu")
    assert info.capabilities == engines.engine("vllm").capabilities(VLLM_HELP.read_text())
    assert info.manifest == {f"image:{FAKE_VLLM}": bench.image.removeprefix("sha256:")}


@pytest.mark.parametrize(
    ("named", "path", "why", "remedy"),
    [
        (TAG, "", "a tag may mean another one tomorrow", "image: sha256:"),
        ("specweb-test/llama-server:other", "", "there is none of that tag here", "docker pull specweb-test/llama-server:other"),
        ("sha256:" + "0" * 64, "", "is here", "docker load"),
        ("ghcr.io/x/y@sha256:" + "0" * 64, "", "nothing is pulled on its own", "docker pull ghcr.io/x/y@sha256:"),
        ("", "/bin/cat", "is no llama-server|ends with 1", "path"),
        ("", "/nowhere/llama-server", "can't be started", "path"),
    ],
)
def test_an_image_that_can_not_be_used_says_why_and_what_to_do(bench: Bench, named: str, path: str, why: str, remedy: str) -> None:
    (entry,) = bench.config(named, path=path).runtimes
    with pytest.raises(probing.RuntimeBroken, match=why) as broken:
        read_runtime(entry, FileCache(bench.folder / "files.json"))
    assert remedy in broken.value.remedy
    assert bench.left() == []
    assert bench.host(named, path=path).runtimes == []


def test_the_tags_remedy_is_what_can_be_written_instead(bench: Bench) -> None:
    (entry,) = bench.config(TAG).runtimes
    with pytest.raises(probing.RuntimeBroken) as broken:
        read_runtime(entry, FileCache(bench.folder / "files.json"))
    assert bench.host(broken.value.remedy.rpartition(" ")[2]).runtimes

"""Servers that somebody else started: measured as they stand, marked as not restarted, never stopped, never taken by accident."""

from __future__ import annotations

import http.server
import json
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from specagent import attached, evidence, local, runner
from specagent.config import Config, ConfigInvalid, ModelEntry, RuntimeEntry, load_config
from specagent.filecache import FileCache
from specagent.inventory import Host, take_inventory
from specagent.ready import free_port
from specagent.report import Told, markdown
from speccore import integrity, measure, records, table
from speccore.errors import NoHostCanRun, PlanDiffers, SpecError
from speccore.measurement import ComparisonResult, Withheld
from speccore.plan import plan_faults
from speccore.selfrun import JOB, RUN, RunIndex
from speccore.spec import ExperimentSpec, parse_spec
from speccore.workload import Workload

from tests.agent.commands import SMALL
from tests.agent.conftest import Ran, make_spec

ATTACHED = {"runtime": {"attached": True}, "blocks": 3, "points": [{"workload": "numbers", "max_tokens": 64, "probes": 2}]}
SPECULATES = ("--spec-type", "draft-simple", "--spec-draft-n-max", "3")


class Standing:
    """A llama-server that this test started as somebody would, outside of the agent."""

    def __init__(self, program: Path, model: Path, *more: str, port: int = 0) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [str(program), "--model", str(model), "--port", str(self.port), "--ctx-size", "512", "--parallel", "1", *more]
        flags = ["--threads", "1", "--metrics", "--no-webui"]
        self.process = subprocess.Popen([*command, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not self._is_healthy():
            assert time.monotonic() < deadline, "the server did not become healthy"
            assert self.process.poll() is None, "the server ended"
            time.sleep(0.05)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


@pytest.fixture(scope="module")
def servers(llama_server: Path, demo_models: Path) -> Iterator[dict[str, Standing]]:
    """One without speculation, one with the draft model."""
    target, draft = demo_models / "target.gguf", demo_models / "draft.gguf"
    standing = {"off": Standing(llama_server, target)}
    try:
        standing["draft-3"] = Standing(llama_server, target, "--spec-draft-model", str(draft), *SPECULATES)
        yield standing
    finally:
        for server in standing.values():
            server.stop()


def on(servers: dict[str, str], tmp_path: Path, demo_models: Path | None = None, **more: object) -> Host:
    models = [ModelEntry(alias="target", path=demo_models / "target.gguf")] if demo_models else []
    config = Config(state_dir=tmp_path / "state", runtimes=[RuntimeEntry(servers=servers)], models=models, threads=1, **more)
    return take_inventory(config, FileCache(tmp_path / "files.json"))


def urls(servers: dict[str, Standing]) -> dict[str, str]:
    return {arm: server.url for arm, server in servers.items()}


@pytest.fixture(scope="module")
def measured(
    servers: dict[str, Standing], demo_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Ran, ComparisonResult, list[int]]:
    """A run on the two servers, what it found, and the processes that they were before it."""
    folder = tmp_path_factory.mktemp("attached")
    pids = [s.process.pid for s in servers.values()]
    items = [{"id": f"n{a}", "prompt": f"Count from {a} to {a + 79}:\n{a}\n{a + 1}\n"} for a in range(10, 30)]
    workload = Workload.model_validate({"name": "numbers", "version": 1, "title": "Numbers", "items": items[4:], "warmup": items[:4]})
    ran = Ran(on(urls(servers), folder, demo_models), make_spec(**ATTACHED), workload, folder / "out")
    assert ran.run().outcome == "completed", [r.error for r, _ in ran.sink.done]
    analysis = local.analyse(ran.offer, ran.workloads, ran.sink)
    return ran, analysis.comparisons[0], pids


def test_its_servers_are_asked_and_stand_on(measured: tuple[Ran, ComparisonResult, list[int]], servers: dict[str, Standing]) -> None:
    ran, found, pids = measured
    assert [s.process.poll() for s in servers.values()] == [None, None]
    assert [s.process.pid for s in servers.values()] == pids
    assert [r.trial for r, _ in ran.sink.done] == [t.id for t in ran.offer.plan.trials]  # arms interleave as ever
    assert len(found.block_values) == 3 or found.n_pairs_dropped  # on a busy machine an answer may come in one piece
    assert found.drafted_per_cycle.value > 0
    assert ran.host.engine_records is None or not list(ran.host.engine_records.glob("*"))


def test_its_evidence_tells_an_address_and_no_process(
    measured: tuple[Ran, ComparisonResult, list[int]], servers: dict[str, Standing]
) -> None:
    ran, _, _ = measured
    for report, folder in ran.sink.done:
        launch = records.Launch.model_validate_json((folder / records.LAUNCH).read_text())
        arm = ran.offer.plan.trials[[t.id for t in ran.offer.plan.trials].index(report.trial)].arm
        assert (launch.kind, launch.pid, launch.stopped_by, launch.port) == ("attached", 0, "", servers[arm].port)
        assert launch.argv == ["attached", servers[arm].url]
        samples = [json.loads(line) for line in (folder / records.SAMPLES).read_text().splitlines()]
        assert samples
        assert all(s.get("rss_bytes") is None and s.get("pss_bytes") is None and s.get("others_cpu_percent") is None for s in samples)


def test_its_comparison_says_that_nothing_was_restarted_and_what_nobody_could_check(
    measured: tuple[Ran, ComparisonResult, list[int]],
) -> None:
    _, found, _ = measured
    checks = {c.name: c for c in found.checks}
    assert found.not_restarted
    assert "not restarted" in found.verdict.sentence
    assert (checks["restarted"].state, checks["restarted"].kind) == ("failed", "soft")
    for what in ("hashes of its program and model files", "command it was started with", "memory", "settings it does not report"):
        assert what in checks["restarted"].sentence
    assert checks["same comparison key"].state == "not checked"
    assert "command" in checks["same comparison key"].sentence
    assert checks["another process on the device"].state == "not checked"
    assert checks["no cache hits"].state == "passed"
    assert isinstance(found.memory_bill_bytes, Withheld)
    assert "memory of a server that somebody else started" in found.memory_bill_bytes.withheld
    assert found.context_lost_tokens == 0


def test_its_report_and_its_json_say_so_too(measured: tuple[Ran, ComparisonResult, list[int]]) -> None:
    ran, found, _ = measured
    assert table.cells(found)[-1].endswith(" · not restarted")
    (answer,) = local.analyse(ran.offer, ran.workloads, ran.sink).answers
    assert answer["not_restarted"]
    assert "not restarted" in answer["sentence"]


def test_its_report_tells_of_no_start_and_of_no_command(measured: tuple[Ran, ComparisonResult, list[int]], tmp_path: Path) -> None:
    ran, _, _ = measured
    reports = [r for r, _ in ran.sink.done]
    assert ran.finished is not None
    then = {"started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:01:00Z"}
    index = RunIndex.model_validate({"job_id": ran.offer.job_id, "outcome": "completed", **then, "documents": {}, "attempts": []})
    for name in (RUN, JOB):
        (tmp_path / name).write_text("{}")
    analysis = local.analyse(ran.offer, ran.workloads, ran.sink)
    done = local.LocalRun(ran.offer, ran.finished, analysis, reports, 3)
    text = markdown(Told(done, index, ran.host, tmp_path), analysis)
    assert "each block asks the 2 servers that stand for its arms, none of them restarted, in a drawn" in text
    assert "2 requests in each trial" in text
    assert "Commands: not known; the servers stood already" in text
    assert "under `servers` one server for each arm" in text
    for wrong in ("starts the server", "in each start", "{server}", "```sh"):
        assert wrong not in text


def test_servers_of_two_builds_are_no_pair(measured: tuple[Ran, ComparisonResult, list[int]]) -> None:
    ran, _, _ = measured
    told = {}
    for report, folder in ran.sink.done[:2]:
        files = evidence.read(folder)
        launch = json.loads(files[records.LAUNCH])
        launch["props"]["build_info"] = f"b{len(told)}"
        files[records.LAUNCH] = json.dumps(launch).encode()
        told[report.trial] = measure.measure_attempt(files, ran.offer.spec, ran.workloads).pair_fields
    check = integrity.same_key(told)
    assert (check.state, check.kind) == ("failed", "hard")
    assert "what the server says of itself: build b0 in" in check.sentence


def test_the_command_that_the_server_offers_is_the_one_that_is_found_here(
    servers: dict[str, Standing], tmp_path: Path, demo_models: Path, workload: Workload
) -> None:
    host, workloads = on(urls(servers), tmp_path, demo_models), {"numbers": workload}
    offer = local.make_offer(make_spec(**ATTACHED), host, workloads)
    same = offer.model_copy(update={"commands": {arm: ["attached", "{server}"] for arm in servers}})
    assert runner.prepare(same, workloads, host).runtime.info.kind == "attached"
    with pytest.raises(PlanDiffers):
        runner.prepare(offer.model_copy(update={"commands": {"off": ["llama-server"]}}), workloads, host)


def test_what_its_servers_serve_can_be_asked_for_without_a_file(servers: dict[str, Standing], tmp_path: Path, workload: Workload) -> None:
    host = on(urls(servers), tmp_path)
    (model,) = host.inventory.models
    assert (model.alias, model.format, model.manifest) == ("target.gguf", "served", {})
    ran = Ran(host, make_spec(**ATTACHED | {"target": {"model": "target.gguf"}, "blocks": 1}), workload, tmp_path / "out")
    assert ran.run().outcome == "completed", [r.error for r, _ in ran.sink.done]


def test_it_is_taken_only_by_an_experiment_that_says_so(
    servers: dict[str, Standing], tmp_path: Path, demo_models: Path, host: Host
) -> None:
    standing = on(urls(servers), tmp_path, demo_models)
    with pytest.raises(NoHostCanRun, match="no engine build on this host fits"):
        local.chosen_runtime(make_spec(), standing.inventory.runtimes)
    with pytest.raises(NoHostCanRun, match="'attached': True"):
        local.chosen_runtime(make_spec(**ATTACHED), host.inventory.runtimes)
    both = [*standing.inventory.runtimes, *host.inventory.runtimes]
    assert local.chosen_runtime(make_spec(), both).kind == "process"
    assert local.chosen_runtime(make_spec(**ATTACHED), both).kind == "attached"


def test_an_arm_without_a_server_of_its_name_is_refused(
    servers: dict[str, Standing], tmp_path: Path, demo_models: Path, workload: Workload
) -> None:
    host = on({"off": servers["off"].url}, tmp_path, demo_models)
    with pytest.raises(SpecError, match="arm 'draft-3': no server of this attached runtime stands for it; servers are there for off"):
        local.make_offer(make_spec(**ATTACHED), host, {"numbers": workload})


def test_another_context_than_it_has_is_no_result(
    servers: dict[str, Standing], tmp_path: Path, demo_models: Path, workload: Workload
) -> None:
    host = on(urls(servers), tmp_path, demo_models)
    spec = make_spec(**ATTACHED | {"engine": {"context": 1024, "start_timeout_s": 30, "probe_timeout_s": 20}, "blocks": 1})
    ran = Ran(host, spec, workload, tmp_path / "out")
    ran.run()
    assert {r.error.code for r, _ in ran.sink.done if r.error} == {"engine_loaded_other"}
    assert all("512 tokens of context to a slot, asked for were 1024" in r.error.message for r, _ in ran.sink.done if r.error)


def test_a_server_that_is_gone_or_was_replaced_is_told(llama_server: Path, demo_models: Path, tmp_path: Path, workload: Workload) -> None:
    first = Standing(llama_server, demo_models / "target.gguf")
    host = on({"off": first.url, "draft-3": first.url}, tmp_path, demo_models)
    first.stop()
    spec = make_spec(**ATTACHED | {"blocks": 1})
    gone = Ran(host, spec, workload, tmp_path / "gone")
    gone.run()
    assert {r.error.code for r, _ in gone.sink.done} == {"engine_not_healthy"}
    assert all("can't be reached" in r.error.message and first.url in r.error.message for r, _ in gone.sink.done)
    second = Standing(llama_server, demo_models / "draft.gguf", port=first.port)
    try:
        replaced = Ran(host, spec, workload, tmp_path / "replaced")
        replaced.run()
    finally:
        second.stop()
    assert {r.error.code for r, _ in replaced.sink.done} == {"build_changed"}
    assert all("says something else of itself than when it was advertised" in r.error.message for r, _ in replaced.sink.done)


def test_nobody_there_is_a_runtime_that_can_not_be_used(tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{s.getsockname()[1]}"
        host = on({"off": url}, tmp_path)
    assert host.inventory.runtimes == []
    assert f"the server of 'off', {url}, can't be reached" in " ".join(
        [*host.inventory.problems, *(b.why for b in host.inventory.broken_runtimes)]
    )


def test_an_arm_called_off_needs_no_quotes(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("runtimes: [{servers: {off: 'http://127.0.0.1:8080'}}]")
    assert load_config(file).runtimes[0].servers == {"off": "http://127.0.0.1:8080"}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://127.0.0.1:8080", "is no http://HOST:PORT"),
        ("https://example.org", "is https: timed requests go over plain http"),
        ("http://user:secret@127.0.0.1:8080", "holds more than http://HOST:PORT"),
        ("http://127.0.0.1:8080/v1", "holds more than http://HOST:PORT"),
        ("http://127.0.0.1:99999", "is none"),
        ("127.0.0.1:8080", "is no http://HOST:PORT"),
    ],
)
def test_addresses_that_can_not_be_asked_are_refused_in_the_configuration(url: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(json.dumps({"runtimes": [{"servers": {"off": url}}]}))
    with pytest.raises(ConfigInvalid) as caught:
        load_config(file)
    assert "runtimes.0.servers" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"arms": [{"name": "off", "mode": "off"}, {"name": "mod", "mode": "ngram-mod"}]}, "arms.1.mode", "remembers earlier requests"),
        ({"engine": {"extra": {"--override-tensor": "x=CPU"}}}, "engine.extra.--override-tensor", "stands already"),
        ({"fit": True}, "fit", "never started"),
    ],
)
def test_what_needs_a_start_is_refused_before_anything_runs(
    changes: dict[str, object], field: str, said: str, workload: Workload, spec_with: Callable[..., ExperimentSpec]
) -> None:
    spec, problems = parse_spec(SMALL | ATTACHED | changes)
    assert spec is not None, problems
    (fault,) = plan_faults(spec, {"numbers": workload})
    body = fault.body()
    assert body.details["field"] == field
    assert said in body.message
    assert body.remedy


class Other(http.server.BaseHTTPRequestHandler):
    """fake: vLLM as it answers what it is asked about itself; with ``key``, only to who has one."""

    key = False

    def do_GET(self) -> None:
        models = {"object": "list", "data": [{"id": "m", "root": "/models/m", "max_model_len": 512, "created": time.time_ns()}]}
        said = {"/version": {"version": "0.32.0"}, "/v1/models": models}.get(self.path)
        body = json.dumps(said).encode()
        self.send_response(401 if self.key else 200 if said else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other() -> Iterator[Callable[..., str]]:
    started = []

    def serve(**more: object) -> str:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Other,), more))
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield serve
    for server in started:
        server.shutdown()
        server.server_close()


def test_vllm_is_known_by_what_it_says_and_by_nothing_that_passes(other: Callable[..., str]) -> None:
    entry = RuntimeEntry(engine="vllm", servers={"off": other(), "ngram": other()})
    one, again = attached.look(entry), attached.look(entry)
    assert (one.info.engine, one.info.version, one.info.kind) == ("vllm", "0.32.0", "attached")
    assert [(m.alias, m.path) for m in one.models] == [("m", "/models/m")]
    assert one.info.manifest_hash == again.info.manifest_hash  # when a model was listed is none of its identity
    assert set(one.info.manifest) == {"off", "ngram"}
    assert "by no file" in one.info.oddities[0]


def test_a_server_that_wants_a_key_is_told(other: Callable[..., str]) -> None:
    with pytest.raises(attached.NotSeen, match=r"the server of 'off', .*/v1/models, wants a key \(401\), and none can be given"):
        attached.look(RuntimeEntry(engine="vllm", servers={"off": other(key=True)}))


def test_servers_that_differ_or_are_far_are_odd() -> None:
    near, far = {"off": "http://127.0.0.1:1"}, {"off": "http://10.0.0.7:8080", "b": "http://localhost:1"}
    assert len(attached.oddities(near, ["b1"], ["m"])) == 1
    said = " | ".join(attached.oddities(far, ["b1", "b2"], ["m", "n"]))
    assert "different builds: b1, b2" in said
    assert "different models: m, n" in said
    assert "not on this machine: http://10.0.0.7:8080; the network between is part of every time" in said

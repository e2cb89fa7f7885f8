"""``probe`` and ``compare`` as a person meets them: real engines with speculation and without, and servers of every other kind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from speccore.measurement import Number, Withheld
from speccore.records import StreamRecord
from speccore.survey import Survey

from tests.agent.test_cli import call, command
from tests.replay.scripted import ReplayServer, Script


@contextmanager
def engine(llama_server: Path, models: Path, *flags: str) -> Iterator[str]:
    """A llama-server as somebody would start it by hand."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = [llama_server, "-m", models / "target.gguf", "--port", port, "-c", "2048", "-np", "4", "-t", "1", "--no-ui", *flags]
    env = os.environ | {"LD_LIBRARY_PATH": str(llama_server.parent)}
    process = subprocess.Popen(list(map(str, line)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"{url}/health", timeout=1)
                break
            except OSError:
                time.sleep(0.05)
        yield url
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def off(llama_server: Path, demo_models: Path) -> Iterator[str]:
    with engine(llama_server, demo_models, "--metrics") as url:
        yield url


@pytest.fixture(scope="module")
def drafting(llama_server: Path, demo_models: Path) -> Iterator[str]:
    flags = ("--metrics", "--spec-type", "draft-simple", "--spec-draft-model", str(demo_models / "draft.gguf"), "--spec-draft-n-max", "4")
    with engine(llama_server, demo_models, *flags) as url:
        yield url


def probe(url: str, out: Path, *options: object) -> tuple[Survey, str]:
    ran = call("probe", url, "--max-tokens", 24, "--json", out, *options)
    assert ran.returncode == 0, ran.stderr
    return Survey.model_validate_json(out.read_bytes()), ran.stdout


def number(value: Any) -> float:
    assert isinstance(value, Number), value
    return value.value


class TestRealEngines:
    def test_without_speculation(self, off: str, tmp_path: Path) -> None:
        found, said = probe(off, tmp_path / "a.json", "--workload", "count", "--n", 4)
        (cell,) = found.cells
        assert (found.server.engine, found.server.api, found.server.slots) == ("llama-server", "llama", 4)
        assert (cell.n, cell.n_ok, cell.workload) == (4, 4, "count@2")
        assert cell.numbers["completion_tokens"].median == 24
        assert cell.numbers["ttft_any_s"].n == 4
        assert number(cell.pooled["tokens_per_target_pass"]) == 1
        assert isinstance(cell.pooled["acceptance_rate"], Withheld)
        assert cell.client.stamps == "kernel"
        assert "speculation seems off" in said
        assert "not had:\n  accepted share: metrics missing: the engine reported no draft counts" in said

    @pytest.mark.parametrize("api", ["llama", "chat", "completions"])
    def test_with_a_draft_model_by_every_interface(self, drafting: str, tmp_path: Path, api: str) -> None:
        """The counts are the engine's own: what /metrics gained meanwhile, warm-up and first question included, is no less."""
        before = counter(drafting)
        found, said = probe(drafting, tmp_path / "a.json", "--workload", "count", "--n", 4, "--api", api)
        gained = counter(drafting) - before
        (cell,) = found.cells
        rate, length = number(cell.pooled["acceptance_rate"]), number(cell.pooled["mean_acceptance_length"])
        assert 0.5 < rate <= 1
        assert length == pytest.approx(1 + rate * number(cell.pooled["drafted_per_cycle"]))
        assert number(cell.pooled["tokens_per_target_pass"]) > 1.5
        assert number(cell.pooled["cycle_ms"]) > 0
        assert "speculation seems off" not in said
        assert gained > 0

    def test_several_at_once_with_records(self, drafting: str, tmp_path: Path) -> None:
        records = tmp_path / "r.jsonl"
        found, _ = probe(drafting, tmp_path / "a.json", "--workload", "free-text", "--concurrency", "1,4", "--records", records)
        one, four = found.cells
        assert (one.concurrency, one.n, four.concurrency, four.n) == (1, 12, 4, 16)
        assert four.client.observed_concurrency is not None
        assert four.client.observed_concurrency > 3
        kept = [StreamRecord.model_validate_json(line) for line in records.read_text().splitlines()]
        assert len(kept) == 28
        assert len({r.item for r in kept}) == 28  # no prompt comes twice
        assert not any("#" in r.item for r in kept)
        line = one.pooled["acceptance_rate"]
        assert isinstance(line, Number)

    def test_the_same_options_ask_the_same_prompts(self, off: str, drafting: str, tmp_path: Path) -> None:
        options = ("--workload", "python-code", "--n", 5)
        a, _ = probe(off, tmp_path / "a.json", *options)
        b, _ = probe(drafting, tmp_path / "b.json", *options)
        assert a.cells[0].values["ttft_any_s"].keys() == b.cells[0].values["ttft_any_s"].keys()
        for line in (("probe", "--compare"), ("compare",)):
            ran = call(*line, tmp_path / "a.json", tmp_path / "b.json")
            assert ran.returncode == 0, ran.stderr
            assert "python-code@2" in ran.stdout
            assert "This is no verdict" in ran.stdout
            assert "keep" not in ran.stdout

    def test_other_prompts_are_not_compared(self, off: str, tmp_path: Path) -> None:
        probe(off, tmp_path / "a.json", "--workload", "count", "--n", 3)
        probe(off, tmp_path / "b.json", "--workload", "free-text", "--n", 3, "--temperature", "0.5")
        ran = call("compare", tmp_path / "a.json", tmp_path / "b.json")
        assert ran.returncode == 2
        assert "workloads: count@2" in ran.stderr
        assert "temperature: 0.0 and 0.5" in ran.stderr

    def test_more_requests_than_prompts_is_said(self, off: str, tmp_path: Path) -> None:
        found, said = probe(off, tmp_path / "a.json", "--workload", "free-text@1", "--n", 30)
        assert "some came twice" in said
        assert len(found.cells[0].values["ttft_any_s"]) == 30

    def test_a_preset_names_the_prompts(self, off: str, tmp_path: Path) -> None:
        found, _ = probe(off, tmp_path / "a.json", "--preset", "noise-floor", "--n", 3)
        assert [c.workload for c in found.cells] == ["python-code@2"]

    def test_a_signal_ends_it_and_keeps_what_is_whole(self, off: str, tmp_path: Path) -> None:
        line = command("probe", off, "--workload", "count", "--workload", "free-text", "--n", 2000, "--max-tokens", 200)
        before = counter(off, "llamacpp:tokens_predicted_total")
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while counter(off, "llamacpp:tokens_predicted_total") == before:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "stopped" in said

    def test_a_server_without_metrics_is_measured_all_the_same(self, llama_server: Path, demo_models: Path, tmp_path: Path) -> None:
        with engine(llama_server, demo_models) as url:
            found, said = probe(url, tmp_path / "a.json", "--workload", "count", "--n", 3)
        assert found.cells[0].n_ok == 3
        assert "/metrics answered" in said


def counter(url: str, name: str = "llamacpp:spec_decode_num_draft_tokens_total") -> float:
    said = urllib.request.urlopen(f"{url}/metrics", timeout=5).read().decode()
    return next(float(line.split()[-1]) for line in said.splitlines() if line.startswith(name))


class FakeVllm:
    """Answers as vLLM does, as far as probe asks: no vLLM runs in these tests. ``speculates``: its counters grow with each answer."""

    def __init__(self, *, speculates: bool = True, refuses: str = "", others: int = 0) -> None:
        self.speculates, self.refuses, self.others = speculates, refuses, others
        self.n_answers = 0

    def __call__(self, path: str, body: Any) -> Script:
        if path == "/version":
            return reply({"version": "0.32.0"})
        if path == "/v1/models":
            return reply({"object": "list", "data": [{"id": "small"}]})
        if path == "/metrics":
            return text(self.metrics())
        if path == "/v1/chat/completions":
            return self.stream(body)
        return reply({"detail": "Not Found"}, 404)

    def metrics(self) -> str:
        lines = [f'vllm:generation_tokens_total{{engine="0"}} {10.0 * self.n_answers + self.others * self.n_answers}']
        if self.speculates:
            lines += [
                f'vllm:spec_decode_num_drafts_total{{engine="0"}} {4.0 * self.n_answers}',
                f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {12.0 * self.n_answers}',
                f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {6.0 * self.n_answers}',
                *(
                    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{i}"}} {n * self.n_answers}'
                    for i, n in enumerate((3.0, 2.0, 1.0))
                ),
            ]
        return "\n".join(lines) + "\n"

    def stream(self, body: Any) -> Script:
        if self.refuses and self.refuses in body:
            return reply({"error": {"message": f"{self.refuses} is not known"}}, 400)
        self.n_answers += 1
        events: list[dict[str, Any]] = []
        for n in range(1, 6):  # two tokens an event
            event: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": "ab"}, "finish_reason": None}]}
            if body.get("return_token_ids"):
                event["choices"][0]["token_ids"] = [2 * n, 2 * n + 1]
            events.append(event)
        events[-1]["choices"][0]["finish_reason"] = "length"
        if body.get("stream_options"):
            events.append({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 10}})
        pieces = [f"data: {json.dumps(e)}\n\n" for e in events] + ["data: [DONE]\n\n"]
        return Script([(5.0 * (i + 1), p.encode()) for i, p in enumerate(pieces)])


def reply(data: Any, status: int = 200) -> Script:
    return Script([(0.0, json.dumps(data).encode())], status=status, headers={"Content-Type": "application/json"})


def text(body: str, status: int = 200, kind: str = "text/plain") -> Script:
    return Script([(0.0, body.encode())], status=status, headers={"Content-Type": kind})


Run = Callable[..., tuple[int, str, str, Survey | None]]


@pytest.fixture
def run(tell: Callable[..., tuple[int, str, str]], tmp_path: Path) -> Run:
    def probe_at(choose: Callable[[str, Any], Script], *options: object) -> tuple[int, str, str, Survey | None]:
        out = tmp_path / "s.json"
        with ReplayServer(choose) as server:
            told = tell("probe", f"http://127.0.0.1:{server.port}", "--workload", "count", "--n", 4, "--json", out, *options)
        return *told, Survey.model_validate_json(out.read_bytes()) if out.exists() else None

    return probe_at


class TestOtherServers:
    def test_vllm_by_its_counters(self, run: Run) -> None:
        code, said, err, found = run(FakeVllm())
        assert code == 0, err
        assert found is not None
        (cell,) = found.cells
        assert (found.server.engine, found.server.version, found.server.model, found.server.api) == ("vllm", "0.32.0", "small", "chat")
        assert cell.numbers["completion_tokens"].median == 10  # tokens, not events
        assert number(cell.pooled["acceptance_rate"]) == 6 / 12
        assert number(cell.pooled["mean_acceptance_length"]) == 1 + 6 / 4
        assert cell.accepted_by_position == [3 / 4, 2 / 4, 1 / 4]
        assert isinstance(cell.pooled["cycle_ms"], Withheld)
        assert "tokens per target pass:" in said.split("not had:")[1]
        assert found.settings.salt == "text"

    def test_vllm_without_speculation(self, run: Run) -> None:
        _, said, _, _ = run(FakeVllm(speculates=False))
        assert "speculation seems off: vLLM has no counters for it" in said

    def test_somebody_else_on_the_server(self, run: Run) -> None:
        """Counters that grew by more than our requests tell nothing of ours."""
        _, said, _, found = run(FakeVllm(others=3))
        assert "somebody else asks it too" in said
        assert found is not None
        assert isinstance(found.cells[0].pooled["acceptance_rate"], Withheld)

    def test_options_that_a_server_refuses_are_left_out(self, run: Run) -> None:
        """Without ids and running counts nobody can say which event bore how many tokens, so no speed is told."""
        code, said, _, found = run(FakeVllm(refuses="return_token_ids"))
        assert code == 0
        assert found is not None
        assert "the server refuses stream_options, return_token_ids" in said
        assert isinstance(found.cells[0].numbers["decode_tokens_per_s"], Withheld)
        assert isinstance(found.cells[0].numbers["ttft_any_s"].median, float)

    def test_a_server_of_no_known_kind(self, run: Run) -> None:
        vllm = FakeVllm()

        def choose(path: str, body: Any) -> Script:
            return reply({}, 404) if path in ("/version", "/metrics") else vllm(path, body)

        code, said, _, found = run(choose)
        assert code == 0
        assert found is not None
        assert found.server.engine == "unknown"
        assert "whether speculation is on can't be told" in said

    @pytest.mark.parametrize(
        ("answers", "options", "code", "said"),
        [
            ({"*": reply({"error": "no"}, 401)}, (), 2, ["answered 401", "--api-key-env"]),
            ({"*": reply({}, 404)}, (), 3, ["neither /props nor /v1/models says what it serves", "--model"]),
            ({"/v1/models": reply({"data": [{"id": "a"}, {"id": "b"}]})}, (), 2, ["several models are served here: a, b", "--model"]),
            ({"/v1/models": reply({"data": [{"id": "a"}]})}, ("--model", "c"), 2, ["--model 'c' is not served here; served: a"]),
            ({"/v1/models": reply({"data": [{"id": "a"}]})}, ("--api", "llama"), 2, ["is no llama-server"]),
            ({"/props": reply({"role": "router"})}, (), 2, ["without a model (router mode)"]),
            (
                {"/v1/models": reply({"data": [{"id": "a"}]}), "/v1/chat/completions": reply({"error": {"message": "no such model"}}, 404)},
                (),
                2,
                ["no such model", "/v1/models lists"],
            ),
            (
                {"/v1/models": reply({"data": [{"id": "a"}]}), "/v1/chat/completions": reply({"choices": []})},
                (),
                3,
                ["no event stream but application/json"],
            ),
            (
                {"/v1/models": reply({"data": [{"id": "a"}]}), "/v1/chat/completions": reply({"error": "too long"}, 400)},
                (),
                2,
                ["HTTP 400", "too long", "--max-tokens"],
            ),
            (
                {"/v1/models": reply({"data": [{"id": "a"}]}), "/v1/chat/completions": text("data: {broken\n\n", kind="text/event-stream")},
                (),
                3,
                ["not JSON"],
            ),
            ({"/v1/models": text("<html>", kind="text/html")}, (), 3, ["neither /props nor /v1/models"]),
        ],
    )
    def test_what_can_not_be_measured_is_said_in_words(
        self, answers: dict[str, Script], options: tuple[str, ...], code: int, said: list[str], run: Run
    ) -> None:
        got, _, err, found = run(lambda path, body: answers.get(path) or answers.get("*") or reply({}, 404), *options)
        assert got == code, err
        assert found is None
        for words in said:
            assert words in err, err

    def test_a_key_is_sent_and_not_shown(self, tmp_path: Path) -> None:
        out = tmp_path / "s.json"
        with ReplayServer(FakeVllm()) as server:
            url = f"http://127.0.0.1:{server.port}"
            ran = call("probe", url, "--workload", "count", "--n", 3, "--json", out, "--api-key-env", "A_KEY", env={"A_KEY": "secret-1"})
            asked = list(server.played)
        assert ran.returncode == 0, ran.stderr
        assert {p.headers.get("authorization") for p in asked} == {"Bearer secret-1"}
        assert "secret-1" not in ran.stdout + ran.stderr + out.read_text()

    def test_prompts_are_salted_where_the_cache_can_not_be_switched_off(self, tell: Callable[..., Any]) -> None:
        with ReplayServer(FakeVllm()) as server:
            for _ in range(2):
                tell("probe", f"http://127.0.0.1:{server.port}", "--workload", "count", "--n", 3)
            prompts = [p.body["messages"][0]["content"] for p in server.played if p.path == "/v1/chat/completions"]
        assert len({p[:16] for p in prompts}) == len(prompts) == 2 * (1 + 2 + 3)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("probe", "h", "--workload", "repo-task"), "holds tasks of several turns, and a probe asks single prompts"),
        (("probe",), "no server is named"),
        (("probe", "ftp://x"), "is no http:// or https:// address"),
        (("probe", "http://u:p@h"), "holds a name or a password"),
        (("probe", "h", "--workload", "cuont"), "did you mean 'count'?"),
        (("probe", "h", "--preset", "x"), "there is no preset 'x'"),
        (("probe", "h", "--concurrency", "1,1"), "none twice"),
        (("probe", "h", "--concurrency", "257"), "1 to 256"),
        (("probe", "h", "--n", "0"), "no number above 0"),
        (("probe", "h", "--max-tokens", "1"), "--max-tokens 1: it is 2 to"),
        (("probe", "h", "--temperature", "-1"), "it is 0 to 5"),
        (("probe", "h", "--api-key-env", "NOT_THERE"), "NOT_THERE"),
        (("probe", "h", "--json", "/nowhere/x"), "no such folder"),
        (("probe", "h", "--json", "/"), "/ is a folder"),
        (("compare", "/nowhere/a", "/nowhere/b"), "/nowhere/a can't be read: No such file"),
        (("compare", "/", "/"), "/ can't be read: Is a directory"),
    ],
)
def test_bad_input_is_named(line: tuple[str, ...], said: str, tell: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = tell(*line)
    assert code == 2
    assert said in err


def test_nobody_there(tell: Callable[..., tuple[int, str, str]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code, _, err = tell("probe", f"127.0.0.1:{port}")
    assert code == 3
    assert "can't be reached" in err


@pytest.mark.parametrize("content", ["{}", "[1]", "nonsense", '{"kind": "specweb-survey", "cells": 3}'])
def test_a_file_that_is_no_result(content: str, tmp_path: Path, tell: Callable[..., tuple[int, str, str]]) -> None:
    (tmp_path / "a.json").write_text(content)
    code, _, err = tell("compare", tmp_path / "a.json", tmp_path / "a.json")
    assert code == 2
    assert "a.json" in err

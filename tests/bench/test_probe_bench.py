"""The bench of the client beside its peers: its arithmetic, its readers of the peers' exports, and a tiny run of the whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.probe.peers import Aiperf, Call, Client, Guidellm, Servebench, Venv, VllmBenchServe, apart_cpu_s, driven
from bench.probe.running import ClientFailed, replay, run
from bench.probe.scenarios import Scenario, scenarios
from bench.probe.scoring import Request, cpu_per_1k_tokens, lateness_ms, percentile, score

ROOT = Path(__file__).parents[2]
EXPORTS = Path(__file__).parent / "exports"
#: Asked at 10.0, read at 10.001, first event due after 100 ms, then one every 20 ms; three events of one token.
ANSWER = {"asked_at": 10.0, "began_at": 10.001, "first_s": 0.1, "period_s": 0.02, "stamps": [10.102, 10.121, 10.145], "n_tokens": 3}


def test_errors_are_against_the_senders_stamps() -> None:
    right = Request(0.0, 0.102, [(0, 0.102), (1, 0.121), (2, 0.145)], 3)
    got = score([right], [ANSWER])
    assert got.ttft_error_ms_p99 == pytest.approx(0.0, abs=1e-9)
    assert got.chunk_error_ms_p99 == pytest.approx(0.0, abs=1e-9)
    assert (got.tokens_counted, got.tokens_true) == (3, 3)
    assert got.tokens_per_s == pytest.approx(3 / 0.043)
    # 5 ms late from the start on: the TTFT is wrong, the times from the first chunk are not
    late = Request(0.0, 0.107, [(0, 0.107), (1, 0.126), (2, 0.150)], 3)
    got = score([late], [ANSWER])
    assert got.ttft_error_ms_p99 == pytest.approx(5.0)
    assert got.chunk_error_ms_p99 == pytest.approx(0.0, abs=1e-9)
    # the second chunk 2 ms early, the third 3 ms late
    uneven = Request(0.0, 0.102, [(0, 0.102), (1, 0.119), (2, 0.148)], 3)
    got = score([uneven], [ANSWER])
    assert got.chunk_error_ms_p50 == pytest.approx(2.0)
    assert got.chunk_error_ms_p99 == pytest.approx(3.0)


def test_marked_chunks_are_counted_and_left_out() -> None:
    request = Request(0.0, 0.102, [(0, 0.102), (1, 0.160), (2, 0.145)], 3, frozenset({1}))
    got = score([request], [ANSWER])
    assert got.marked_share == pytest.approx(1 / 3)
    assert got.chunk_error_ms_p99 == pytest.approx(0.0, abs=1e-9)
    assert score([Request(0.0, 0.102, [(0, 0.102)], 3)], [ANSWER]).marked_share is None  # one that never marks
    first = score([Request(0.0, 0.2, [(0, 0.2), (1, 0.219)], 3, frozenset({0}))], [ANSWER])
    assert first.ttft_error_ms_p99 is None
    assert first.chunk_error_ms_p99 is None  # times from a first chunk that is uncertain are uncertain too


def test_requests_meet_answers_in_the_order_of_their_starts() -> None:
    second = ANSWER | {"asked_at": 20.0, "stamps": [20.3, 20.32, 20.34]}
    told = [Request(7.0, 0.3, [], 3), Request(6.0, 0.102, [], 3)]
    assert score(told, [second, ANSWER]).ttft_error_ms_p99 == pytest.approx(0.0, abs=1e-9)


def test_an_answer_that_is_not_reported_is_a_miscount_not_a_smaller_truth() -> None:
    got = score([Request(0.0, 0.102, [], 3)], [ANSWER, ANSWER | {"asked_at": 11.0}])
    assert (got.tokens_counted, got.tokens_true) == (3, 6)
    assert score([Request(0.0, 0.102, [], None)], [ANSWER]).tokens_counted is None
    assert score([], [ANSWER]).tokens_counted is None


def test_the_senders_lateness_is_apart() -> None:
    assert lateness_ms(ANSWER) == pytest.approx([1.0, 0.0, 4.0], abs=1e-6)
    assert lateness_ms(ANSWER | {"period_s": 0.0}) == []


def test_percentile_is_a_value_that_occurred() -> None:
    values = [float(i) for i in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([3.0], 0.99), percentile([], 0.5)) == (50, 99, 3, None)


def test_cpu_is_of_the_tokens_beyond_the_short_run() -> None:
    assert cpu_per_1k_tokens(cpu_s=2.5, tokens=26_000, short_cpu_s=0.5, short_tokens=1_000) == pytest.approx(0.08)
    assert cpu_per_1k_tokens(cpu_s=0.49, tokens=26_000, short_cpu_s=0.5, short_tokens=1_000) is None


def test_the_published_scenarios() -> None:
    found = [(s.streams, s.tokens_per_event, bool(s.rate), s.stop_after) for s in scenarios()]
    assert (64, 1, True, None) in found
    for k in (1, 4, 16):
        assert (256, k, True, None) in found
        assert (1, k, False, None) in found
    (early,) = [s for s in scenarios() if s.stop_after]
    assert early.true_tokens == early.streams * (early.stop_after or 0) < early.streams * early.n_tokens
    for s in scenarios():
        assert s.short.true_tokens < s.true_tokens / 10


@pytest.mark.parametrize(
    ("client", "export", "place"),
    [
        (Servebench(), "servebench-1.1.json", "result.json"),
        (Guidellm(), "guidellm-0.8.json", "result.json"),
        (VllmBenchServe(), "vllm-0.32.json", "result.json"),
        (Aiperf(), "aiperf-0.13.jsonl", "aiperf/profile_export.jsonl"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_peers_export_is_read(client: Client, export: str, place: str, tmp_path: Path) -> None:
    """Each recorded one is of a single request: two tokens, the first after 100 ms, the second 20 ms later."""
    (tmp_path / place).parent.mkdir(exist_ok=True)
    shutil.copyfile(EXPORTS / export, tmp_path / place)
    (request,) = client.requests(Call(1, Scenario(1, 1, 2), tmp_path, None))
    assert request.tokens == 2
    assert request.ttft_s is not None
    assert 0.1 < request.ttft_s < 0.115
    assert request.start > 0
    first, last = request.chunks[0], request.chunks[-1]
    assert first == (0, pytest.approx(request.ttft_s, abs=0.001))
    assert 0.01 < last[1] - first[1] < 0.022


def test_what_can_not_be_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.probe.peers.CACHE", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(Exception, match="pip can't install no-such-client"):
        Venv("no-such-client").version()


def test_cpu_of_a_client_holds_its_descendants(tmp_path: Path) -> None:
    """A grandchild burns and would outlive the child: it is found, ended and counted."""
    program = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'while True: pass']); time.sleep(2)"
    usage = run([sys.executable, "-c", program], tmp_path / "log", env=os.environ, timeout_s=30)
    assert 0.5 < usage.cpu_s < 3
    idle = run([sys.executable, "-c", "import time; time.sleep(0.3)"], tmp_path / "log", env=os.environ, timeout_s=30)
    assert idle.cpu_s < 0.3


def test_a_client_that_fails_says_how(tmp_path: Path) -> None:
    with pytest.raises(ClientFailed, match=r"exit 3 .*no such option"):
        run([sys.executable, "-c", "print('no such option'); exit(3)"], tmp_path / "log", env=os.environ, timeout_s=30)
    began = time.monotonic()
    with pytest.raises(ClientFailed, match="no end after"):
        run([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log", env=os.environ, timeout_s=0.5)
    assert time.monotonic() - began < 10


def test_preparations_of_a_client_are_no_answers(tmp_path: Path) -> None:
    import httpx

    with replay(Scenario(1, 1, 4), tmp_path, None) as serving:
        for n in (1, 4):
            body = {"model": "m", "messages": [], "stream": True, "max_tokens": n}
            httpx.post(f"http://127.0.0.1:{serving.port}/v1/chat/completions", json=body)
    assert [a["n_tokens"] for a in serving.answers] == [4]


def test_a_tiny_run_of_the_whole(tmp_path: Path) -> None:
    out, table = tmp_path / "out.json", tmp_path / "table.md"
    argv = [sys.executable, "-m", "bench.probe", "--clients", "specweb,bare reader", "--streams", "32,1", "--per-event", "1"]
    argv += ["--seconds", "1.2", "--full-speed-events", "2000", "--out", str(out), "--markdown", str(table)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads(out.read_text())["runs"]
    assert [(r["client"], r["streams"]) for r in runs] == [(c, n) for c in ("specweb", "bare reader") for n in (1, 32)]
    rows = table.read_text().splitlines()
    assert len(rows) == 4
    assert all(row.startswith(f"| {name} ") and row.endswith("| exact |") for row, name in zip(rows[2:], ("specweb", "bare reader")))
    for r in runs:
        assert set(r) == {
            *("client", "version", "streams", "tokens_per_event", "cpu_s_per_1k_tokens", "ttft_error_ms_p99"),
            *("chunk_error_ms_p99", "marked_share", "tokens_counted", "tokens_true"),
        }
        assert r["tokens_counted"] == r["tokens_true"] == (2000 if r["streams"] == 1 else 32 * 40)
        assert r["version"]
        assert (r["marked_share"] is None) == (r["client"] == "bare reader")
    (ours,) = [r for r in runs if r["client"] == "specweb" and r["streams"] == 32]
    assert ours["ttft_error_ms_p99"] < 1  # kernel stamps: a busy machine does not move them


def test_what_a_driver_hands_over_is_not_the_clients_work(tmp_path: Path) -> None:
    call = Call(1, Scenario(1, 1, 2), tmp_path, None)
    assert apart_cpu_s(call) == 0.0
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from writing import write\n"
        "def told():\n"
        "    until = time.process_time() + 0.3\n"
        "    while time.process_time() < until: pass\n"
        "    return [{'start': 1, 'ttft_s': 0.1, 'chunks': [[0, 0.1]], 'tokens': 1, 'marked': []}]\n"
        "write(sys.argv[2], told)"
    )
    subprocess.run([sys.executable, "-c", code, str(ROOT / "bench" / "probe" / "drivers"), str(call.out)], check=True)
    assert 0.3 <= apart_cpu_s(call) < 1
    assert driven(call) == [Request(1, 0.1, [(0, 0.1)], 1, frozenset())]
    shutil.copyfile(EXPORTS / "servebench-1.1.json", call.out)
    assert apart_cpu_s(call) == 0.0

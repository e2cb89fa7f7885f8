"""The clients under test: how each is installed, called, and read. One class each, since no two agree on anything."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .scenarios import Scenario
from .scoring import Request

DRIVERS = Path(__file__).parent / "drivers"
MODEL = "replay-model"
PROMPT_TOKENS = 100
BOOK_URL = "http://replay.invalid/book"  # never fetched: the text lies where llama-benchy keeps what it fetched
#: Peers live in environments of their own, kept between runs.
CACHE = Path(os.environ.get("SPECWEB_BENCH_CACHE") or Path.home() / ".cache" / "specweb-bench")


class NotThere(Exception):
    """The client can't be had on this machine; the text says why."""


@dataclass(frozen=True)
class Call:
    """What one run needs: the server's port, what is asked for, a folder for results, and a tokenizer where one was made."""

    port: int
    scenario: Scenario
    folder: Path
    tokenizer: Path | None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def out(self) -> Path:
        return self.folder / "result.json"

    @property
    def tokenizer_folder(self) -> str:
        if self.tokenizer is None:
            raise NotThere("it needs a tokenizer, and no environment with the tokenizers package is there to make one")
        return str(self.tokenizer)

    def environment(self) -> dict[str, str]:
        """A home of its own, nothing from the network, and the text for prompts in llama-benchy's cache."""
        home = self.folder / "home"
        cache = home / ".cache" / "llama-benchy"
        cache.mkdir(parents=True, exist_ok=True)
        if self.tokenizer:
            name = hashlib.md5(BOOK_URL.encode(), usedforsecurity=False).hexdigest()
            shutil.copyfile(self.tokenizer / "book.txt", cache / f"{name}.txt")
        quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1", "NO_COLOR": "1"}
        return {**os.environ, **quiet, "HOME": str(home), "COLUMNS": "200"}

    @property
    def sizes(self) -> list[str]:
        return [str(self.port), str(self.scenario.streams), str(self.scenario.n_tokens), str(self.out)]


class Client(Protocol):
    name: str

    def version(self) -> str:
        """Installs it if need be. Raises NotThere."""

    def argv(self, call: Call) -> list[str | Path]: ...

    def requests(self, call: Call) -> list[Request]:
        """What it reported. Raises OSError, KeyError, ValueError or TypeError if that isn't there or isn't understood."""


def driven(call: Call) -> list[Request]:
    """What one of our drivers wrote."""
    return [
        Request(
            r["start"],
            r["ttft_s"],
            [(n, at) for n, at in r["chunks"]],
            r["tokens"],
            None if r["marked"] is None else frozenset(r["marked"]),
        )
        for r in json.loads(call.out.read_text().splitlines()[0])
    ]


def apart_cpu_s(call: Call) -> float:
    """CPU that one of our drivers spent on handing over results; 0 for clients that write their own."""
    lines = call.out.read_text().splitlines() if call.out.is_file() else []
    return float(lines[1]) if len(lines) == 2 and lines[0].startswith("[") else 0.0


@dataclass(frozen=True)
class Venv:
    """An environment of its own with one distribution from PyPI."""

    distribution: str
    requirement: str = ""

    @property
    def home(self) -> Path:
        return CACHE / self.distribution

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    def program(self, name: str) -> Path:
        return self.home / "bin" / name

    def version(self) -> str:
        if not (found := self._installed()):
            self._install()
            found = self._installed()
        if not found:
            raise NotThere(f"{self.distribution} is not in {self.home} after its installation")
        return found

    def _installed(self) -> str:
        if not self.python.exists():
            return ""
        code = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
        done = subprocess.run([self.python, "-c", code, self.distribution], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    def _install(self) -> None:
        wanted = self.requirement or self.distribution
        print(f"installing {wanted} into {self.home}", file=sys.stderr, flush=True)
        try:
            venv.create(self.home, with_pip=True, clear=True)
            done = subprocess.run(
                [self.python, "-m", "pip", "install", "-q", wanted], capture_output=True, text=True, timeout=900, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise NotThere(f"no environment for {wanted}: {error}") from error
        if done.returncode != 0:
            raise NotThere(f"pip can't install {wanted}: {' / '.join(done.stderr.strip().splitlines()[-2:])[:300]}")


class SpecWeb:
    name = "specweb"

    def version(self) -> str:
        from importlib.metadata import version

        return version("specweb-agent")

    def argv(self, call: Call) -> list[str | Path]:
        return [sys.executable, DRIVERS / "ours.py", *call.sizes]

    def requests(self, call: Call) -> list[Request]:
        return driven(call)


class BareReader:
    name = "bare reader"

    def version(self) -> str:
        return f"asyncio {sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"

    def argv(self, call: Call) -> list[str | Path]:
        return [sys.executable, DRIVERS / "bare.py", *call.sizes]

    def requests(self, call: Call) -> list[Request]:
        return driven(call)


class LlamaBenchy:
    name = "llama-benchy"
    venv = Venv("llama-benchy")

    def version(self) -> str:
        return self.venv.version()

    def argv(self, call: Call) -> list[str | Path]:
        return [
            *(self.venv.python, DRIVERS / "benchy_results.py", call.out, str(call.scenario.tokens_per_event)),
            *("--base-url", f"{call.url}/v1", "--model", MODEL, "--tokenizer", call.tokenizer_folder),
            *("--book-url", BOOK_URL, "--pp", str(PROMPT_TOKENS), "--tg", str(call.scenario.n_tokens), "--runs", "1"),
            *("--concurrency", str(call.scenario.streams), "--latency-mode", "none", "--no-warmup", "--no-adapt-prompt"),
            *("--skip-coherence", "--format", "json", "--save-result", call.folder / "report.json"),
        ]

    def requests(self, call: Call) -> list[Request]:
        return driven(call)


class Servebench:
    name = "servebench"
    venv = Venv("servebench")

    def version(self) -> str:
        return self.venv.version()

    def argv(self, call: Call) -> list[str | Path]:
        n = str(call.scenario.streams)
        return [
            *(self.venv.program("servebench"), "run", "--url", f"{call.url}/v1", "--model", MODEL, "--concurrency", n),
            *("--num-requests", n, "--input-len", str(PROMPT_TOKENS), "--output-len", str(call.scenario.n_tokens)),
            *("--warmup", "0", "--seed", "7", "--out", call.out),
        ]

    def requests(self, call: Call) -> list[Request]:
        (level,) = json.loads(call.out.read_text())["levels"]
        return [
            Request(r["start"], r["ttft"], list(enumerate(r["chunk_times"])), r["output_tokens"] if r["ok"] else None)
            for r in level["requests"]
        ]


class Infermark:
    name = "infermark"
    venv = Venv("infermark", "infermark[cli]")

    def version(self) -> str:
        return self.venv.version()

    def argv(self, call: Call) -> list[str | Path]:
        n = str(call.scenario.streams)
        return [
            *(self.venv.python, DRIVERS / "infermark_results.py", call.out, "run", f"{call.url}/v1", "-m", MODEL),
            *("-n", n, "-c", n, "--max-tokens", str(call.scenario.n_tokens), "--warmup", "0"),
        ]

    def requests(self, call: Call) -> list[Request]:
        return driven(call)


class Guidellm:
    name = "guidellm"
    venv = Venv("guidellm")

    def version(self) -> str:
        return self.venv.version()

    def argv(self, call: Call) -> list[str | Path]:
        n = str(call.scenario.streams)
        return [
            *(self.venv.program("guidellm"), "run", "--backend", f"kind=openai_http,target={call.url},model={MODEL}"),
            *("--profile", f"kind=concurrent,streams={n}", "--constraint", f"kind=max_requests,count={n}"),
            *("--tokenizer", f"kind=huggingface_auto,model={call.tokenizer_folder}"),
            *("--data", f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={call.scenario.n_tokens}"),
            *("--output", f"kind=json,path={call.out}", "--disable-console"),
        ]

    def requests(self, call: Call) -> list[Request]:
        (benchmark,) = json.loads(call.out.read_text())["benchmarks"]
        return [self._request(r, call.scenario) for r in benchmark["requests"]["successful"]]

    @staticmethod
    def _request(r: dict[str, Any], scenario: Scenario) -> Request:
        """It keeps the first and the last arrival of tokens, none between."""
        times = r["info"]["timings"]
        start, n = times["request_start"], times["token_iterations"]
        ends = [(0, times["first_token_iteration"] - start), (n - 1, times["last_token_iteration"] - start)]
        return Request(start, r["time_to_first_token_ms"] / 1000, ends, r["output_tokens"])


class Aiperf:
    name = "aiperf"
    venv = Venv("aiperf")

    def version(self) -> str:
        return self.venv.version()

    def argv(self, call: Call) -> list[str | Path]:
        n, length = str(call.scenario.streams), str(call.scenario.n_tokens)
        return [
            *(
                "env",
                "-u",
                "HF_HUB_OFFLINE",
                self.venv.program("aiperf"),
                "profile",
                "--model",
                MODEL,
                "--url",
                call.url,
                "--endpoint-type",
                "chat",
                "--streaming",
            ),
            *("--concurrency", n, "--request-count", n, "--tokenizer", call.tokenizer_folder),
            *("--synthetic-input-tokens-mean", str(PROMPT_TOKENS), "--synthetic-input-tokens-stddev", "0"),
            *("--output-tokens-mean", length, "--output-tokens-stddev", "0", "--use-legacy-max-tokens"),
            *("--artifact-dir", call.folder / "aiperf", "--ui", "none", "--random-seed", "7"),
        ]

    def requests(self, call: Call) -> list[Request]:
        (export,) = (call.folder / "aiperf").rglob("profile_export.jsonl")
        return [self._request(json.loads(line)) for line in export.read_text().splitlines()]

    @staticmethod
    def _request(r: dict[str, Any]) -> Request:
        values = {name: metric["value"] for name, metric in r["metrics"].items()}
        at = values["time_to_first_token"] / 1000
        chunks = [(0, at)]
        for n, gap in enumerate(values.get("inter_chunk_latency", []), 1):
            at += gap / 1000
            chunks.append((n, at))
        return Request(r["metadata"]["request_start_ns"] / 1e9, chunks[0][1], chunks, int(values["output_sequence_length"]))


class VllmBenchServe:
    """Only where a vLLM is there already: on PATH, or named by VLLM."""

    name = "vllm bench serve"

    def version(self) -> str:
        program = os.environ.get("VLLM") or shutil.which("vllm")
        if not program:
            raise NotThere("no vllm on PATH, and VLLM names none")
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NotThere(f"{program} --version: {done.stderr.strip().splitlines()[-1:]}")
        return done.stdout.strip().splitlines()[-1]

    def argv(self, call: Call) -> list[str | Path]:
        n = str(call.scenario.streams)
        return [
            *(os.environ.get("VLLM") or "vllm", "bench", "serve", "--backend", "openai-chat", "--base-url", call.url),
            *("--endpoint", "/v1/chat/completions", "--model", MODEL, "--tokenizer", call.tokenizer_folder, "--dataset-name", "random"),
            *("--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(call.scenario.n_tokens)),
            *("--num-prompts", n, "--max-concurrency", n, "--ignore-eos", "--disable-tqdm", "--num-warmups", "0"),
            *("--save-result", "--save-detailed", "--result-dir", call.folder, "--result-filename", call.out.name),
        ]

    def requests(self, call: Call) -> list[Request]:
        said = json.loads(call.out.read_text())
        found = []
        for start, ttft, gaps, tokens in zip(said["start_times"], said["ttfts"], said["itls"], said["output_lens"]):
            chunks, at = [(0, ttft)], ttft
            for n, gap in enumerate(gaps, 1):
                at += gap
                chunks.append((n, at))
            found.append(Request(start, ttft, chunks, tokens))
        return found


CLIENTS: list[Client] = [
    SpecWeb(),
    BareReader(),
    Servebench(),
    LlamaBenchy(),
    Infermark(),
    VllmBenchServe(),
    Guidellm(),
    Aiperf(),
]
#: Environments that bring the tokenizers package.
WITH_TOKENIZERS = [LlamaBenchy.venv, Guidellm.venv, Aiperf.venv]

"""The replayed engine: a program that stands where llama-server stands and answers at the pace of a script, with its faults.

``engine.py SCRIPT.json --port N --model F …``: the script is :class:`Script` as JSON. It loads nothing and computes nothing;
its answers have the form of llama-server's, with counts that agree unless the script says otherwise.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

#: What it says that the prompt took: less than it did, since a client that is stopped before it looks at the clock sees less.
_PROMPT_MS = 0.1
_SPIN_S = 0.0005  # sleeping is too coarse for the last stretch


@dataclass(frozen=True)
class Side:
    """How the engine answers without speculation, or at one draft limit."""

    speed: float = 1.0  # times the script's pace
    tokens: int | None = None  # of an answer, whatever was asked for
    accepted: int = 3  # of each draft
    drafts: bool = True  # False: it ignores that speculation was asked for
    cached: int = 0  # prompt tokens that come from the cache
    context: int | None = None  # of a slot, whatever was asked for
    wrong: bool = False  # its answers count nothing
    other_ids: bool = False  # and have other tokens than those without speculation
    likeliest: float = 0.6  # how often a sampled token, of two, is the likelier one
    miscounted: int = 0  # tokens more than were sent, by the final count
    broken: tuple[int, ...] = ()  # requests of a start, from 0 with the warm-up, that end with status 500
    dies_at: tuple[int, ...] = ()  # starts of this side, from 0, that end before they are ready
    log: str = ""  # lines that it writes when it starts


@dataclass(frozen=True)
class Script:
    """``sides``: by draft limit, "0" without speculation. All starts are counted in ``starts``, a file with one line for each."""

    starts: str
    sides: dict[str, Side] = field(default_factory=dict)
    token_ms: float = 2.0
    noise: tuple[float, ...] = (1.0,)  # of a start's pace, in the order of starts, over and over
    pace_by_request: float = 1.0  # each request of a start has so many times the pace of the one before
    wrong_together: bool = False  # answers are wrong as soon as two requests are under way
    one_by_one: bool = False  # requests wait for each other
    restless: bool = False  # without speculation no answer is given twice

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(asdict(self)))
        return path


def read(path: str) -> Script:
    given = json.loads(Path(path).read_text())
    sides = {limit: Side(**{k: tuple(v) if isinstance(v, list) else v for k, v in side.items()}) for limit, side in given["sides"].items()}
    return Script(**(given | {"sides": sides, "noise": tuple(given["noise"])}))


class Engine:
    """The state of one start."""

    def __init__(self, script: Script, argv: list[str]) -> None:
        self.script, self.argv = script, argv
        self.limit = int(self.after("--spec-draft-n-max", "--draft-max", "--draft-n", "--draft") or 0) if "--spec-type" in argv else 0
        self.side = script.sides.get(str(self.limit), Side())
        starts = Path(script.starts)
        before = starts.read_text().split() if starts.exists() else []
        with starts.open("a") as f:
            f.write(f"{self.limit}\n")
        self.n_before, self.n_of_side = len(before), before.count(str(self.limit))
        self.pace = script.noise[self.n_before % len(script.noise)] / self.side.speed
        self.n_requests = self.under_way = 0
        self.totals = {"prompt": 0, "predicted": 0, "drafted": 0, "accepted": 0, "drafts": 0}
        self.lock, self.turn = threading.Lock(), threading.Lock()

    def after(self, *names: str) -> str:
        return next((self.argv[i + 1] for i, word in enumerate(self.argv[:-1]) if word in names), "")

    def props(self) -> dict[str, Any]:
        slots, context = int(self.after("--parallel", "-np") or 1), int(self.after("--ctx-size", "-c") or 512)
        return {
            "model_path": self.after("--model"),
            "total_slots": slots,
            "default_generation_settings": {"n_ctx": self.side.context or context // slots},
        }

    def metrics(self) -> str:
        t = self.totals
        lines = {
            "prompt_tokens_total": t["prompt"],
            "tokens_predicted_total": t["predicted"],
            "spec_decode_num_draft_tokens_total": t["drafted"],
            "spec_decode_num_accepted_tokens_total": t["accepted"],
            "spec_decode_num_drafts_total": t["drafts"],
        }
        return "".join(f"# TYPE llamacpp:{name} counter\nllamacpp:{name} {value}\n" for name, value in lines.items())


def plan_answer(engine: Engine, n: int, right: bool) -> list[dict[str, Any]]:
    """(due in ms, event) of each token and of the end: a token from the prompt, then steps of one token or one draft."""
    side, drafts = engine.side, engine.limit > 0 and engine.side.drafts
    pace_ms = engine.script.token_ms * engine.pace * engine.script.pace_by_request**engine.n_requests
    salt = 1000 * engine.n_requests if engine.script.restless and not engine.limit else 9 if side.other_ids or not right else 0
    events: list[dict[str, Any]] = []
    sent = drafted = accepted = steps = 0

    def token(due_ms: float) -> None:
        nonlocal sent
        sent += 1
        timings: dict[str, Any] = {"predicted_n": sent, "predicted_ms": max(0.001, due_ms - pace_ms), "prompt_ms": _PROMPT_MS}
        if drafted:
            timings |= {"draft_n": drafted, "draft_n_accepted": accepted}
        word = f"{sent} " if right and not side.wrong else "wrong "
        events.append({"due": due_ms, "content": word, "tokens": [salt + sent], "tokens_predicted": sent, "timings": timings})

    token(pace_ms)
    due = pace_ms
    while sent < n:
        size = min(1 + side.accepted, n - sent) if drafts else 1
        due += pace_ms * size  # speed is the script's alone: a step takes as long as its tokens
        if drafts and n - sent > 1:
            drafted += min(engine.limit, n - sent - 1) if side.accepted else engine.limit
            accepted, steps = accepted + size - 1, steps + 1
        for _ in range(size):
            token(due)
    timings = {"prompt_n": 8, "prompt_ms": _PROMPT_MS, "predicted_n": sent + side.miscounted, "predicted_ms": due - pace_ms}
    timings |= {"cache_n": side.cached} | ({"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {})
    kind = "none,draft-simple" if drafts else "none"
    events.append(
        {
            "due": due,
            "content": "",
            "tokens": [],
            "stop": True,
            "stop_type": "limit",
            "tokens_predicted": sent + side.miscounted,
            "tokens_evaluated": 8,
            "truncated": False,
            "timings": timings,
            "generation_settings": {"speculative.types": kind},
        }
    )
    with engine.lock:
        for name, value in (
            ("prompt", 8),
            ("predicted", sent + side.miscounted),
            ("drafted", drafted),
            ("accepted", accepted),
            ("drafts", steps),
        ):
            engine.totals[name] += value
    return events


def whole_answer(events: list[dict[str, Any]]) -> dict[str, Any]:
    """In one piece, at once, with how sure the model was: of every token by two nats."""
    ids = [i for e in events for i in e["tokens"]]
    sure = [{"id": i, "logprob": -0.2, "top_logprobs": [{"id": i, "logprob": -0.2}, {"id": i + 1, "logprob": -2.2}]} for i in ids]
    return {**events[-1], "content": "".join(e["content"] for e in events), "tokens": ids, "completion_probabilities": sure}


def sampled_ids(engine: Engine, body: dict[str, Any]) -> dict[str, Any]:
    rng = random.Random(body["seed"])
    return {"tokens": [1 if rng.random() < engine.side.likeliest else 2 for _ in range(body["n_predict"])]}


class Handler(BaseHTTPRequestHandler):
    engine: Engine
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        if self.path == "/metrics":
            return self._reply(200, self.engine.metrics().encode(), "text/plain")
        if self.path == "/props":
            return self._reply(200, json.dumps(self.engine.props()).encode())
        return self._reply(200, b'{"status": "ok"}')

    def do_POST(self) -> None:
        asked_at = time.monotonic()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":  # a token a character
            return self._reply(200, json.dumps({"tokens": [ord(c) for c in body["content"]]}).encode())
        if self.path == "/detokenize":
            return self._reply(200, json.dumps({"content": "".join(map(chr, body["tokens"]))}).encode())
        engine = self.engine
        with engine.lock:
            number, engine.under_way = engine.n_requests, engine.under_way + 1
            alone = engine.under_way == 1
        try:
            if number in engine.side.broken:
                return self._reply(500, b'{"error": {"code": 500, "message": "scripted fault", "type": "server_error"}}')
            right = not engine.script.wrong_together or alone
            events = plan_answer(engine, engine.side.tokens or int(body.get("n_predict", 16)), right)
            if body.get("stream"):
                with engine.turn if engine.script.one_by_one else nullcontext():
                    self._stream(time.monotonic() if engine.script.one_by_one else asked_at, events)
            else:
                sampled = sampled_ids(engine, body) if body.get("temperature") else {}
                self._reply(200, json.dumps(whole_answer(events) | sampled).encode())
        finally:
            with engine.lock:
                engine.n_requests, engine.under_way = engine.n_requests + 1, engine.under_way - 1

    def _stream(self, asked_at: float, events: list[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            _sleep_until(asked_at + event.pop("due") / 1000)
            self.wfile.write(b"data: %s\n\n" % json.dumps(event).encode())
        self.close_connection = True

    def _reply(self, status: int, data: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _sleep_until(due: float) -> None:
    if (left := due - time.monotonic() - _SPIN_S) > 0:
        time.sleep(left)
    while time.monotonic() < due:
        time.sleep(0)


def trial_noise(n: int, size: float, seed: int = 5) -> tuple[float, ...]:
    """Factors of n starts, normal in logs."""
    rng = random.Random(seed)
    return tuple(1 + rng.gauss(0, size) for _ in range(n))


def main() -> None:
    engine = Engine(read(sys.argv[1]), sys.argv[2:])
    print(engine.side.log or "replayed engine: nothing was loaded", flush=True)
    if engine.n_of_side in engine.side.dies_at:
        sys.exit(3)
    Handler.engine = engine
    ThreadingHTTPServer(("127.0.0.1", int(engine.after("--port"))), Handler).serve_forever()


if __name__ == "__main__":
    main()

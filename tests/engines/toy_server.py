"""A third engine for tests, as a program: it serves made-up tokens under flags, paths and counters that no other engine has.

Its answers count up. With ``--guess N`` it says up to N + 1 of them for the pace of one, and accepts all guesses but every
fourth one's last.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HELP = """toy: serves made-up tokens
  --weights FILE    the model
  --listen PORT     on loopback
  --room N          tokens of context
  --guess N         speculate: guess N tokens ahead (0: don't)
  --shout           a flag of no use
"""
STEP_S = 0.004
TOTALS = {"toy_said": 0, "toy_guessed": 0, "toy_right": 0, "toy_rounds": 0}
LOCK = threading.Lock()


def option(name: str, default: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        model = option("--weights", "")
        about = {"made_by": "toy 0.3", "reads": model, "room": int(option("--room", "512")), "guess": int(option("--guess", "0"))}
        pages = {"/health": "{}", "/about": json.dumps(about), "/metrics": "".join(f"{k} {v}\n" for k, v in TOTALS.items())}
        self._answer(pages.get(self.path, ""), 200 if self.path in pages else 404)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked.get("whole"):
            ids = list(range(asked["most"]))
            self._answer(json.dumps({"ids": ids, "sure": [9.0] * len(ids), "why": "most"}))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in rounds(asked["most"], int(option("--guess", "0"))):
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
        print(f"said {asked['most']}", flush=True)

    def _answer(self, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


def rounds(most: int, guess: int) -> Any:
    """The first token alone, then rounds of guesses with one token of the model's own; at the end the counts of all rounds."""
    said, kept = 1, []
    yield {"ids": [0], "said": 1}
    while said < most:
        time.sleep(STEP_S)
        right = min(guess - (len(kept) % 4 == 3) if guess else 0, most - said - 1)
        kept.append([guess, max(right, 0)])
        now = max(right, 0) + 1
        yield {"ids": list(range(said, said + now)), "said": said + now}
        said += now
    with LOCK:
        TOTALS["toy_said"] += said
        TOTALS["toy_rounds"] += len(kept) if guess else 0
        TOTALS["toy_guessed"] += sum(g for g, _ in kept)
        TOTALS["toy_right"] += sum(r for _, r in kept)
    yield {"ids": [], "said": said, "why": "most", "read": 7, "rounds": kept}


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(HELP)
    elif "--version" in sys.argv:
        print("toy 0.3")
    else:
        assert Path(option("--weights", "")).is_file(), "no such model"
        print(f"toy 0.3 reads {option('--weights', '')}, guess {option('--guess', '0')}", flush=True)
        ThreadingHTTPServer(("127.0.0.1", int(option("--listen", "0"))), Handler).serve_forever()

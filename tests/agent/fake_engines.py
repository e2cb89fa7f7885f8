"""Engines that misbehave, and say so in their names: scripts that stand where llama-server stands."""

from __future__ import annotations

import shlex
import sys
import textwrap
from pathlib import Path

from specagent.inventory import Host
from specagent.runtimes import Runtime

#: Starts two children that outlive it, one in a session of its own and one forked twice, then is the real engine.
FORKS_CHILDREN = """
for n_forks in (1, 2):
    if os.fork() == 0:
        os.setsid()
        if n_forks == 2 and os.fork() != 0:
            os._exit(0)
        open(CHILDREN, "a").write(f"{os.getpid()}\\n")
        os.execvp("sleep", ["sleep", "600"])
os.execv(REAL, [REAL, *sys.argv[1:]])
"""

#: Writes a gigabyte before it is the real engine.
LOGS_A_GIGABYTE = """
line = b"fake: " + b"chatter " * 31 + b"\\n"
block = line * 4096
os.write(1, b"fake: first line\\n")
for _ in range((1 << 30) // len(block)):
    os.write(1, block)
os.write(1, b"fake: last line before the engine\\n")
os.execv(REAL, [REAL, *sys.argv[1:]])
"""

#: Loads for ever and hears no TERM.
IGNORES_TERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("loading, for ever", flush=True)
time.sleep(600)
"""

_HTTP = """
import json, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
argv = sys.argv
port, model = int(argv[argv.index("--port") + 1]), argv[argv.index("--model") + 1]
began = time.monotonic()
PROPS = {"model_path": model, "total_slots": 1, "default_generation_settings": {"n_ctx": 512}}
class Handler(BaseHTTPRequestHandler):
    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status); self.send_header("Content-Length", str(len(data))); self.end_headers(); self.wfile.write(data)
    def log_message(self, *_): pass
    def do_GET(self): self.get(self.path)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"])); self.post(self.path)
"""
_SERVE = """
print("listening", flush=True)
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""

#: Says that it is healthy at once; its model is there after a second.
HEALTHY_TOO_EARLY = f"""{_HTTP}
    def get(self, path):
        if path == "/health": return self.answer(200, {{"status": "ok"}})
        loaded = time.monotonic() - began > 1.0
        self.answer(200 if loaded else 503, PROPS if loaded else {{"error": {{"message": "Loading model"}}}})
    def post(self, path): self.answer(503, {{"error": {{"code": 503, "message": "Loading model", "type": "unavailable_error"}}}})
{_SERVE}"""

#: Healthy at once, and another model than asked for.
HEALTHY_WITH_ANOTHER_MODEL = HEALTHY_TOO_EARLY.replace('"model_path": model', '"model_path": "/other.gguf"')

#: Loads quickly, and answers no request for text.
HANGS = f"""{_HTTP}
    def get(self, path): self.answer(200, PROPS)
    def post(self, path): time.sleep(600)
{_SERVE}"""

_ANSWER = """
    def get(self, path): self.answer(200, PROPS)
    def post(self, path):
        final = {"content": "", "stop": True, "stop_type": "limit", "tokens": [], "tokens_predicted": 1, "timings": {"predicted_n": 1}}
        lines = "".join(f"data: {json.dumps(e)}\\n\\n" for e in ({"content": "1", "tokens": [1], "tokens_predicted": 1}, final)).encode()
        self.send_response(200); self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(lines))); self.end_headers(); self.wfile.write(lines)
"""

#: Answers, until it is asked for its counters.
HANGS_AFTER_WARM_UP = f"""{_HTTP}{_ANSWER.replace("self.answer(200, PROPS)", "time.sleep(600) if path == '/metrics' else self.answer(200, PROPS)")}
{_SERVE}"""

#: Answers all, and hears no TERM.
STOPS_SLOWLY = f"""{_HTTP}{_ANSWER}
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
{_SERVE}"""


def fake_engine(name: str, program: str, folder: Path, host: Host) -> Host:
    """The host, with the program as its only engine. It has the capabilities of the real one, and knows where that is: REAL.

    Children that it starts write their pids to ``folder / "children"``.
    """
    real = host.inventory.runtimes[0]
    script = folder / f"fake-llama-server-{name}"
    body = folder / f"fake_{name.replace('-', '_')}.py"
    head = f"import os, sys\nREAL, CHILDREN = {real.executable!r}, {str(folder / 'children')!r}\n"
    body.write_text(head + textwrap.dedent(program))
    # Not the interpreter itself in the first line: the kernel cuts that at a space, and a clone may lie in a path with one.
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(body))} "$@"\n')
    script.chmod(0o755)
    info = real.model_copy(update={"version": "fake", "manifest_hash": "f" * 64, "executable": str(script)})
    inventory = host.inventory.model_copy(update={"runtimes": [info]})
    return Host(inventory, [Runtime(info)], host.gpus, host.cache, host.engine_records)

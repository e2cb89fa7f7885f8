"""``fit`` on the real engine: what loads up to the model's own end, what memory refuses, and what is not even tried."""

from __future__ import annotations

import json
import os
import re
import shlex
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from specagent import evidence, fitting
from specagent.fitting import PHASE
from speccore import records
from speccore.fit import together
from speccore.measure import measure_attempt
from speccore.protocol import Running

from tests.agent.commands import SMALL, call, command
from tests.agent.conftest import Ran, make_spec


def with_context(source: Path, path: Path, tokens: int) -> None:
    """A copy of a GGUF file that says it was trained for so many tokens."""
    data = bytearray(source.read_bytes())
    at = data.index(b"llama.context_length") + len(b"llama.context_length")
    assert struct.unpack_from("<I", data, at) == (4,)  # an unsigned number of 32 bits
    struct.pack_into("<I", data, at + 4, tokens)
    path.write_bytes(data)


@pytest.fixture
def place(tmp_path: Path, demo_models: Path, llama_server: Path) -> Path:
    """A folder with a configuration, an experiment and the demo's models, made to look as if they were trained for 250,112 tokens."""
    for name in ("target", "draft"):
        with_context(demo_models / f"{name}.gguf", tmp_path / f"{name}.gguf", 250_112)
    models = [{"alias": name, "path": str(tmp_path / f"{name}.gguf")} for name in ("target", "draft")]
    config = {"state_dir": str(tmp_path / "state"), "runtimes": [{"path": str(llama_server)}], "models": models, "threads": 1}
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "e.yaml").write_text(yaml.safe_dump(SMALL))
    return tmp_path


def told(place: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((place / "fit.json").read_text())
    assert (data["kind"], data["version"]) == ("specweb-fit", 1)
    return {a["arm"]: a for a in data["fit"]["arms"]} | {"largest": data["largest"]}


def test_memory_refuses_the_helper_what_the_target_alone_gets(place: Path) -> None:
    args = ("fit", place / "e.yaml", "--config", place / "agent.yaml", "--starts", 4, "--reserve", 0, "--json", place / "fit.json")
    # the real engine under a real limit of its address space: 1.2 GiB of buffers go in, 1.6 don't
    limited = "ulimit -v 2050000; exec " + shlex.join(map(str, command(*args)))
    ran = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=120, env=os.environ.copy())
    assert ran.returncode == 0, ran.stderr
    found = told(place)
    assert found["largest"]["off"] == 250_112
    assert "off: loads up to the model's own 250,112 tokens per slot: nothing here limits it [1 start]" in ran.stdout
    draft = found["draft-3"]
    refused = [t for t in draft["tries"] if not t["loads"]]
    assert refused[0]["context"] == 250_112
    assert refused[0]["why"].startswith("out of memory: llama-server did not start")
    assert 0 < found["largest"]["draft-3"] < 250_112
    assert re.search(r"^250,112 tokens per slot without, [\d,]+ with draft-3$", ran.stdout, re.MULTILINE)
    loaded = next(t for t in draft["tries"] if t["loads"])
    assert loaded["memory_mib"]["draft KV CPU"] > 0
    assert len(draft["tries"]) <= 4
    assert not list((place / "state" / "engines").glob("*"))
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(place / "target.gguf") in (p.info["cmdline"] or [])]


def test_what_would_leave_too_little_is_not_started(place: Path) -> None:
    reserve = psutil.virtual_memory().total // 2**20
    ran = call("fit", place / "e.yaml", "--config", place / "agent.yaml", "--reserve", reserve, "--json", place / "fit.json")
    assert ran.returncode == 0, ran.stderr
    found = told(place)
    assert found["largest"] == {"off": None, "draft-3": None}
    assert not any(t["started"] for arm in ("off", "draft-3") for t in found[arm]["tries"])
    assert re.search(
        r"off: loads not even 256 tokens per slot \(.* would be left free, by the estimate; .* must stay\) \[0 starts", ran.stdout
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--arm", "draft-9"), "the experiment has no such arm (did you mean 'draft-3'?)"),
        (("--starts", "0"), "--starts 0: it is 1 to 40"),
        (("--json", "/nowhere/f.json"), "there is no such folder"),
    ],
)
def test_what_is_asked_wrongly_is_told_before_anything_starts(place: Path, args: tuple[str, str], said: str) -> None:
    ran = call("fit", place / "e.yaml", "--config", place / "agent.yaml", *args)
    assert ran.returncode == 2
    assert said in ran.stderr


def test_an_experiment_looks_after_its_last_trial_and_keeps_what_it_found(job: Callable[..., Ran]) -> None:
    ran = job(make_spec(fit=True, blocks=2))
    assert ran.run().outcome == "completed"
    with_fit = [report.trial for report, folder in ran.sink.done if (folder / records.FIT).is_file()]
    last = ran.offer.plan.trials[-1].id
    assert with_fit == [last]
    report, folder = next((r, f) for r, f in ran.sink.done if r.trial == last)
    assert records.FIT in [ref.name for ref in report.evidence]
    measured = measure_attempt(evidence.read(folder), ran.offer.spec, ran.workloads)
    assert measured.fit is not None
    assert together(measured.fit, "off") == "2,048 tokens per slot without, 2,048 with draft-3"  # the models' own end
    assert [len(a.tries) for a in measured.fit.arms] == [1, 1]
    assert not list((ran.out / "work").glob("*"))  # nothing of the tries is left
    said = [r.phase for r in ran.said if r.phase.startswith(PHASE)]
    assert said == [f"{PHASE}: off: 2,048 tokens per slot", f"{PHASE}: draft-3: 2,048 tokens per slot"]


def test_told_to_stop_while_it_looks_the_attempt_is_kept_without_it(job: Callable[..., Ran]) -> None:
    ran = job(make_spec(fit=True))
    tell = ran.tell

    def heard(running: Running) -> None:
        tell(running)
        if running.phase.startswith(PHASE):
            ran.stop.set()

    ran.tell = heard
    assert ran.run().outcome == "cancelled"
    assert [(r.outcome, (f / records.FIT).is_file()) for r, f in ran.sink.done] == [("ok", False), ("ok", False)]


def test_what_goes_wrong_while_it_looks_takes_no_result_with_it(job: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> None:
        raise IndexError("no such thing")

    monkeypatch.setattr(fitting, "fit_arms", fails)
    ran = job(make_spec(fit=True))
    assert ran.run().outcome == "completed"
    (_, folder) = ran.sink.done[-1]
    measured = measure_attempt(evidence.read(folder), ran.offer.spec, ran.workloads)
    assert measured.fit is not None
    assert {a.arm: a.words() for a in measured.fit.arms} == dict.fromkeys(
        ("off", "draft-3"), "nothing is said: the agent failed: IndexError: no such thing"
    )

"""The checks of ``bench/gpu_check.sh``, which prepares and calls it: each prints one line, shown or not, and why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from specagent import fitness
from specagent.gpus import Gpus
from specagent.sampler import Sampler
from speccore import host_checks
from speccore.host_series import host_facts
from speccore.measurement import HostFacts, LogFacts
from speccore.records import Sample

MIB = 1 << 20
HELD = 2048 * MIB
#: What a process on the card costs beside its own memory, at most.
CONTEXT = 1024 * MIB
MOST_CPU = 0.01


class Failed(AssertionError):
    """What was to be shown is not so."""


class NotShown(RuntimeError):
    """What it needs is not here."""


def need(truth: bool, words: str) -> None:
    if not truth:
        raise Failed(words)


@contextmanager
def load(n_bytes: int = HELD, *, busy: bool = True, seconds: float = 60) -> Iterator[int]:
    """A process with so much memory on the card; yields its pid."""
    argv = [sys.executable, "-m", "bench.gpu_load", str(n_bytes), str(seconds), *([] if busy else ["--idle"])]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout
            need(child.stdout.readline().strip() == "ready", "the load could not take memory on the card; its error stands above")
            yield child.pid
        finally:
            child.kill()


def watched(gpus: Gpus, pid: int, seconds: float) -> tuple[list[Sample], float]:
    """Samples beside that process, and the share of a core that they cost."""
    sampler = Sampler(pid, time.monotonic(), lambda: "probing", gpus)
    began = time.monotonic()
    sampler.start()
    time.sleep(seconds)
    sampler.stop()
    return sampler.samples, sampler.cpu_s / (time.monotonic() - began)


def facts(samples: Sequence[Sample], loaded: int) -> HostFacts:
    """As of an engine whose log says that it loaded so much."""
    log = LogFacts(devices=["CUDA0"], memory_mib={"target model CUDA0": loaded / MIB})
    return host_facts(list(enumerate(samples, 1)), log, None)


def sensors(gpus: Gpus, out: Path) -> str:
    need(bool(gpus.cards), f"NVIDIA's library shows no card: {gpus.status}")
    lacking = {name: why for name, why in gpus.sensors().items() if why != "ok"}
    now, _ = gpus.sample([], processes=True, rates=True)
    (out / "sensors.json").write_text(json.dumps({u: d.model_dump() for u, d in now.items()} | {"missing": lacking}, indent=1))
    need(all(d.used_bytes and d.temperature_c and d.clock_mhz for d in now.values()), "memory, temperature or clock is missing")
    return f"{len(gpus.cards)} cards; missing: {', '.join(lacking) or 'nothing'}"


def memory(gpus: Gpus, out: Path) -> str:
    before = used(gpus)
    with load(busy=False) as pid:
        samples, _ = watched(gpus, pid, 3)
        held = [sum(s.device_bytes.values()) for s in samples if s.device_bytes]
        if not held:
            raise NotShown("the driver doesn't list this process by its own number (in a container?): the whole card only")
        need(HELD <= held[-1] <= HELD + CONTEXT, f"the process holds {HELD / MIB:.0f} MiB, the sampler says {held[-1] / MIB:.0f}")
        need(used(gpus) - before >= 0.99 * HELD, "the card as a whole does not show the memory")
    deadline = time.monotonic() + 10
    while used(gpus) > before + 64 * MIB and time.monotonic() < deadline:
        time.sleep(0.2)
    need(used(gpus) <= before + 64 * MIB, "after its end the card does not have its memory back")
    return f"{HELD / MIB:.0f} MiB taken, {held[-1] / MIB:.0f} seen, given back"


def used(gpus: Gpus) -> int:
    now, _ = gpus.sample([], processes=False, rates=False)
    return sum(d.used_bytes or 0 for d in now.values())


def spill(gpus: Gpus, out: Path) -> str:
    with load(busy=False) as pid:
        samples, _ = watched(gpus, pid, 2)
    if not any(s.device_bytes for s in samples):
        raise NotShown("the driver doesn't list this process by its own number")
    whole, less = facts(samples, HELD), facts(samples, HELD + 2 * CONTEXT)
    need(host_checks.memory_placed({"t": whole}, {}).state == "passed", "memory that is there is called spilled")
    found = host_checks.memory_placed({"t": less}, {})
    need(found.state == "failed" and found.kind == "hard", "memory that is not there is not called spilled")
    return found.sentence


def others(gpus: Gpus, out: Path) -> str:
    with load(256 * MIB, busy=False) as mine:
        alone, _ = watched(gpus, mine, 4)
        with load(512 * MIB) as stranger:
            shared, _ = watched(gpus, mine, 6)
    quiet, disturbed = facts(alone, 1), facts(shared, 1)
    if quiet.others_busy_percent is None:
        raise NotShown("the driver doesn't tell each process's share here")
    need(host_checks.other_processes({"t": quiet}).state == "passed", f"alone, others are said to use {quiet.others_busy_percent} %")
    found = host_checks.other_processes({"t": disturbed})
    need(found.state == "failed" and stranger in disturbed.other_pids, f"a busy stranger is not seen: {found.sentence}")
    return found.sentence


def throttle(gpus: Gpus, out: Path) -> str:
    """Heat can't be made to order; that the reasons are read, and that a loaded card is not called held down for its power cap, can."""
    with load() as pid:
        samples, _ = watched(gpus, pid, 10)
    told = [d.throttle for s in samples for d in s.devices.values()]
    if None in told:
        raise NotShown("the card doesn't tell why its clock is held down")
    seen = sorted({why for reasons in told for why in reasons or []})
    check = host_checks.throttling({"t": facts(samples, 1)})
    need(not any(why.startswith("bit_") for why in seen), f"reasons without a name: {seen}")
    clocks = [s.clock_mhz for s in samples if s.clock_mhz]
    watts = [d.power_w for s in samples for d in s.devices.values() if d.power_w]
    return f"reasons seen: {', '.join(seen) or 'none'}; {check.sentence}; {min(clocks):.0f}–{max(clocks):.0f} MHz, up to {max(watts, default=0):.0f} W"


def cost(gpus: Gpus, out: Path) -> str:
    with load() as pid:
        samples, share = watched(gpus, pid, 20)
    need(share < MOST_CPU, f"the sampler takes {100 * share:.2f} % of a core")
    return f"{100 * share:.2f} % of one core at {len(samples) / 20:.1f} samples a second"


def recording(gpus: Gpus, out: Path) -> str:
    target = out / "nvml.jsonl"
    with load() as pid:
        argv = [sys.executable, "-m", "bench.record_nvml", str(target), "10", "--pid", str(pid)]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return f"{target}, {target.stat().st_size / 1e3:.0f} kB: copy it to tests/ as a fixture"


def doctor(gpus: Gpus, out: Path) -> str:
    with load() as stranger:
        found = fitness.gpu_findings(gpus)
    (out / "doctor.txt").write_text("".join(f"[{f.level}] {f.subject}: {f.text}\n" for f in found))
    users = [f for f in found if f.subject.endswith(" users")]
    need(any(f.level == "warn" for f in users), f"the doctor doesn't see process {stranger} on the card")
    return "; ".join(f.text for f in users)


def engine(gpus: Gpus, out: Path) -> str:
    server, model = os.environ.get("LLAMA_SERVER", ""), os.environ.get("MODEL", "")
    if not (server and model):
        raise NotShown("LLAMA_SERVER and MODEL are not set")
    with tempfile.TemporaryDirectory(prefix="specweb-gpu-") as folder:
        config, experiment = Path(folder) / "agent.yaml", Path(folder) / "experiment.yaml"
        config.write_text(yaml.safe_dump({"state_dir": folder, "runtimes": [{"path": server}], "models": [{"alias": "m", "path": model}]}))
        spec = {
            "name": "on a card",
            "target": {"model": "m"},
            "engine": {"context": 2048, "gpu_layers": 999},
            "arms": [{"name": "off", "mode": "off"}, {"name": "ngram", "mode": "ngram-simple", "draft_limit": 8}],
            "points": [{"workload": "count", "max_tokens": 128, "probes": 8}],
            "blocks": 3,
            "warmup": {"mode": "fixed"},
        }
        experiment.write_text(yaml.safe_dump(spec))
        run = out / f"run-{time.strftime('%H%M%S')}"
        argv = [sys.executable, "-m", "specagent.cli", "run", str(experiment), "--config", str(config), "--out", str(run)]
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=300)
        need(ran.returncode == 0, f"the run ended with {ran.returncode}: {ran.stderr[-500:]}")
    analysis = json.loads((run / "analysis.json").read_text())
    states = {c["name"]: c["state"] for c in analysis["comparisons"][0]["checks"]}
    need(states["memory placed as asked"] == "passed", f"memory placed as asked: {states['memory placed as asked']}")
    need(states["throttling"] != "not checked", "throttling was not checked")
    attempts = [json.loads(p.read_text()) for p in run.glob("attempts/*/attempt.json")]
    need(all(not a["leftover_pids"] for a in attempts), "an engine's process was left")
    return f"{len(attempts)} trials; {', '.join(f'{n}: {s}' for n, s in states.items())}"


def container(gpus: Gpus, out: Path) -> str:
    raise NotShown("engines don't run in containers yet")


PARTS: tuple[Callable[[Gpus, Path], str], ...] = (
    sensors,
    memory,
    spill,
    others,
    throttle,
    cost,
    recording,
    doctor,
    engine,
    container,
)


def main(out: Path) -> int:
    """0: all is shown; 1: something is wrong; 2: no card; 3: some could not be shown."""
    gpus = Gpus()
    if not gpus.cards:
        print(f"gpu_check: no GPU is seen ({gpus.status}). Nothing was shown.", file=sys.stderr)
        return 2
    results = []
    for part in PARTS:
        try:
            word, said = "shown", part(gpus, out)
        except NotShown as why:
            word, said = "NOT SHOWN", str(why)
        except Failed as why:
            word, said = "FAILED", str(why)
        except Exception as error:  # the other parts are worth their run all the same
            word, said = "FAILED", f"{type(error).__name__}: {error}"
        results.append({"part": part.__name__, "result": word, "said": said})
        print(f"{word:9}  {part.__name__}: {said}", flush=True)
    (out / "result.json").write_text(json.dumps(results, indent=1))
    words = {r["result"] for r in results}
    return 1 if "FAILED" in words else 3 if "NOT SHOWN" in words else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

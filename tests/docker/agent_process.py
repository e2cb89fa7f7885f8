"""An agent in a process of its own, so that it can be killed: runs one experiment in containers and prints what it does."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from specagent import local, runner
from specagent.config import Config
from specagent.filecache import FileCache
from specagent.inventory import take_inventory
from specagent.sinks import FolderSink
from specagent.sweep import sweep_records
from speccore.protocol import Running
from speccore.spec import ExperimentSpec
from speccore.workload import Workload


def main(order_file: str) -> None:
    order = json.loads(Path(order_file).read_text())
    config = Config.model_validate(order["config"])
    host = take_inventory(config, FileCache(config.state_dir / "files.json"))
    assert host.engine_records
    print("swept", len(sweep_records(host.engine_records, host.container_engines())), flush=True)
    workloads = {"numbers": Workload.model_validate(order["workload"])}
    job = runner.prepare(local.make_offer(ExperimentSpec.model_validate(order["spec"]), host, workloads), workloads, host)

    def tell(running: Running) -> None:
        print(running.phase, running.probe, flush=True)

    out = Path(order["out"])
    finished = runner.run_job(job, out / "work", FolderSink(out), threading.Event(), tell)
    print("finished", finished.outcome, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

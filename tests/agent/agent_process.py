"""An agent in a process of its own, so that it can be killed: runs one experiment and prints what it does, one phase a line."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from specagent import local, processes, runner
from specagent.config import Config
from specagent.filecache import FileCache
from specagent.inventory import take_inventory
from specagent.sinks import FolderSink
from specagent.sweep import sweep_records
from speccore.protocol import Running
from speccore.spec import ExperimentSpec
from speccore.workload import Workload

from tests.agent.fake_engines import fake_engine


def main(order_file: str) -> None:
    order = json.loads(Path(order_file).read_text())
    if not order["cgroup"]:
        processes.cgroup_parent = lambda: ""
    config = Config.model_validate(order["config"])
    host = take_inventory(config, FileCache(config.state_dir / "files.json"))
    host = fake_engine("in-a-process", order["program"], Path(order["folder"]), host)
    assert host.engine_records
    print("swept", sweep_records(host.engine_records), flush=True)
    workload = Workload.model_validate(order["workload"])
    out = Path(order["out"])
    offer = local.make_offer(ExperimentSpec.model_validate(order["spec"]), host, {workload.name: workload})
    job = runner.prepare(offer, {workload.name: workload}, host)

    def tell(running: Running) -> None:
        print(running.phase, running.probe, flush=True)

    finished = runner.run_job(job, out / "work", FolderSink(out), threading.Event(), tell)
    print("finished", finished.outcome, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

"""How a driver hands over its results: as JSON, with the CPU time that this took, which is no part of the client's."""

import json
import time
from collections.abc import Callable
from typing import Any


def write(path: str, requests: Callable[[], list[dict[str, Any]]]) -> None:
    """Two lines: the requests, and the CPU seconds spent on making and writing the first."""
    before = time.process_time()
    with open(path, "w") as out:
        out.write(json.dumps(requests()) + "\n")
        out.write(json.dumps(time.process_time() - before))

"""`make test-docker`: the tests of engines in containers, with a dockerd, network and processes of their own, of which nothing is left.

Where that can't be had it says what is missing and ends with 1: a test that did not run has not passed.
"""

import os
import shutil
import subprocess
import sys

NEEDED = {"dockerd": "docker.io", "containerd": "docker.io", "docker-init": "docker.io", "iptables": "iptables"}
NEEDED |= {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
#: What is started in here dies with its first process, and no rule of the machine's own firewall is touched.
OF_ITS_OWN = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]


def missing() -> str:
    """Why they can't run here, with what to do; empty if nothing stands against it."""
    if sys.platform != "linux":
        return "containers of Linux run on Linux only"
    if os.geteuid() != 0:
        return "dockerd must be started by root: sudo make test-docker"
    lacking = {program: package for program, package in NEEDED.items() if not shutil.which(program)}
    if lacking:
        packages = " ".join(sorted(set(lacking.values())))
        return f"{', '.join(lacking)} missing: apt-get install --no-install-recommends {packages}"
    tried = subprocess.run([*OF_ITS_OWN, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"no namespaces may be made here ({tried.stderr.strip()}): run it on a machine, or in a container with --privileged"
    return ""


def main() -> int:
    if why := missing():
        print(f"test-docker: {why}", file=sys.stderr)
        return 1
    pytest = [sys.executable, "-m", "pytest", *(sys.argv[1:] or ["tests/docker"])]
    return subprocess.run([*OF_ITS_OWN, *pytest], env={**os.environ, "SPECWEB_TEST_DOCKER": "1"}).returncode


if __name__ == "__main__":
    sys.exit(main())

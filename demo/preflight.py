"""Checks in a second, before anything is downloaded, whether this machine can run SpecWeb, and says how to mend what is missing.

    python3 demo/preflight.py demo      # everything that `make demo` needs
    python3 demo/preflight.py tools     # what `make test` and `make check` need

Standard library only, and readable by every Python 3.6 and newer, since an old one must get the message too.
"""

import ctypes
import errno
import os
import platform
import pwd
import shlex
import shutil
import socket
import subprocess
import sys
import time

NEEDS_PYTHON = (3, 11)
NEEDS_GLIBC = (2, 35)
NEEDS_DISK_BYTES = 2 * 10**9
PORTS_TRIED = 100
# A name from each: a removed package can leave an empty folder, which Python imports without a word.
MAKES_ENVIRONMENTS = "from ensurepip import bootstrap; from venv import create"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# In the state folder while the service is up: what manage.py must know to speak with it.
ENVIRONMENT_FILE = "environment.json"


def default_home():
    """Where the demo keeps its state, by SPECWEB_HOME or the documented defaults."""
    named = os.environ.get("SPECWEB_HOME")
    if named:
        return os.path.abspath(os.path.expanduser(named))
    return "/var/lib/specweb" if os.geteuid() == 0 else os.path.join(ROOT, ".specweb")


def installer(debian, fedora):
    """The command that installs a package here, by the package manager that is there."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    if shutil.which("apt-get"):
        return f"{sudo}apt-get update && {sudo}apt-get install -y {debian}"
    if shutil.which("dnf"):
        return f"{sudo}dnf install -y {fedora}"
    return f"install the package that Debian calls {debian} and Fedora calls {fedora}"


def starts(program):
    """Whether this interpreter runs and can make environments; a version manager may have a name for one that it then refuses."""
    try:
        return subprocess.call([program, "-c", MAKES_ENVIRONMENTS], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def check_python():
    if sys.version_info[:2] < NEEDS_PYTHON:
        newer = next((n for n in ("python3.14", "python3.13", "python3.12", "python3.11") if starts(n)), None)
        remedy = f"make demo PYTHON={newer}" if newer else installer("python3.11 python3.11-venv", "python3.11")
        return "Python {}.{} is older than 3.11".format(*sys.version_info[:2]), remedy
    try:
        exec(MAKES_ENVIRONMENTS)
    except ImportError as error:
        package = "python{}.{}-venv".format(*sys.version_info[:2])
        return f"Python has no module {error.name}, which makes virtual environments", installer(package, "python3")
    return None


def check_machine():
    if os.environ.get("LLAMA_SERVER"):
        return None
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "AMD64", "amd64"):
        return (
            f"the llama-server that comes along is for x86-64 Linux, this is {machine} {system}",
            "make demo LLAMA_SERVER=/path/to/llama-server DATABASE_URL=postgres://... BROKER_URL=redis://...",
        )
    return None


def check_glibc():
    if os.environ.get("LLAMA_SERVER"):
        return None
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
        found = tuple(int(part) for part in version.split(".")[:2])
    except (ValueError, OSError):
        name, version, found = "another C library", "", (0, 0)
    if found < NEEDS_GLIBC:
        return (
            f"the llama-server that comes along needs glibc 2.35 or newer, this system has {name} {version}".rstrip(),
            "make demo LLAMA_SERVER=/path/to/a/llama-server/built/here",
        )
    return None


def check_libgomp():
    if os.environ.get("LLAMA_SERVER"):
        program = os.path.expanduser(os.environ["LLAMA_SERVER"])
        if os.access(program, os.X_OK) and os.path.isfile(program):
            return None
        return "LLAMA_SERVER={} is no program".format(os.environ["LLAMA_SERVER"]), "ls -l {}".format(
            shlex.quote(os.environ["LLAMA_SERVER"])
        )
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        return "the library libgomp.so.1 is missing, which llama-server loads", installer("libgomp1", "libgomp")
    return None


def parents(path):
    """The path and every folder above it, the nearest first."""
    while True:
        yield path
        if path == os.path.dirname(path):
            return
        path = os.path.dirname(path)


def nearest_folder(path):
    return next(folder for folder in parents(path) if os.path.isdir(folder))


def check_disk():
    home = default_home()
    if shutil.disk_usage(nearest_folder(home)).free < NEEDS_DISK_BYTES:
        return f"less than 2 GB are free for the state folder {home}", "make demo SPECWEB_HOME=/folder/on/another/disk"
    if not os.path.exists(os.path.join(ROOT, ".venv")) and shutil.disk_usage(ROOT).free < NEEDS_DISK_BYTES:
        return (
            f"less than 2 GB are free in {ROOT}",
            f"du -xh --max-depth=2 {shlex.quote(ROOT)} | sort -h | tail    # or clone to another disk",
        )
    return None


def first_free_port(port):
    """The first port from ``port`` on that can be bound on loopback, or None."""
    for candidate in range(port, min(port + PORTS_TRIED, 65536)):
        with socket.socket() as s:
            # As the web server will: a port whose last connections linger counts as free.
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", candidate))
            except OSError as error:
                if error.errno in (errno.EADDRINUSE, errno.EACCES):
                    continue
                raise
            return candidate
    return None


def check_port():
    given = os.environ.get("PORT") or "8000"
    if not given.isdigit() or not 0 < int(given) < 65536:
        return f"PORT={given} is no port number", "make demo PORT=8000"
    try:
        if first_free_port(int(given)) is None:
            return f"no free port from {given} on", "make demo PORT=18000"
    except OSError as error:
        return f"no port can be bound on 127.0.0.1 ({error.strerror})", "ip address add 127.0.0.1/8 dev lo && ip link set lo up"
    return None


def check_clone():
    for path in (ROOT, os.path.join(ROOT, ".venv")):
        if os.path.isdir(path) and not os.access(path, os.W_OK | os.X_OK):
            return f"{path} is not writable", "sudo chown -R {} {}".format(os.environ.get("USER") or os.getuid(), shlex.quote(path))
    return None


def check_home():
    home = default_home()
    existing = nearest_folder(home)
    blocked = next((path for path in parents(home) if os.path.lexists(path) and not os.path.isdir(path)), None)
    if blocked:
        return f"the state folder {home} can't be made: {blocked} is no folder", "make demo SPECWEB_HOME=/a/folder/of/yours"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"the state folder {home} can't be written", "make demo SPECWEB_HOME=/a/folder/of/yours"
    if os.geteuid() == 0 and not (os.environ.get("DATABASE_URL") and os.environ.get("BROKER_URL")):
        return check_service_user(home)
    return None


def check_service_user(home):
    """PostgreSQL refuses root, so the servers run as an ordinary user, who must get to the state folder. We open none for it."""
    name = os.environ.get("SPECWEB_USER", "nobody")
    try:
        pwd.getpwnam(name)
    except KeyError:
        return f"the servers' user {name} does not exist", f"useradd --system --no-create-home {shlex.quote(name)}"
    for path in parents(os.path.dirname(home)):
        if os.path.isdir(path) and not os.stat(path).st_mode & 0o001:
            return (
                f"the servers' user {name} can't enter {path}, where the state folder {home} lies",
                "make demo SPECWEB_HOME=/var/lib/specweb",
            )
    return None


CHECKS = {
    "tools": [check_python, check_machine, check_glibc, check_libgomp, check_disk, check_clone],
    "demo": [check_python, check_machine, check_glibc, check_libgomp, check_disk, check_port, check_clone, check_home],
}


def main(arguments):
    if len(arguments) != 1 or arguments[0] not in CHECKS:
        print("usage: preflight.py {}".format("|".join(CHECKS)), file=sys.stderr)
        return 2
    began = time.time()
    faults = [fault for fault in (check() for check in CHECKS[arguments[0]]) if fault]
    for what, remedy in faults:
        print(f"preflight: {what}.\n    mend it:  {remedy}", file=sys.stderr)
    if faults:
        return 1
    print(f"preflight: this machine will do ({time.time() - began:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The connection to this host's container engine (Docker), and its failures in words."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from speccore.errors import HostError

USUAL_SOCKET = "unix:///var/run/docker.sock"
#: Of one answer. An engine of containers that is slower than this is of no use to a measurement.
_TIMEOUT_S = 30.0


class ContainerEngineUnusable(HostError):
    code = "container_engine_unusable"
    retry = False
    remedy = "Start the container engine and let this user use it; `specweb-agent doctor` tells whether it answers."


def address_of(configured: str) -> str:
    """The owner's, else what DOCKER_HOST names, else the usual socket. Raises :class:`ContainerEngineUnusable` for one of another machine."""
    address = configured or os.environ.get("DOCKER_HOST") or USUAL_SOCKET
    if not address.startswith("unix://"):
        raise ContainerEngineUnusable(
            f"the container engine at {address} is not reached by a socket of this machine",
            remedy=f"Name a socket, as {USUAL_SOCKET}: models are mounted from this machine, and the engine is measured from it.",
        )
    return address


@contextlib.contextmanager
def connected(address: str, timeout_s: float = _TIMEOUT_S) -> Iterator[Any]:
    """The SDK's low-level client. What goes wrong within is raised as :class:`ContainerEngineUnusable`, but for answers about a thing
    that isn't there or can't be had, which are the SDK's ``APIError``."""
    try:
        import docker
        import requests
    except ImportError as error:
        raise ContainerEngineUnusable(
            "the Docker SDK is not installed beside the agent", remedy="pip install 'specweb-agent[docker]'"
        ) from error
    client = None
    try:
        client = docker.APIClient(base_url=address, version="auto", timeout=timeout_s)
        yield client
    except docker.errors.APIError:
        raise
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        raise ContainerEngineUnusable(f"the container engine at {address} does not answer: {_innermost(error)}") from error
    finally:
        if client is not None:
            client.close()


def explained(error: Exception) -> str:
    """What the engine says of a refusal, without the address that was asked."""
    return str(getattr(error, "explanation", "") or error).strip().removeprefix("Error response from daemon: ")


def _innermost(error: BaseException) -> str:
    """Libraries wrap the operating system's word in several layers."""
    while error.__context__ is not None and not isinstance(error, FileNotFoundError | PermissionError | ConnectionRefusedError):
        error = error.__context__
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)

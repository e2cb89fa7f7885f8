"""Client of SpecWeb's public API, and the command line ``specweb``."""

from importlib import metadata

try:
    __version__ = metadata.version("specweb-agent")
except metadata.PackageNotFoundError:  # run from a folder of sources
    __version__ = "0"

from .client import Client
from .errors import ApiError, ClientError

__all__ = ["ApiError", "Client", "ClientError", "__version__"]

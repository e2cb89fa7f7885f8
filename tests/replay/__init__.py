"""The replay server: stands where an engine stands and streams what a script says, when the script says it, over real sockets."""

from .scripted import Played, ReplayServer, Script

__all__ = ["Played", "ReplayServer", "Script"]

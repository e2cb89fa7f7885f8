"""What to do about an engine build that looks odd, by the words that the agent found for it."""

from __future__ import annotations

import re

_OTHER_PROCESSOR = "Take a build for this processor, or one with all variants of its processor library."
#: The first that is found in the words counts.
_REMEDIES: tuple[tuple[str, str], ...] = (
    (r"this processor doesn't have|for this processor", _OTHER_PROCESSOR),
    (r"^crashes|^doesn't end", "Run it by hand in the same way to see why; install it anew, or take another build."),
    (r"^ends with|^can't be started", "Run it by hand in the same way to see what it complains of."),
    (r"^prints nothing at --version", "Go by its hash, or build it from a checkout with its history, so that it has a version to print."),
    (
        r"^says build 1 or 0",
        "Go by commit and hash, or build it from a full clone (git fetch --unshallow) for a number that tells builds apart.",
    ),
    (r"no --spec-type: it is an older one", "Enough for a draft model; for the other modes take a newer build."),
    (r"only baselines run on it", "Take a build whose help lists --spec-type."),
    (r"although there is one beside the program", "Put the program's own folder first in LD_LIBRARY_PATH, under env of this runtime."),
    (
        r"^its libraries come from",
        "Install it whole in one folder, or set LD_LIBRARY_PATH under env of this runtime to the one that is meant.",
    ),
    (r"holds its name only", "Nothing, if that distribution is the one that you mean to measure."),
    (
        r"is not as it was installed",
        "Install it anew (pip install --force-reinstall --no-deps), unless the change is what you measure: its hash covers it.",
    ),
    (r"code from elsewhere", "Install it without -e, so that what runs is what its identity covers."),
    (r"nothing is part of its identity", "Name the engine's own executable, whose libraries are then part of the identity."),
    (r"by no file", "For results that can be told apart by build let SpecWeb start the engine: name it under runtimes with its path."),
    (r"servers are of different builds", "Start all of them with one build: otherwise arms differ by more than speculation."),
    (r"servers serve different models", "Let all of them serve the same model: otherwise nothing can be compared."),
    (r"not on this machine", "Run the agent where the servers are: else the network's time is in every number."),
    (r"only an agent that is root closes that", "Bind what else listens on this machine to loopback, or run the agent as root."),
)
_LOOK = "See whether this is the build that you mean to offer; nothing else stands in its way."
_MAY_CRASH = re.compile(r"which this processor doesn't have: it may crash|^none of its processor libraries .* is for this processor")


def remedy(odd: str) -> str:
    """One or two sentences; never empty."""
    return next((words for pattern, words in _REMEDIES if re.search(pattern, odd)), _LOOK)


def is_disproved_by_running(odd: str) -> bool:
    """Whether it only fears what a job that ran well shows not to happen."""
    return _MAY_CRASH.search(odd) is not None

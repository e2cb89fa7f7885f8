"""vLLM's log: version, speculation, memory, what it settled by itself, and why a start failed.

It tells of drafts only in sums of ten seconds, and nothing of single requests. An unknown wording gives nothing, never zero.
"""

from __future__ import annotations

import re

from ..errors import (
    ArmNotSupported,
    EngineExitedAtStart,
    EngineOutOfMemory,
    FlagRefused,
    HeadMissing,
    ModelFileMissing,
    PortUnavailable,
    SpecError,
    SpecWebError,
    VocabMismatch,
)
from ..measurement import LogFacts
from . import failures
from .failures import Fault, Found, Told, fault, first_fault, lines_of
from .shapes import LogRequest
from .vllm_counts import log_intervals
from .vllm_settled import CONFIG, SPECULATION, STAMP, settled

_MEMORY_REMEDY = (
    "Use a smaller context, fewer slots or a smaller helper model, or raise the memory that the engine may take "
    "(--gpu-memory-utilization; on a CPU VLLM_CPU_KVCACHE_SPACE)."
)
_CODE_REMEDY = "SpecWeb runs no code out of a model's folder (--trust-remote-code): take a model that the engine knows by itself."
#: In order of weight: the first kind that the log has names the failure.
_FAULTS: tuple[Fault, ...] = (
    fault(FlagRefused, r"error: (unrecognized arguments|argument .*: |ambiguous option|the following arguments)"),
    fault(PortUnavailable, r"address already in use|\[Errno 98\]"),
    fault(
        EngineExitedAtStart,
        r"torchvision::nms does not exist",
        "The environment holds builds of torchvision, torchaudio or torchcodec for another torch: uninstall them there.",
    ),
    fault(
        EngineOutOfMemory,
        r"out of memory|OutOfMemoryError|No available memory for the cache blocks|is larger than the available KV cache memory"
        r"|Free memory on device .* is less than|Available memory on node .* is less than|can't allocate memory|Cannot allocate memory"
        r"|std::bad_alloc|\bMemoryError\b|KV cache.*larger than the maximum number of tokens",
        _MEMORY_REMEDY,
    ),
    fault(VocabMismatch, r"same vocabulary size|vocab(ulary)? size.*(mismatch|must match|differ)"),
    fault(HeadMissing, r"Unsupported speculative method: '\w*mtp'|has no MTP|no (mtp|nextn) (layers|weights|head)"),
    fault(
        ArmNotSupported, r"Unsupported speculative method|speculative.*(is )?not supported|NotImplementedError: \w+ is not supported yet"
    ),
    fault(SpecError, r"contains custom code|trust_remote_code=True|trust-remote-code", _CODE_REMEDY),
    fault(
        SpecError,
        r"Model architectures .* are not supported|architecture .* is not supported|does not recognize this architecture",
        "Take a model whose architecture this build knows, or another build.",
    ),
    fault(
        ModelFileMissing,
        r"No such file or directory|does not appear to have a file named|Can't load the configuration|Repo id must be"
        r"|Invalid repository ID or local directory|Cannot find any model weights|LocalEntryNotFoundError|is not a valid model identifier"
        r"|couldn't connect to 'https://huggingface",
    ),
    fault(FlagRefused, r"^ *Input should be|^ *Value error, |ValueError: .*(must be|should be)"),
)
#: A failure that fits no kind is told by the last of these lines: a traceback ends with its reason.
_ANY_ERROR = re.compile(r"(?:Error|Exception): |error: |Segmentation fault|Illegal instruction|core dumped")
#: What only says that another process's failure follows or went before.
_SECOND_HAND = re.compile(
    r"See root cause above|Engine core initialization failed|EngineCore failed to start|WorkerProc initialization failed"
)
#: A frame of a traceback, or its line of source.
_OF_TRACEBACK = re.compile(r'\s+(File "|\s{2,}|\S*\^)')
_LOADED = re.compile(r"Application startup complete|Starting vLLM (?:API )?server|Started server process")
_ENDS = 2000  # lines at each end of a log of errors that are looked at; what is told again and again between them is no news
_MOST = 300  # characters of a line, in a message
_VERSION = re.compile(r"\bversion (\d[\w.+-]*)")
_DEVICE = re.compile(r"\bdevice_config=(\w+)")
_SLOTS = re.compile(r"'max_num_seqs': (\d{1,6})\b")


def parse_log(text: str) -> LogFacts:
    """What the log tells, each with its line (from 1). An empty log gives empty facts."""
    lines = lines_of(text)
    update: dict[str, object] = {}
    device = ""
    for number, line in enumerate(lines, 1):
        if "engine (" in line and (match := CONFIG.search(line)):
            update.setdefault("build", match["version"].removeprefix("v"))
            if (spoken := SPECULATION.search(match["config"])) and "speculation_line" not in update:
                update |= {"speculation": spoken["method"] or "", "speculation_line": number}
            if (found := _DEVICE.search(match["config"])) and not device:
                device = found[1]
        elif "█" in line and (match := _VERSION.search(line)):
            update.setdefault("build", match[1])
        elif "n_slots" not in update and "max_num_seqs" in line and (match := _SLOTS.search(line)):
            update["n_slots"] = int(match[1])
    told = settled(lines, device or "host")
    if isinstance(length := told.values.get("max_model_len"), float):
        update["context_per_slot"] = int(length)
    if found_fault := _first_fault(lines):
        kind, number, line = found_fault
        update |= {"error_code": kind.error.code, "error": _plain(line), "error_line": number}
    return LogFacts().model_copy(
        update={
            **update,
            "backend_devices": [device] if device else [],
            "devices": [device] if device and device != "cpu" else [],
            "memory_mib": told.memory_mib,
            "settled": told.values,
            "settled_lines": told.lines,
            "draft_acceptance": [{"line": n, "accepted": accepted, "drafted": drafted} for n, drafted, accepted in log_intervals(text)],
        }
    )


def log_requests(text: str) -> list[LogRequest]:
    """vLLM's log tells nothing of single requests."""
    return []


def _first_fault(lines: list[str]) -> Found | None:
    return first_fault(_FAULTS, _telling_lines(lines))


def _telling_lines(lines: list[str]) -> list[tuple[int, str]]:
    """Lines that can name a fault: errors, and lines without a level that are no request's text. The command itself is none."""
    found, loaded = [], False
    for number, line in enumerate(lines, 1):
        loaded = loaded or bool(_LOADED.search(line))
        stamp = STAMP.match(line)
        level, said = (stamp["level"], line[stamp.end() :]) if stamp else (None, line)
        if _OF_TRACEBACK.match(said):
            continue
        if level in ("ERROR", "CRITICAL") or (level is None and (not loaded or (stamp and stamp["who"]))):
            found.append((number, line))
    found = found[1:] if found and found[0][1].startswith("CMD: ") else found
    return found if len(found) <= 2 * _ENDS else [*found[:_ENDS], *found[-_ENDS:]]


def _plain(line: str) -> str:
    """A log line less its process, time and level."""
    said = STAMP.sub("", line).strip()
    return said if len(said) <= _MOST else f"{said[:_MOST]}…"


def _told(log_text: str) -> Told:
    lines = lines_of(log_text)
    errors = [(n, line) for n, line in _telling_lines(lines) if _ANY_ERROR.search(line)]
    first_hand = [e for e in errors if not _SECOND_HAND.search(e[1])]
    last = (first_hand or errors)[-1] if errors else None
    return Told("vLLM", lines, _first_fault(lines), last, _plain, _MEMORY_REMEDY)


def memory_fault(log_text: str, exit_code: int | None, *, kernel_oom: bool = False) -> EngineOutOfMemory | None:
    """Whether an engine that died while it answered did so for want of memory: by its log, or by the kernel's hand."""
    return failures.memory_fault(_told(log_text), exit_code, kernel_oom=kernel_oom)


def start_failure(log_text: str, exit_code: int | None, *, kernel_oom: bool = False) -> SpecWebError:
    """The typed reason why an engine did not start; see :func:`speccore.engines.failures.start_failure`."""
    return failures.start_failure(_told(log_text), exit_code, kernel_oom=kernel_oom)

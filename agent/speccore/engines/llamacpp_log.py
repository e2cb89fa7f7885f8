"""llama-server's log: build, memory, speculation, each request's figures, and why a start failed.

The wording has changed often; several grammars are read, and an unknown one gives nothing, never zero.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeVar

from ..errors import (
    EngineOutOfMemory,
    FlagRefused,
    HeadMissing,
    ModelFileMissing,
    PortUnavailable,
    SpecWebError,
    VocabMismatch,
)
from ..measurement import LogFacts
from . import failures
from .failures import Fault, Found, Told, fault, first_fault, lines_of
from .llamacpp_settled import settled
from .shapes import DrafterShare, LogRequest

_N = TypeVar("_N", int, float)


_MEMORY_REMEDY = "Use a smaller context, fewer slots, fewer gpu_layers or a smaller helper model."
#: In order of weight: the first kind that the log has names the failure.
_FAULTS: tuple[Fault, ...] = (
    fault(FlagRefused, r"error while handling argument|^error: (invalid|unknown) argument|the argument has been removed"),
    fault(PortUnavailable, r"couldn'?t bind (to server|HTTP server) socket|address already in use"),
    fault(VocabMismatch, r"draft model vocab .*must match"),
    fault(VocabMismatch, r"target and draft vocabs? are not compatible|draft model .*not compatible with the target model"),
    fault(HeadMissing, r"model doesn'?t contain (MTP|EAGLE\w*) layers"),
    fault(
        EngineOutOfMemory,
        r"out of memory|insufficient memory|std::bad_alloc|failed to allocate(?!.*pinned)|cannot allocate memory|ErrorOutOf(Device|Host)Memory"
        r"|unable to allocate|not enough (device |host )?memory|cudaMalloc failed|hipMalloc failed",
        _MEMORY_REMEDY,
    ),
    fault(HeadMissing, r"failed to create MTP context"),  # after memory, for want of which it fails too
    fault(ModelFileMissing, r"failed to open GGUF file|(model|gguf).*No such file or directory"),
)
#: A failure that fits no kind is told by the first of these lines.
_ANY_ERROR = re.compile(
    r"^[\d.]+ [EF] |^error\b|GGML_ASSERT|terminate called|what\(\):|Segmentation fault|Illegal instruction", re.IGNORECASE
)
_STAMP = re.compile(r"^\d+\.\d+\.\d+\.\d+ (?P<level>[A-Z]) ")
_LOADED = re.compile(r"model loaded|server is listening")
#: How a line without a time begins when the engine breaks down after loading; others may be text of a prompt.
_BREAKDOWN = ("terminate called", "  what():", "CUDA error", "ggml_", "GGML_ASSERT", "/")

#: Numbers as the engine prints them; a longer run of digits is garbage.
_COUNT, _REAL = r"[0-9]{1,15}(?![0-9])", r"[0-9]{1,15}(?:\.[0-9]{1,9})?(?![0-9.])"

_BUILD = re.compile(r"common_params_print_info: build (?P<build>.+)$")
_DEVICE = re.compile(r"common_param: +- (?P<device>\S+) +:")
_BUFFER = re.compile(rf"\s(?P<device>\S+)\s+(?P<what>model|KV|RS|compute|output) buffer size = +(?P<mib>{_REAL}) MiB")
#: Buffers in the host's memory, pinned ones too; any other is on a device.
_IN_HOST = re.compile(r"^(CPU|AMX|BLAS)|_Host$")
_OFFLOADED = re.compile(rf"offloaded (?P<layers>{_COUNT}/{_COUNT}) layers to GPU")
_DRAFT_BEGINS = re.compile(r"loading draft model|creating MTP draft context|creating \w+ draft context", re.IGNORECASE)
_SLOTS = re.compile(rf"initializing(?: slots)?, n_slots = (?P<slots>{_COUNT})(?:, n_ctx_slot = (?P<context>{_COUNT}))?")
_SLOT_CONTEXT = re.compile(rf"new slot,? n_ctx(?:_slot)? = (?P<context>{_COUNT})")
_IMPLEMENTATION = re.compile(r"adding speculative implementation '(?P<type>[\w-]+)'")

_PROMPT = re.compile(rf"prompt eval time = +{_REAL} ms / +(?P<tokens>{_COUNT}) tokens")
_EVAL = re.compile(rf"(?<!prompt )eval time = +(?P<ms>{_REAL}) ms / +(?P<tokens>{_COUNT}) (?:tokens|runs)")
_ACCEPTANCE = re.compile(
    rf"draft acceptance(?: rate)? = +{_REAL} \( *(?P<accepted>{_COUNT}) accepted / +(?P<drafted>{_COUNT}) generated\)"
    rf"(?:, mean (?:len|acceptance length) = +(?P<mean>{_REAL}))?"
)
_POSITIONS = re.compile(rf"acc per pos = \((?P<rates>(?:{_REAL}(?:, *)?)*)\)")
_STATISTICS = re.compile(
    rf"statistics +(?P<type>\S+?): .*#gen drafts = +(?P<drafts>{_COUNT}),"
    rf"(?:.*?#gen tokens = +(?P<drafted>{_COUNT}), #acc tokens = +(?P<accepted>{_COUNT}))?"
    rf".*?(?:dur\(b,g,a\) = (?P<ms>{_REAL}, {_REAL}, {_REAL}) ms)?$"
)


def parse_log(text: str) -> LogFacts:
    """What the log tells, each with its line (from 1). An empty log gives empty facts."""
    facts = LogFacts()
    memory: dict[str, float] = {}
    types: list[str] = []
    update: dict[str, object] = {}
    owner = "target"
    for number, line in enumerate(lines_of(text), 1):
        if match := _BUILD.search(line):
            update["build"] = match["build"]
        elif match := _DEVICE.search(line):
            update.setdefault("backend_devices", []).append(match["device"])  # type: ignore[attr-defined]
        elif _DRAFT_BEGINS.search(line):
            owner = "draft"
        elif match := _BUFFER.search(line):
            _add_buffer(memory, owner, match)
        elif (match := _OFFLOADED.search(line)) and owner == "target":
            update["layers_offloaded"] = match["layers"]
        elif match := _SLOTS.search(line):
            update["n_slots"] = int(match["slots"])
            if match["context"]:
                update["context_per_slot"] = int(match["context"])
        elif match := _SLOT_CONTEXT.search(line):
            update.setdefault("context_per_slot", int(match["context"]))
        elif match := _IMPLEMENTATION.search(line):
            types.append(match["type"])
            update.setdefault("speculation_line", number)
    if found := _first_fault(text):
        kind, number, line = found
        update |= {"error_code": kind.error.code, "error": _plain(line), "error_line": number}
    acceptance = [
        {
            "line": r.acceptance_line,
            "accepted": r.accepted,
            "drafted": r.drafted,
            "mean_length": r.mean_length,
            "rate_by_position": r.rate_by_position,
        }
        for r in log_requests(text)
        if r.acceptance_line is not None
    ]
    update["devices"] = sorted({d for d in (key.rpartition(" ")[2] for key in memory) if not _IN_HOST.search(d)})
    update["settled"], update["settled_lines"] = settled(lines_of(text))
    return facts.model_copy(update={**update, "memory_mib": memory, "speculation": ",".join(types), "draft_acceptance": acceptance})


def _add_buffer(memory: dict[str, float], owner: str, match: re.Match[str]) -> None:
    """Caches of several kinds add up; a compute buffer is reserved anew and the larger counts."""
    key = f"{owner} {match['what']} {match['device']}"
    size, known = float(match["mib"]), memory.get(key, 0.0)
    if size > 0:
        memory[key] = max(known, size) if match["what"] == "compute" else round(known + size, 2)


def log_requests(text: str) -> list[LogRequest]:
    """Each answered request in the order of its lines. The ``statistics`` lines count over the whole process, so each
    request's share is their growth, summed over the drafters."""
    found: list[LogRequest] = []
    before: dict[str, _Tally] = {}
    for number, line in enumerate(lines_of(text), 1):
        if match := _PROMPT.search(line):
            found.append(LogRequest(line=number, prompt_tokens=int(match["tokens"])))
        elif not found:
            continue
        elif match := _EVAL.search(line):
            found[-1] = found[-1].model_copy(update={"line": number, "tokens": int(match["tokens"]), "eval_ms": float(match["ms"])})
        elif match := _ACCEPTANCE.search(line):
            update = {"acceptance_line": number, "drafted": int(match["drafted"]), "accepted": int(match["accepted"])}
            found[-1] = found[-1].model_copy(update={**update, "mean_length": float(match["mean"]) if match["mean"] else None})
        elif match := _POSITIONS.search(line):
            found[-1] = found[-1].model_copy(update={"rate_by_position": [float(r) for r in match["rates"].split(",") if r.strip()]})
        elif match := _STATISTICS.search(line):
            found[-1] = _with_statistics(found[-1], number, match, before)
    return found


class _Tally(NamedTuple):
    """A drafter's figures since the process began."""

    drafts: int | None = 0
    drafted: int | None = 0
    accepted: int | None = 0
    ms: float | None = 0.0


def _with_statistics(request: LogRequest, number: int, match: re.Match[str], before: dict[str, _Tally]) -> LogRequest:
    """Adds one drafter's growth since its line before. A figure that shrank was reset: its growth is not known."""
    drafted, accepted = (None if (text := match[name]) is None else int(text) for name in ("drafted", "accepted"))
    now = _Tally(int(match["drafts"]), drafted, accepted, sum(map(float, match["ms"].split(","))) if match["ms"] else None)
    earlier = before.get(match["type"], _Tally())
    before[match["type"]] = now
    drafts, grown_ms = _growth(earlier.drafts, now.drafts), _growth(earlier.ms, now.ms)
    share = DrafterShare(
        type=match["type"],
        line=number,
        drafts=drafts,
        drafted=_growth(earlier.drafted, now.drafted),
        accepted=_growth(earlier.accepted, now.accepted),
        draft_ms=None if grown_ms is None else round(grown_ms, 3),
    )
    first = request.statistics_line is None
    steps = _sum(0 if first else request.verify_steps, drafts)
    ms = _sum(0.0 if first else request.draft_ms, grown_ms)
    update = {"statistics_line": number, "verify_steps": steps, "draft_ms": None if ms is None else round(ms, 3)}
    return request.model_copy(update={**update, "drafters": [*request.drafters, share]})


def _growth(before: _N | None, now: _N | None) -> _N | None:
    return None if before is None or now is None or now < before else now - before


def _sum(before: _N | None, growth: _N | None) -> _N | None:
    return None if before is None or growth is None else before + growth


def _first_fault(text: str) -> Found | None:
    return first_fault(_FAULTS, _telling_lines(text))


def _telling_lines(text: str) -> list[tuple[int, str]]:
    """Lines that can name a fault: warnings and errors, and lines without a level that are no prompt's text."""
    found, loaded = [], False
    for number, line in enumerate(lines_of(text), 1):
        loaded = loaded or bool(_LOADED.search(line))
        stamp = _STAMP.match(line)
        if stamp["level"] in "EWF" if stamp else not loaded or line.startswith(_BREAKDOWN):
            found.append((number, line))
    return found


def _plain(line: str) -> str:
    """A log line less its time and level."""
    return _STAMP.sub("", line).strip()


def _told(log_text: str) -> Told:
    any_error = next(((i, line) for i, line in _telling_lines(log_text) if _ANY_ERROR.search(line)), None)
    return Told("llama-server", lines_of(log_text), _first_fault(log_text), any_error, _plain, _MEMORY_REMEDY)


def memory_fault(log_text: str, exit_code: int | None, *, kernel_oom: bool = False) -> EngineOutOfMemory | None:
    """Whether an engine that died while it answered did so for want of memory: by its log, or by the kernel's hand."""
    return failures.memory_fault(_told(log_text), exit_code, kernel_oom=kernel_oom)


def start_failure(log_text: str, exit_code: int | None, *, kernel_oom: bool = False) -> SpecWebError:
    """The typed reason why an engine did not start; see :func:`speccore.engines.failures.start_failure`."""
    return failures.start_failure(_told(log_text), exit_code, kernel_oom=kernel_oom)

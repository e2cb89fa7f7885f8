"""A third engine for tests, as SpecWeb knows one: all of it is this module. Its program is ``toy_server.py``.

It stands for the claim of docs/engines.md that a new engine is one module. Flags, paths, stream and counters are its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from speccore.cycles import accepted_by_position
from speccore.engines.arrival import Arrival
from speccore.engines.shapes import SYMBOLIC, Asked, Bindings, LogRequest, MetricsPair, ParsedStream, ProbeCounts, Rendered
from speccore.engines.streams import Content, count, ids_of, read_stream
from speccore.engines.trust import contradictions, differing, missing, trusted, window_sums
from speccore.errors import ArmNotSupported, EngineExitedAtStart, EngineOutOfMemory, ErrorBody, FlagNotAllowed, SpecWebError
from speccore.inventory import Capabilities
from speccore.measurement import Counters, LogFacts, Number, Source, value_of
from speccore.records import METRICS, RECORDS, StreamRecord
from speccore.spec import BASELINE_MODE, Arm, EngineSettings, ExperimentSpec, Point

__all__ = ["SYMBOLIC", "Bindings", "Rendered"]

ASKED = Asked("toy", needed=("--weights", "--listen"), packaged="script")
LOADED_PATHS = ("/about",)
BUILD_PATH = TEMPLATE_PATH = SYNTHETIC_FLAG = ""
MODEL_ENDING, MODEL_FORMATS = ".gguf", ("gguf",)
IMAGES: dict[str, str] = {}
IMAGE_ENTRY = 0
SPEC_TYPES = {"ngram-simple": "guess"}
OWNED_FLAGS = frozenset({"--weights", "--listen", "--room"})
DEFAULT_ALLOWED_FLAGS = ["--shout"]
MEASURING_FLAGS: dict[str, str] = {}
NEVER_ENVIRONMENT: dict[str, str] = {}

_FLAG = re.compile(r"^\s+(--[a-z]+)", re.MULTILINE)


# --- commands ---


def capabilities(help_text: str) -> Capabilities:
    flags = {flag: flag for flag in _FLAG.findall(help_text)}
    return Capabilities(dialect="toy", flags=flags, spec_types=["guess"] if "--guess" in flags else [])


def is_speculation(flag: str) -> bool:
    return flag == "--guess"


def without_speculation(argv: list[str]) -> list[str]:
    own = {"--guess", "--listen"}  # a port is drawn at each start
    return [word for i, word in enumerate(argv) if word not in own and (i == 0 or argv[i - 1] not in own)]


def render(
    settings: EngineSettings,
    arm: Arm,
    capabilities: Capabilities,
    bindings: Bindings,
    *,
    allowed_flags: Collection[str],
    threads: int,
) -> Rendered:
    refusals = [*never_possible(settings, [arm])]
    refusals += [
        FlagNotAllowed(f"engine.extra: this host doesn't allow {f}", flag=f).body() for f in settings.extra if f not in allowed_flags
    ]
    words = ["--weights", bindings.target, "--listen", str(bindings.port), "--room", str(settings.context), *settings.extra]
    if arm.mode != BASELINE_MODE:
        words += ["--guess", str(arm.draft_limit or 1)]
    return Rendered(argv=[bindings.executable, *words], refusals=refusals)


def never_possible(settings: EngineSettings, arms: Iterable[Arm]) -> list[ErrorBody]:
    found = [FlagNotAllowed(f"engine.extra: {f} is set by SpecWeb itself", flag=f).body() for f in settings.extra if f in OWNED_FLAGS]
    unknown = [a for a in arms if a.mode not in (BASELINE_MODE, *SPEC_TYPES)]
    return found + [ArmNotSupported(f"arm {a.name!r}: the toy has no mode {a.mode}", arm=a.name, mode=a.mode).body() for a in unknown]


def never_asked(spec: ExperimentSpec) -> list[ErrorBody]:
    return []


def unknown_flags(settings: EngineSettings, builds: Sequence[Capabilities]) -> dict[str, str]:
    return {flag: "" for flag in settings.extra if not any(flag in b.flags for b in builds)}


def forbidden_flags(settings: EngineSettings, places: Iterable[tuple[Iterable[Capabilities], Collection[str]]]) -> list[str]:
    allowed = {flag for _, flags in places for flag in flags}
    return [flag for flag in settings.extra if flag not in allowed]


# --- what it is asked, and what it says ---


def request(item_prompt: str, point: Point, seed: int, *, prefix_cache: bool = False) -> tuple[str, dict[str, Any]]:
    return "/say", {"after": item_prompt, "most": point.max_tokens, "seed": seed}


def loaded(answers: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    return answers["/about"]


def build_and_model(props: Mapping[str, Any]) -> tuple[str, str]:
    return str(props.get("made_by", "")), str(props.get("reads", ""))


def context_and_slots(props: Mapping[str, Any]) -> tuple[Any, Any]:
    return props.get("room"), None


def loaded_problem(props: dict[str, Any], settings: EngineSettings, target_path: str, context: int) -> str:
    if props.get("reads") != target_path:
        return f"the server reads {props.get('reads')!r}, asked for was {target_path!r}"
    return "" if props.get("room") == context else f"the server has room for {props.get('room')} tokens, asked for were {context}"


def stream_events(data_lines: Sequence[tuple[float | Arrival, str]]) -> ParsedStream:
    def content_of(message: dict[str, Any]) -> Content:
        ids = ids_of(message.get("ids"))
        kind = "final" if "why" in message else "content"
        return Content(" ".join(map(str, ids or [])), ids, kind, count(message.get("said")), {})

    def final_of(message: dict[str, Any]) -> dict[str, Any]:
        if "why" not in message:
            return {}
        return {"stop_type": "limit", "tokens_predicted": message["said"], "tokens_evaluated": message["read"], "rounds": message["rounds"]}

    return read_stream(data_lines, content_of, final_of)


def probe_counts(record: StreamRecord, line: int, *, off: bool, metrics: MetricsPair | None, log: LogRequest | None) -> ProbeCounts:
    rounds = [(g, r) for g, r in record.final.get("rounds", [])]
    silent = missing("the toy does not say")

    def at(value: float, field: str) -> Number:
        return Number(value=value, source=Source(file=RECORDS, line=line, field=field))

    def grown(name: str) -> Number | None:
        value = metrics.growth(name) if metrics else None
        return None if value is None or not metrics else Number(value=value, source=Source(file=METRICS, line=metrics.line, field=name))

    tokens = sum(e.tokens for e in record.events)
    no_draft = missing("speculation is off")
    counters = Counters(
        drafted=no_draft if off else trusted([at(sum(g for g, _ in rounds), "final.rounds"), grown("toy_guessed")], "silent"),
        accepted=no_draft if off else trusted([at(sum(r for _, r in rounds), "final.rounds"), grown("toy_right")], "silent"),
        verify_steps=no_draft if off else trusted([at(len(rounds), "final.rounds"), grown("toy_rounds")], "silent"),
        committed=at(sum(r + 1 for _, r in rounds), "final.rounds"),
        decode_steps=at(len(rounds), "final.rounds"),
        emitted=at(tokens - 1, "events"),
        draft_ms=silent,
        eval_ms=silent,
        accepted_by_position=no_draft if off else accepted_by_position([r for _, r in rounds], [g for g, _ in rounds]),
        accepted_by_position_source=None if off else Source(file=RECORDS, line=line, field="final.rounds"),
    )
    disagreements = [] if off else contradictions(counters)
    disagreements += [d for what in ("drafted", "accepted", "verify_steps") for d in differing(what, getattr(counters, what))]
    guessed = value_of(counters.drafted)
    return ProbeCounts(
        prompt_tokens=at(record.final.get("tokens_evaluated", 0), "final.read"),
        completion_tokens=at(tokens, "events"),
        server_tokens=at(record.final.get("tokens_predicted", 0), "final.said"),
        cache_hit_tokens=silent,
        prompt_ms=silent,
        finish_reason="length",
        speculation_reported=None if guessed is None else guessed > 0,
        reported_types=["guess"] if guessed else [],
        counters=counters,
        disagreements=disagreements,
    )


def parse_metrics(text: str) -> dict[str, float | dict[str, float]]:
    return {name: float(value) for name, _, value in (line.partition(" ") for line in text.splitlines()) if name.startswith("toy_")}


def window_disagreements(counts: Sequence[ProbeCounts], metrics: MetricsPair) -> list[str]:
    return window_sums(
        counts, metrics, {"tokens": "toy_said", "drafted": "toy_guessed", "accepted": "toy_right", "verify_steps": "toy_rounds"}
    )


# --- what it leaves in its log ---


def parse_log(text: str) -> LogFacts:
    return LogFacts(build=next((m[1] for m in [re.search(r"^(toy \S+) reads", text, re.MULTILINE)] if m), ""))


def log_requests(text: str) -> list[LogRequest]:
    return []


def memory_fault(log_text: str, exit_code: int | None, *, kernel_oom: bool = False) -> EngineOutOfMemory | None:
    return None


def start_failure(log_text: str, exit_code: int | None, *, kernel_oom: bool = False) -> SpecWebError:
    last = (log_text.strip().splitlines() or ["nothing"])[-1]
    return EngineExitedAtStart(f"the toy ended with exit code {exit_code}: {last}", exit_code=exit_code)


# --- asking again, and text: what it can do of that ---


def whole_answer(body: Mapping[str, Any]) -> dict[str, Any]:
    return {**body, "whole": True}


look_again = whole_answer


def read_ids(data: Any) -> list[int] | None:
    return ids_of(data.get("ids")) if isinstance(data, dict) else None


def read_look(data: Any) -> tuple[list[int], list[float]] | str:
    ids = read_ids(data)
    return (ids, data["sure"]) if ids else "the answer holds no token ids"


def read_drafted(data: Any) -> int | None:
    return None


def is_cut(data: Any) -> bool:
    return isinstance(data, dict) and data.get("why") == "most"


def _can_not(*_: object, **__: object) -> Any:
    raise ValueError("the toy tells nothing of its tokens")


count_tokens = tokens_of_text = text_of_tokens = tokens_in = text_in = put_by_template = put_in = next_token = next_gap = _can_not


def thought_marks(template: str) -> tuple[str, str]:
    return "", ""

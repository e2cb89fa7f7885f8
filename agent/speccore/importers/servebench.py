"""Result files of servebench (``servebench run --out``), schema 1."""

from __future__ import annotations

from .places import Place, Refused, documents, told
from .shapes import Kind, Number, Reading, Run, agree, reading, refused
from .tables import check_order, number_of

TOOL = "servebench"
SCHEMA = 1
KNOWN_VERSIONS = ("1.1.",)
_STATISTICS = {"mean": "mean", "p50": "median", "p90": "p90", "p99": "p99", "max": "max"}
_CHUNKS = "Gaps between events, and an event may hold several tokens."
KINDS = (
    Kind("output_throughput", "Output tokens a second", "tokens/s", "whole run", "Output tokens of all that succeeded ÷ duration of the level, its first and last requests included.", "loaded_tokens_per_s"),
    Kind("steady_state_output_throughput", "Output tokens a second, steady", "tokens/s", "whole run", "The same without the first fifth of the requests (at most 16).", "loaded_tokens_per_s", "The first requests are left out, the last ones, with fewer at once, are not."),
    Kind("input_throughput", "Prompt tokens a second", "tokens/s", "whole run", "Prompt tokens ÷ duration of the level: no speed of prompt processing."),
    Kind("request_throughput", "Requests a second", "requests/s", "whole run", "Requests that succeeded ÷ duration of the level."),
    Kind("goodput", "Goodput", "requests/s", "whole run", "Requests within the limits for TTFT and TPOT ÷ duration."),
    Kind("duration", "Duration", "s", "whole run", "Of the level."),
    Kind("tokens_per_chunk", "Tokens an event", "tokens", "mean", "Output tokens ÷ events that bear content.", "batch_ratio", "The inverse of our chunks ÷ tokens."),
)  # fmt: skip
FAMILIES = {
    "ttft": Kind("ttft", "TTFT", "s", "mean", "From sending to the first event with content, thinking included.", "ttft_any_s"),
    "tpot": Kind("tpot", "TPOT", "s", "mean", "For each request (end of the stream − TTFT) ÷ (output tokens − 1): what comes after the last token counts.", "token_latency_ms"),
    "itl": Kind("itl", "ITL", "s", "mean", "Gap between two events with content, over all requests.", "chunk_gap_ms_p50", f"No time per token. {_CHUNKS}"),
    "e2e": Kind("e2e", "End-to-end latency", "s", "mean", "From sending to the end of the stream.", "e2e_s"),
    "answer_start": Kind("answer_start", "Time to the answer", "s", "mean", "From sending to the first event that is no thinking.", "ttft_content_s"),
    "server_prefill_ms": Kind("server_prefill_ms", "Prefill by the server", "ms", "mean", "Of the answer’s timings, where the server tells them."),
    "server_decode_ms": Kind("server_decode_ms", "Decoding by the server", "ms", "mean", "Of the answer’s timings, where the server tells them.", "eval_ms"),
}  # fmt: skip


def kinds() -> list[Kind]:
    return [*KINDS, *FAMILIES.values()]


def looks_like(root: object) -> bool:
    return isinstance(root, dict) and isinstance(root.get("environment"), dict) and "servebench_version" in root["environment"]


def read(data: bytes) -> Reading:
    try:
        docs = documents(data)
    except Refused as error:
        return refused(TOOL, error.fault)
    root, warnings = docs[0].root, list[str]()
    version = root.at("environment").at("servebench_version").text(40)
    schema = root.need("schema_version")
    if schema and schema.value != SCHEMA:
        schema.fault(f"is {schema.text(20)}; only {SCHEMA} is read", f"Send a file of servebench {KNOWN_VERSIONS[0]}x.", schema.text(20))
        return reading(TOOL, version, [], [], told(docs))
    if not version.startswith(KNOWN_VERSIONS):
        warnings.append(f"Written by servebench {version or 'of unknown version'}; its definitions are known for 1.1 and may have changed.")
    for key in ("config", "environment", "levels"):
        root.need(key)
    runs = [_run(root, level, warnings) for level in root.at("levels").objects()]
    return reading(TOOL, version, runs, warnings, told(docs))


def _run(root: Place, level: Place, warnings: list[str]) -> Run:
    summary, config, env = level.need("summary"), root.at("config"), root.at("environment")
    for key in ("completed", "failed", "output_throughput", "ttft", "token_sources"):
        summary.need(key)
    mode, n = level.need("mode").text(40), summary.at("completed").whole("requests")
    by_chunks = summary.at("token_sources").at("chunks").whole("requests")
    caution = f"Of {by_chunks:,} requests the tokens are events, since the server told no count." if by_chunks else ""
    if by_chunks:
        warnings.append(f"{mode} {level.at('value').text(20)}: {caution}")
    if failed := summary.at("failed").whole("requests"):
        warnings.append(f"{mode} {level.at('value').text(20)}: {failed:,} requests failed; the figures are of the others.")
    numbers = [x for kind in KINDS if (x := number_of(summary.at(kind.key), _with(kind, caution))) is not None]
    for family, kind in FAMILIES.items():
        numbers += _family(summary.at(family), _with(kind, caution if family == "tpot" else ""))
    check_order(summary, numbers)
    _agree(level, summary)
    value = None if isinstance(level.at("value").value, str) else level.at("value").number("requests")
    engine = " ".join(w for w in (env.at("engine").text(80), env.at("engine_version").text(80)) if w)
    return Run(
        title=f"{mode} {level.at('value').text(20)}",
        model=config.at("model").text(),
        engine=engine,
        hardware=", ".join(p.text(120) or p.at("name").text(120) for p in env.at("gpus").items()) or env.at("cpu").text(),
        concurrency=value if mode == "concurrency" else config.at("max_concurrency").number("requests"),
        prompt_tokens=config.at("input_len").number("tokens"),
        output_tokens=summary.at("output_tokens_mean").number("tokens"),
        n_requests=n,
        n_failed=failed,
        at=env.at("timestamp").text(40),
        settings={k: config.at(k).text(200) for k in ("prompts", "endpoint", "mode", "temperature", "ignore_eos", "warmup", "output_len") if config.at(k)},
        numbers=tuple(numbers),
    )  # fmt: skip


def _with(kind: Kind, caution: str) -> Kind:
    words = " ".join(w for w in (kind.caution, caution) if w)
    is_of_tokens = kind.unit in ("tokens/s", "tokens") or kind.key == "tpot"
    return Kind(kind.key, kind.name, kind.unit, kind.statistic, kind.definition, kind.metric, words) if is_of_tokens else kind


def _family(place: Place, kind: Kind) -> list[Number]:
    """Its statistics; none where it counted nothing, which servebench writes as nulls."""
    if not place or place.at("count").value == 0:
        return []
    found = []
    for key, statistic in _STATISTICS.items():
        one = Kind(f"{kind.key}.{key}", kind.name, kind.unit, statistic, kind.definition, kind.metric, kind.caution)
        found.append(number_of(place.at(key), one))
    return [n for n in found if n is not None]


def _agree(level: Place, summary: Place) -> None:
    duration, mean = summary.at("duration").number("s"), summary.at("output_tokens_mean").number("tokens")
    rate, n = summary.at("output_throughput").number("tokens/s"), summary.at("completed").number()
    if duration and mean is not None and n is not None and rate is not None and not agree(mean * n / duration, rate):
        words = f"does not agree with {n:,.0f} requests of {mean:,.4g} tokens in {duration:,.4g} s"
        summary.at("output_throughput").fault(words, "One of them is in another unit: send the file unchanged.", rate)

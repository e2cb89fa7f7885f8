"""Result files of AIPerf: ``profile_export_aiperf.json``, schema 1."""

from __future__ import annotations

from .places import Place, Refused, documents, told
from .shapes import Kind, Number, Reading, Run, agree, reading, refused
from .tables import check_order, number_of

TOOL = "aiperf"
SCHEMA = "1."
_STATISTICS = {"avg": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99", "min": "min", "max": "max", "std": "sd"}
_UNITS = {"tokens/sec": "tokens/s", "tokens/sec/user": "tokens/s", "requests/sec": "requests/s", "sec": "s", "ms": "ms", "tokens": "tokens", "requests": "requests", "%": "%", "ratio": ""}  # fmt: skip
_TOKENS = "Tokens by the client’s tokenizer over the text, unless it ran with --use-server-token-count."
_RUN = "whole run"
#: Figure, its unit in the file, and what it is.
KINDS: dict[str, tuple[str, Kind]] = {
    k.key: (unit, k)
    for unit, k in (
        ("ms", Kind("time_to_first_token", "TTFT", "ms", "", "From sending to the first event with content, thinking included.", "ttft_any_s")),
        ("ms", Kind("time_to_first_output_token", "Time to the answer", "ms", "", "From sending to the first event that is no thinking.", "ttft_content_s")),
        ("ms", Kind("time_to_second_token", "Time to second token", "ms", "", "From the first event with content to the second.", "", "Events, not tokens.")),
        ("ms", Kind("inter_token_latency", "ITL", "ms", "", f"For each request (latency − TTFT) ÷ (output tokens − tokens of the first event, or 1 where that is not told). {_TOKENS}", "token_latency_ms", "Percentiles are of requests’ means, not of single tokens.")),
        ("ms", Kind("inter_chunk_latency", "Inter-chunk latency", "ms", "", "Gap between two events with content, over all requests.", "chunk_gap_ms_p50", "No time per token: an event may hold several.")),
        ("ms", Kind("request_latency", "Request latency", "ms", "", "From sending to the last event with content.", "e2e_s")),
        ("tokens/sec", Kind("output_token_throughput", "Output tokens a second", "tokens/s", _RUN, f"All output tokens ÷ duration of the run. {_TOKENS}", "loaded_tokens_per_s")),
        ("tokens/sec/user", Kind("output_token_throughput_per_user", "Output tokens a second, one stream", "tokens/s", "", f"For each request 1 ÷ its ITL. {_TOKENS}", "decode_tokens_per_s")),
        ("tokens/sec/user", Kind("e2e_output_token_throughput", "Output tokens a second with the first", "tokens/s", "", f"For each request output tokens ÷ latency: the time to the first token counts. {_TOKENS}")),
        ("tokens/sec/user", Kind("prefill_throughput_per_user", "Prompt processing, one stream", "tokens/s", "", "For each request prompt tokens ÷ TTFT.", "", "What a client sees before the first token, not the engine’s own time.")),
        ("tokens/sec", Kind("total_token_throughput", "All tokens a second", "tokens/s", _RUN, "Prompt and output tokens ÷ duration of the run.")),
        ("requests/sec", Kind("request_throughput", "Requests a second", "requests/s", _RUN, "Completed requests ÷ duration of the run.")),
        ("sec", Kind("benchmark_duration", "Duration", "s", _RUN, "From the first request to the last answer.")),
        ("requests", Kind("effective_concurrency", "Requests at once", "requests", "mean", "Requests sent and not yet answered, weighted by time.", "observed_concurrency")),
        ("%", Kind("osl_mismatch_diff_pct", "Output length off target", "%", "", "How far the counted output length lies from the one that was asked.")),
        ("ratio", Kind("spec_decode_acceptance_length", "Acceptance length", "", "", "For each request 1 + accepted ÷ verification steps, by the engine’s own word.", "mean_acceptance_length", "A mean over requests, not over steps.")),
        ("%", Kind("spec_decode_draft_acceptance_rate", "Acceptance rate", "%", "", "For each request accepted ÷ drafted tokens, by the engine’s own word.", "acceptance_rate_by_request")),
    )
}  # fmt: skip
#: A share of the asked length may be below it, and is nothing that one compares.
_LEFT_OUT = {"osl_mismatch_diff_pct"}


def kinds() -> list[Kind]:
    return [_kind(kind, kind.statistic or "mean") for key, (_, kind) in KINDS.items() if key not in _LEFT_OUT]


def _kind(kind: Kind, statistic: str, key: str = "") -> Kind:
    return Kind(key or kind.key, kind.name, kind.unit, statistic, kind.definition, kind.metric, kind.caution)


def looks_like(root: object) -> bool:
    return isinstance(root, dict) and "aiperf_version" in root


def read(data: bytes) -> Reading:
    try:
        docs = documents(data)
    except Refused as error:
        return refused(TOOL, error.fault)
    root, warnings = docs[0].root, list[str]()
    version, schema = root.at("aiperf_version").text(40), root.need("schema_version")
    if schema and not schema.text(20).startswith(SCHEMA):
        schema.fault(f"is {schema.text(20)}; only schema {SCHEMA}x is read", "Map the columns of its CSV instead.", schema.text(20))
        return reading(TOOL, version, [], [], told(docs))
    for key in ("request_latency", "request_throughput", "benchmark_duration", "input_config"):
        root.need(key)
    numbers: list[Number] = []
    for key, (unit, kind) in KINDS.items():
        if key not in _LEFT_OUT:
            numbers += _family(root.at(key), kind, unit)
    check_order(root, numbers)
    _warn(root, warnings)
    return reading(TOOL, version, [_run(root, numbers)], warnings, told(docs))


def _run(root: Place, numbers: list[Number]) -> Run:
    config = root.at("input_config")
    phases = config.at("phases").objects()
    timed = next((p for p in phases if p.at("kind").text(40) == "profiling"), phases[-1] if phases else config.at("phases"))
    models = config.at("models").at("items").objects()
    return Run(
        title=" ".join(w for w in (timed.at("type").text(40), timed.at("concurrency").text(20) or timed.at("rate").text(20)) if w),
        model=", ".join(m.at("name").text(200) for m in models) or config.at("endpoint").at("model_names").text(),
        concurrency=timed.at("concurrency").number("requests"),
        prompt_tokens=_avg(root, "input_sequence_length"),
        output_tokens=_avg(root, "output_sequence_length"),
        n_requests=_count(root, "completed_request_count") or _count(root, "request_count"),
        n_failed=_count(root, "error_request_count"),
        at=root.at("start_time").text(40),
        settings={"endpoint": config.at("endpoint").at("type").text(60)} if config.at("endpoint").at("type") else {},
        numbers=tuple(numbers),
    )


def _family(place: Place, kind: Kind, unit: str) -> list[Number]:
    if not place:
        return []
    given = place.need("unit").text(40)
    if given != unit:
        words = f"is in {given!r}; {unit!r} is known for it"
        place.at("unit").fault(words, "Nothing is converted in silence: send the file as the tool wrote it, or map its CSV.", given)
        return []
    if place.at("count").value == 0:
        return []
    if kind.statistic:
        only = number_of(place.need("avg"), kind)
        return [only] if only else []
    mean, n, total = place.need("avg").number(kind.unit), place.at("count").number(), place.at("sum").number()
    if mean is not None and n and total is not None and not agree(mean * n, total):
        words = f"does not agree with sum ÷ count = {total / n:,.6g}"
        place.at("avg").fault(words, "Send the file as the tool wrote it.", mean)
    found = [number_of(place.at(key), _kind(kind, s, f"{kind.key}.{key}")) for key, s in _STATISTICS.items()]
    return [x for x in found if x is not None]


def _avg(root: Place, key: str) -> float | None:
    return root.at(key).at("avg").number(_UNITS.get(root.at(key).at("unit").text(40), ""))


def _count(root: Place, key: str) -> int | None:
    return root.at(key).at("avg").whole("requests")


def _warn(root: Place, warnings: list[str]) -> None:
    if root.at("was_cancelled").value is True or root.at("is_complete").value is False:
        warnings.append("The run was cancelled before its end: the figures are of what had come by then.")
    counted, told = root.at("total_osl").at("avg").number("tokens"), root.at("total_usage_completion_tokens").at("avg").number("tokens")
    if counted and told and not agree(counted, told, 0.005):
        words = f"It counted {counted:,.0f} output tokens where the server’s usage says {told:,.0f}"
        warnings.append(f"{words}: its figures in tokens are off by {counted / told - 1:+.1%}.")
    failed = _count(root, "error_request_count")
    if failed:
        warnings.append(f"{failed:,} requests failed: the figures are of the others.")

"""Result files of guidellm (``--output kind=json``), format 2."""

from __future__ import annotations

from .places import Place, Refused, documents, told
from .shapes import Kind, Number, Reading, Run, agree, reading, refused
from .tables import check_order, number_of

TOOL = "guidellm"
FORMAT = 2
KNOWN_VERSIONS = ("0.7.", "0.8.")
_STATISTICS = {"mean": "mean", "median": "median", "std_dev": "sd", "min": "min", "max": "max"}
_PERCENTILES = ("p90", "p95", "p99")
_RATE = "A rate over the run’s time: how much of it passed at which rate, with bursts between two events counted for themselves."
_TOKENS = "Tokens by the server’s usage where it tells one and prefer_response_metrics is on, else by the client’s tokenizer."
KINDS = (
    Kind("time_to_first_token_ms", "TTFT", "ms", "", "From sending to the first event that bears a token, thinking included.", "ttft_any_s"),
    Kind("time_to_first_output_token_ms", "Time to the answer", "ms", "", "From sending to the first event that is no thinking.", "ttft_content_s"),
    Kind("inter_token_latency_ms", "ITL", "ms", "", f"For each request (last − first token’s event) ÷ (output tokens − 1), and each of its tokens weighs in the statistics. {_TOKENS}", "token_latency_ms", "Percentiles are of requests’ means, not of single tokens."),
    Kind("time_per_output_token_ms", "Time per output token", "ms", "", f"For each request (last event − sending) ÷ output tokens: the time to the first token counts. {_TOKENS}", "", "Not what other tools call TPOT."),
    Kind("request_latency", "Request latency", "s", "", "From sending to the end of the answer.", "e2e_s"),
    Kind("output_tokens_per_second", "Output tokens a second", "tokens/s", "", f"All streams together. {_RATE} An event’s tokens are laid between it and the one before. {_TOKENS}", "loaded_tokens_per_s", "Only the mean is a speed of the run; percentiles are of moments."),
    Kind("requests_per_second", "Requests a second", "requests/s", "", f"Completed requests. {_RATE}", "", "Only the mean is a rate of the run."),
    Kind("request_concurrency", "Requests at once", "requests", "", "Requests sent and not yet answered, weighted by time.", "observed_concurrency"),
    Kind("output_tokens_per_iteration", "Tokens an event", "tokens", "", "Output tokens ÷ events that bear tokens.", "batch_ratio", "The inverse of our chunks ÷ tokens."),
)  # fmt: skip
_ONLY_MEAN = {"output_tokens_per_second", "requests_per_second", "request_concurrency", "output_tokens_per_iteration"}


def kinds() -> list[Kind]:
    return [_kind(k, "mean") for k in KINDS]


def _kind(kind: Kind, statistic: str, key: str = "") -> Kind:
    return Kind(key or f"{kind.key}.mean", kind.name, kind.unit, statistic, kind.definition, kind.metric, kind.caution)


def looks_like(root: object) -> bool:
    return isinstance(root, dict) and isinstance(root.get("metadata"), dict) and "guidellm_version" in root["metadata"]


def read(data: bytes) -> Reading:
    try:
        docs = documents(data)
    except Refused as error:
        return refused(TOOL, error.fault)
    root, warnings = docs[0].root, list[str]()
    meta = root.need("metadata")
    version, form = meta.at("guidellm_version").text(40), meta.need("version")
    if form and form.value != FORMAT:
        form.fault(
            f"is {form.text(20)}; only format {FORMAT} is read",
            "Measure with guidellm 0.7 or newer, or map its CSV’s columns.",
            form.text(20),
        )
        return reading(TOOL, version, [], [], told(docs))
    if not version.startswith(KNOWN_VERSIONS):
        warnings.append(
            f"Written by guidellm {version or 'of unknown version'}; its definitions are known for 0.7 and 0.8 and may have changed."
        )
    runs = [_run(root, bench, warnings) for bench in root.need("benchmarks").objects()]
    return reading(TOOL, version, runs, warnings, told(docs))


def _run(root: Place, bench: Place, warnings: list[str]) -> Run:
    metrics, config = bench.need("metrics"), bench.at("config")
    for key in ("request_totals", "time_to_first_token_ms", "inter_token_latency_ms", "output_tokens_per_second"):
        metrics.need(key)
    numbers: list[Number] = []
    for kind in KINDS:
        numbers += _family(metrics.at(kind.key).at("successful"), kind)
    check_order(metrics, numbers)
    for warned in bench.at("warnings").objects()[:20]:
        warnings.append(f"guidellm itself warns: {warned.at('message').text(200)}")
    totals, strategy = metrics.at("request_totals"), config.at("strategy")
    counts = [n for key in ("errored", "incomplete") if (n := totals.at(key).whole("requests")) is not None]
    failed = sum(counts) if counts else None
    if failed:
        warnings.append(f"{failed:,} of {totals.at('total').text(20)} requests failed or did not end: the figures are of the others.")
    streams = strategy.at("streams") or strategy.at("max_concurrency")
    kind_of = strategy.at("type_").text(40)
    rate = strategy.at("rate").text(20)
    return Run(
        title=" ".join(w for w in (kind_of, streams.text(20) if streams else rate) if w),
        model=config.at("backend").at("model").text() or root.at("config").at("spec").at("backend").at("model").text(),
        concurrency=streams.number("requests"),
        prompt_tokens=_mean(metrics, "prompt_token_count"),
        output_tokens=_mean(metrics, "output_token_count"),
        n_requests=totals.at("successful").whole("requests"),
        n_failed=failed,
        settings={k: v for k in ("request_format", "stream", "max_tokens") if (v := config.at("backend").at(k).text(120))},
        numbers=tuple(numbers),
    )


def _mean(metrics: Place, key: str) -> float | None:
    place = metrics.at(key).at("successful")
    return place.at("mean").number("tokens") if place.at("count").value else None


def _family(place: Place, kind: Kind) -> list[Number]:
    """Its statistics. A count of 0 means that nothing was measured: the zeros beside it are no figures."""
    if not place or not place.at("count").number():
        return []
    mean, count, total = place.need("mean").number(kind.unit), place.at("count").number(), place.at("total_sum").number()
    if mean is not None and count and total is not None and kind.key not in _ONLY_MEAN and not agree(mean * count, total):
        words = f"does not agree with total_sum ÷ count = {total / count:,.6g}"
        place.at("mean").fault(words, "Send the file as the tool wrote it.", mean)
    if kind.key in _ONLY_MEAN:
        only = number_of(place.at("mean"), _kind(kind, "mean"))
        return [only] if only else []
    found = [number_of(place.at(key), _kind(kind, s, f"{kind.key}.{key}")) for key, s in _STATISTICS.items()]
    percentiles = place.at("percentiles")
    found += [number_of(percentiles.at(p), _kind(kind, p, f"{kind.key}.{p}")) for p in _PERCENTILES]
    return [n for n in found if n is not None]

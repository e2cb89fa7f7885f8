"""Result files of llama-benchy (``--format json --save-result``)."""

from __future__ import annotations

from .places import Place, Refused, documents, told
from .shapes import Kind, Number, Reading, Run, agree, reading, refused
from .tables import number_of

TOOL = "llama-benchy"
KNOWN_VERSIONS = ("0.3.", "0.4.")
_LAID = "Where the server tells a count and no token ids, arrivals of tokens are laid evenly between the first and the last event."
KINDS = (
    Kind("tg_throughput", "Generation", "tokens/s", "mean", f"Tokens after the first ÷ time from the first token of any stream to the last of all; mean of the runs. {_LAID}", "loaded_tokens_per_s", "With one stream it is decoding alone; with several the time in which some still process prompts counts too."),
    Kind("tg_req_throughput", "Generation, one stream", "tokens/s", "mean", f"For each request, tokens after the first ÷ time from the first to the last. {_LAID}", "decode_tokens_per_s"),
    Kind("peak_throughput", "Peak generation", "tokens/s", "mean", f"Most tokens within a second, all streams together; of a run shorter than a second all its tokens ÷ its time. {_LAID}", "peak_tokens_per_s", "A peak of evenly laid tokens is their mean, and no sign of bursts."),
    Kind("peak_req_throughput", "Peak generation, one stream", "tokens/s", "mean", f"The same of each request. {_LAID}", "peak_tokens_per_s", "Of a short answer it is its number of tokens ÷ its time, the first one counted: above the mean by that one."),
    Kind("pp_throughput", "Prompt processing", "tokens/s", "mean", "Prompt tokens of all streams ÷ time from the first request to the last first token.", "", "An estimate: what a client sees before the first token, not the engine’s own time."),
    Kind("pp_req_throughput", "Prompt processing, one stream", "tokens/s", "mean", "Prompt tokens ÷ (time to the first response − the latency measured before).", "", "An estimate, which waiting for other streams makes smaller."),
    Kind("ttfr", "Time to first response", "ms", "mean", "From sending to the first event of any kind.", "", "The event may bear no token."),
    Kind("est_ppt", "Estimated prompt time", "ms", "mean", "Time to first response − the latency measured before."),
    Kind("e2e_ttft", "TTFT", "ms", "mean", "From sending to the first event that bears a token, the network included.", "ttft_any_s"),
)  # fmt: skip


def kinds() -> list[Kind]:
    return list(KINDS)


def looks_like(root: object) -> bool:
    return isinstance(root, dict) and "latency_mode" in root and "benchmarks" in root


def read(data: bytes) -> Reading:
    try:
        docs = documents(data)
    except Refused as error:
        return refused(TOOL, error.fault)
    root, warnings = docs[0].root, list[str]()
    version = root.need("version").text(40)
    for key in ("model", "benchmarks"):
        root.need(key)
    if not version.startswith(KNOWN_VERSIONS):
        warnings.append(
            f"Written by llama-benchy {version or 'of unknown version'}; its definitions are known for 0.3 and 0.4 and may have changed."
        )
    runs = [_run(root, bench) for bench in root.at("benchmarks").objects()]
    return reading(TOOL, version, runs, warnings, told(docs))


def _run(root: Place, bench: Place) -> Run:
    for key in ("concurrency", "context_size", "prompt_size", "response_size", "tg_throughput", "pp_throughput", "e2e_ttft"):
        bench.need(key)
    numbers: list[Number] = []
    counts = []
    for kind in KINDS:
        place = bench.at(kind.key)
        if place and not place.is_object:
            place.fault("is no object with mean, std and values", "Send the file as the tool wrote it.", place.text(60))
            continue
        numbers += _pair(place, kind)
        counts.append(len(place.at("values").items()))
    n = {key: bench.at(f"{key}_size").whole("tokens") for key in ("context", "prompt", "response")}
    phase = "context, " if bench.at("is_context_prefill_phase").value is True else ""
    return Run(
        title=f"{phase}pp{n['prompt']} tg{n['response']}" + (f" at depth {n['context']}" if n["context"] else ""),
        model=root.at("model").text(),
        concurrency=bench.at("concurrency").number("requests"),
        prompt_tokens=None if n["prompt"] is None else float(n["prompt"]),
        output_tokens=None if n["response"] is None else float(n["response"]),
        context_tokens=None if n["context"] is None else float(n["context"]),
        n_requests=max(counts, default=0) or None,
        at=root.at("timestamp").text(40),
        settings={k: root.at(k).text(80) for k in ("latency_mode", "latency_ms", "prefix_caching_enabled") if root.at(k)},
        numbers=tuple(numbers),
    )  # fmt: skip


def _pair(place: Place, kind: Kind) -> list[Number]:
    """Mean and standard deviation; none where nothing was measured, which the tool writes as null."""
    if not place:
        return []
    values = [v for p in place.at("values").items() if (v := p.number(kind.unit)) is not None]
    mean = place.need("mean").number(kind.unit)
    if mean is not None and values and not agree(sum(values) / len(values), mean):
        words = f"does not agree with its {len(values)} values, whose mean is {sum(values) / len(values):,.6g}"
        place.at("mean").fault(words, "Send the file as the tool wrote it.", mean)
    spread = Kind(f"{kind.key}.std", kind.name, kind.unit, "sd", "Standard deviation, n in the divisor.")
    found = [number_of(place.at("mean"), kind), number_of(place.at("std"), spread) if len(values) > 1 else None]
    return [x for x in found if x is not None]

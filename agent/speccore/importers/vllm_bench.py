"""Result files of ``vllm bench serve --save-result``, alone or appended line by line."""

from __future__ import annotations

import re

from .places import Document, Place, Refused, documents, plain, told
from .shapes import Kind, Number, Reading, Run, agree, reading, refused
from .tables import check_order, number_of

TOOL = "vllm bench serve"
_EVENTS = "It counts events of the stream, and speculation puts several tokens into one."
_STATISTICS = {"mean": "mean", "median": "median", "std": "sd", "min": "min", "max": "max"}
_FAMILIES = {
    "ttft": ("TTFT", "From sending a request to the first event of its answer that has a choice, by the client’s clock.", "ttft_any_s",
             "In a chat the first event may bear the role and no text."),
    "tpot": ("TPOT", "For each request (latency − TTFT) ÷ (output tokens − 1); requests weigh the same.", "token_latency_ms", ""),
    "itl": ("ITL", "Gap between two events of a stream, over all requests.", "chunk_gap_ms_p50", f"No time per token. {_EVENTS}"),
    "e2el": ("End-to-end latency", "From sending a request to its last event.", "e2e_s", ""),
}  # fmt: skip
_FAMILY = re.compile(r"(mean|median|std|min|max|p\d{1,2}(?:\.\d+)?)_(ttft|tpot|itl|e2el)_ms")
_TOKENS = "Tokens by the server’s usage where it tells one, else the client’s tokenizer over the text."
_COUNTED = "From the server’s counters before and after: whatever else it served meanwhile counts too."

KINDS = (
    Kind("output_throughput", "Output tokens a second", "tokens/s", "whole run", f"All output tokens ÷ duration of the run, first and last requests with fewer at once included. {_TOKENS}", "loaded_tokens_per_s"),
    Kind("total_token_throughput", "All tokens a second", "tokens/s", "whole run", "Prompt and output tokens ÷ duration of the run."),
    Kind("request_throughput", "Requests a second", "requests/s", "whole run", "Completed requests ÷ duration of the run."),
    Kind("request_goodput", "Goodput", "requests/s", "whole run", "Requests that held the limits given with --goodput ÷ duration."),
    Kind("duration", "Duration", "s", "whole run", "From the first request to the last answer."),
    Kind("max_output_tokens_per_s", "Peak output", "tokens/s", "max", "Most events that came in one second of the run, all streams together.", "peak_tokens_per_s", f"{_EVENTS} Seconds are whole ones. So it can lie below the mean."),
    Kind("max_concurrent_requests", "Peak of requests at once", "requests", "max", "Most requests that touched one second of the run.", "observed_concurrency", "Requests that follow each other within a second count as at once, so it can exceed the limit that was set."),
    Kind("spec_decode_acceptance_rate", "Acceptance rate", "%", "whole run", f"Accepted ÷ drafted tokens. {_COUNTED}", "acceptance_rate"),
    Kind("spec_decode_acceptance_length", "Acceptance length", "tokens", "whole run", f"1 + accepted ÷ drafts: the target’s own token counts. Steps without a draft don’t. {_COUNTED}", "mean_acceptance_length"),
    Kind("spec_decode_num_drafts", "Drafts", "drafts", "total", f"Verification steps that had a draft. {_COUNTED}", "verify_steps"),
    Kind("spec_decode_draft_tokens", "Drafted tokens", "tokens", "total", f"Tokens that were proposed. {_COUNTED}", "drafted"),
    Kind("spec_decode_accepted_tokens", "Accepted tokens", "tokens", "total", f"Proposed tokens that the target agreed with. {_COUNTED}", "accepted"),
)  # fmt: skip
POSITIONS = Kind("spec_decode_per_position_acceptance_rates", "Accepted at position", "share", "whole run", f"Drafts whose token at this position was accepted ÷ all drafts. {_COUNTED}", "accepted_by_position")  # fmt: skip
#: Keys of the command line and of the run itself; anything else that is text came with ``--metadata``.
_NEEDED = ("model_id", "duration", "completed", "total_input_tokens", "total_output_tokens", "output_throughput", "request_throughput")
_KNOWN = (
    "date",
    "backend",
    "endpoint_type",
    "label",
    "model_id",
    "tokenizer_id",
    "request_rate",
    "burstiness",
    "max_concurrency",
    "num_prompts",
)


def kinds() -> list[Kind]:
    found = list(KINDS)
    for family in _FAMILIES:
        found.append(family_kind(f"mean_{family}_ms"))
    return [*found, POSITIONS]


def family_kind(key: str) -> Kind:
    statistic, family, _ = key.split("_")
    name, definition, metric, caution = _FAMILIES[family]
    return Kind(key, name, "ms", _STATISTICS.get(statistic, statistic), definition, metric, caution)


def looks_like(root: object) -> bool:
    return isinstance(root, dict) and "tokenizer_id" in root and ("output_throughput" in root or "total_output_tokens" in root)


def read(data: bytes) -> Reading:
    try:
        docs = documents(data)
    except Refused as error:
        return refused(TOOL, error.fault)
    warnings: list[str] = []
    runs = [_run(doc, warnings) for doc in docs]
    return reading(TOOL, "", runs, warnings, told(docs))


def _run(doc: Document, warnings: list[str]) -> Run:
    root = doc.root
    if not root.is_object:
        root.fault("is no object of results", "Send what --save-result or --append-result wrote.")
        return Run()
    for key in _NEEDED:
        root.need(key)
    numbers = _numbers(root)
    completed, failed = root.at("completed").whole("requests"), root.at("failed").whole("requests")
    _agree(root, warnings)
    check_order(root, numbers)
    if failed:
        warnings.append(f"{failed:,} of {failed + (completed or 0):,} requests failed: the figures are of the others.")
    lengths = {key: _per_request(root, key, completed) for key in ("total_input_tokens", "total_output_tokens")}
    settings = {key: root.at(key).text() for key in _KNOWN if root.at(key)}
    extra = {plain(k, 80): root.at(k).text() for k in list(root.value)[:200] if isinstance(root.value[k], str) and k not in _KNOWN}
    return Run(
        title=root.at("label").text(),
        model=root.at("model_id").text(),
        concurrency=root.at("max_concurrency").number("requests"),
        prompt_tokens=lengths["total_input_tokens"],
        output_tokens=lengths["total_output_tokens"],
        n_requests=completed,
        n_failed=failed,
        at=root.at("date").text(40),
        settings=settings | extra,
        numbers=tuple(numbers),
        line=doc.first_line,
    )


def _numbers(root: Place) -> list[Number]:
    found = [number_of(root.at(kind.key), kind) for kind in KINDS if kind.key != "request_goodput" or root.at(kind.key)]
    found += [number_of(root.at(key), family_kind(key)) for key in root.value if _FAMILY.fullmatch(key) and not _is_median_again(key, root)]
    for i, place in enumerate(root.at(POSITIONS.key).items(), 1):
        kind = Kind(POSITIONS.key, f"{POSITIONS.name} {i}", POSITIONS.unit, POSITIONS.statistic, POSITIONS.definition, POSITIONS.metric)
        found.append(number_of(place, kind))
    return [n for n in found if n is not None]


def _is_median_again(key: str, root: Place) -> bool:
    return key.startswith("p50_") and bool(root.at("median_" + key.removeprefix("p50_")))


def _per_request(root: Place, key: str, completed: int | None) -> float | None:
    total = root.at(key).number("tokens")
    return total / completed if total is not None and completed else None


def _agree(root: Place, warnings: list[str]) -> None:
    """Ways to the same figure: one that differs is in another unit, or of another run."""
    duration = root.at("duration").number("s")
    for total, rate in (("total_output_tokens", "output_throughput"), ("completed", "request_throughput")):
        n, given = root.at(total).number(), root.at(rate).number()
        if duration and n is not None and not agree(n / duration, given):
            words = f"does not agree with {total} ÷ duration = {n / duration:,.6g}"
            root.at(rate).fault(words, "One of the three is in another unit or of another run: send the file unchanged.", given)
    share, drafted = root.at("spec_decode_acceptance_rate").number("%"), root.at("spec_decode_draft_tokens").number()
    accepted = root.at("spec_decode_accepted_tokens").number()
    if drafted and accepted is not None and share is not None and not agree(100 * accepted / drafted, share):
        words = f"does not agree with accepted ÷ drafted tokens = {100 * accepted / drafted:.4g} %"
        root.at("spec_decode_acceptance_rate").fault(words, "It is a percentage in this tool: send the file unchanged.", share)
    peak, mean = root.at("max_output_tokens_per_s").number(), root.at("output_throughput").number()
    if peak is not None and mean is not None and peak < mean:
        warnings.append(f"The peak of {peak:,.4g} tokens/s lies below the mean of {mean:,.4g}, which no rate of tokens can. {_EVENTS}")

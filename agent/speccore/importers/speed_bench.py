"""Result files of llama.cpp's SPEED-Bench client: ``speed_bench.py --output``."""

from __future__ import annotations

from .places import Place, Refused, documents, told
from .shapes import Kind, Reading, Run, agree, reading, refused
from .tables import number_of

TOOL = "llama.cpp speed-bench"
_SERVER = "By the server’s own clock (its answer’s timings); mean over requests, each weighing the same."
KINDS = (
    Kind("avg_pred_t_s", "Decoding", "tokens/s", "mean", f"Generated tokens ÷ time after the prompt. {_SERVER}", "decode_tokens_per_s", "The first token counts, though the prompt’s pass made it: high by 1 ÷ tokens of the answer."),
    Kind("avg_prompt_t_s", "Prompt processing", "tokens/s", "mean", f"Prompt tokens that were processed ÷ their time; what the prefix cache held is left out. {_SERVER}"),
    Kind("avg_latency", "Request latency", "s", "mean", "From sending a request to its whole answer, by the client’s clock; nothing is streamed. A sample of several turns counts their sum.", "e2e_s"),
    Kind("accept_rate", "Acceptance rate", "share", "whole run", "Accepted ÷ drafted tokens, summed over the category.", "acceptance_rate"),
    Kind("draft_n", "Drafted tokens", "tokens", "total", "Tokens that were proposed.", "drafted", "0 also where the server tells no counts: no sign that speculation was off."),
    Kind("accepted", "Accepted tokens", "tokens", "total", "Proposed tokens that the target agreed with.", "accepted"),
)  # fmt: skip
_SETTINGS = ("bench", "category", "osl", "extra_inputs", "model")


def kinds() -> list[Kind]:
    return list(KINDS)


def looks_like(root: object) -> bool:
    return isinstance(root, dict) and "selected_samples" in root and "summary" in root


def read(data: bytes) -> Reading:
    try:
        docs = documents(data)
    except Refused as error:
        return refused(TOOL, error.fault)
    root = docs[0].root
    if not root.is_object:
        root.fault("is no object", "Send what --output wrote.")
        return reading(TOOL, "", [], [], told(docs))
    for key in ("config", "completed_samples", "failed_samples", "summary"):
        root.need(key)
    warnings: list[str] = []
    failed = root.at("failed_samples").whole("requests")
    if failed:
        warnings.append(f"{failed:,} samples failed: the figures are of the others.")
    runs = [_run(root, row, warnings) for row in root.at("summary").objects()]
    return reading(TOOL, "", runs, warnings, told(docs))


def _run(root: Place, row: Place, warnings: list[str]) -> Run:
    category, config = row.need("category").text(80), root.at("config")
    drafted, accepted = row.need("draft_n").whole("tokens"), row.need("accepted").whole("tokens")
    for key in ("requests", "avg_pred_t_s", "accept_rate"):
        row.need(key)
    rate = row.at("accept_rate").number("share")
    if drafted and accepted is not None and rate is not None and not agree(accepted / drafted, rate):
        words = f"does not agree with accepted ÷ draft_n = {accepted / drafted:.4g}"
        row.at("accept_rate").fault(words, "Send the file unchanged.", rate)
    if drafted == 0:
        warnings.append(f"{category}: nothing was drafted, or the server told no counts. That is no acceptance of 0.")
    found = [number_of(row.at(kind.key), kind) for kind in KINDS if drafted != 0 or kind.key not in ("draft_n", "accepted", "accept_rate")]
    requests = _results(root, category)
    prompt, output = (_mean(requests, key) for key in ("prompt_tokens", "completion_tokens"))
    return Run(
        title=category,
        model=config.at("model").text(),
        engine="llama.cpp server",
        concurrency=config.at("concurrency").number("requests"),
        prompt_tokens=prompt,
        output_tokens=output,
        n_requests=row.at("requests").whole("requests"),
        n_failed=row.at("failed").whole("requests"),
        settings={key: _setting(config.at(key)) for key in _SETTINGS if config.at(key)},
        numbers=tuple(n for n in found if n is not None),
    )


def _setting(place: Place) -> str:
    if isinstance(place.value, dict):
        return ", ".join(f"{key} {place.at(key).text(60)}" for key in list(place.value)[:20])
    return place.text(200)


def _results(root: Place, category: str) -> list[Place]:
    rows = [r for r in root.at("results").objects() if r.at("ok").value is True]
    return [r for r in rows if category in ("overall", r.at("category").text(80))]


def _mean(rows: list[Place], key: str) -> float | None:
    values = [v for row in rows if (v := row.at(key).number("tokens")) is not None]
    return sum(values) / len(values) if values else None

"""Output of llama.cpp's ``llama-bench -o json`` and ``-o jsonl``."""

from __future__ import annotations

from .places import Place, Refused, documents, plain, told
from .shapes import Kind, Number, Reading, Run, agree, reading, refused
from .tables import number_of

TOOL = "llama-bench"
_HOW = "The engine alone, on tokens drawn at random: no server, no tokenizer, no sampling, and never speculation."
KINDS = {
    "pp": Kind("avg_ts", "Prompt processing", "tokens/s", "mean", f"Prompt tokens ÷ time to process them, mean of the repetitions. {_HOW}"),
    "tg": Kind("avg_ts", "Text generation", "tokens/s", "mean", f"Generated tokens ÷ time, one sequence, mean of the repetitions. {_HOW}", "decode_tokens_per_s", "A baseline only, and without what a server adds."),
    "pg": Kind("avg_ts", "Prompt and generation", "tokens/s", "mean", f"Prompt and generated tokens together ÷ the time of both. {_HOW}", "", "Neither a speed of prompts nor of generation."),
}  # fmt: skip
_NEEDED = ("build_commit", "build_number", "model_filename", "model_type", "n_prompt", "n_gen", "avg_ns", "avg_ts")
_SETTINGS = (
    *("backends", "n_gpu_layers", "n_threads", "n_batch", "n_ubatch", "type_k", "type_v", "flash_attn", "split_mode", "n_cpu_moe"),
    *("main_gpu", "no_kv_offload", "tensor_split", "load_mode", "use_mmap", "model_filename", "model_size", "model_n_params", "cpu_info"),
)


def kinds() -> list[Kind]:
    return [*KINDS.values(), _spread(KINDS["tg"])]


def _spread(kind: Kind) -> Kind:
    return Kind("stddev_ts", kind.name, kind.unit, "sd", "Standard deviation of the repetitions, n − 1 in the divisor.", "", kind.caution)


def looks_like(root: object) -> bool:
    row = root[0] if isinstance(root, list) and root else root
    return isinstance(row, dict) and "build_commit" in row and ("avg_ts" in row or "n_gen" in row)


def read(data: bytes) -> Reading:
    try:
        docs = documents(data)
    except Refused as error:
        return refused(TOOL, error.fault)
    rows = [row for doc in docs for row in (doc.root.objects() if isinstance(doc.root.value, list) else [doc.root])]
    runs = [_run(row) for row in rows if row.is_object]
    if not runs and not docs[0].faults:
        docs[0].root.fault("holds no result", "Send what llama-bench -o json or -o jsonl printed.")
    builds = {row.at("build_number").text() for row in rows}
    return reading(TOOL, f"b{builds.pop()}" if len(builds) == 1 else "several builds", runs, [], told(docs))


def _run(row: Place) -> Run:
    for key in _NEEDED:
        row.need(key)
    n_prompt, n_gen = row.at("n_prompt").whole("tokens"), row.at("n_gen").whole("tokens")
    depth = row.at("n_depth").whole("tokens")
    test = "pg" if n_prompt and n_gen else "tg" if n_gen else "pp"
    kind = KINDS[test]
    found = [number_of(row.at("avg_ts"), kind), number_of(row.at("stddev_ts"), _spread(kind))]
    _agree(row, (n_prompt or 0) + (n_gen or 0))
    title = " + ".join([*([f"pp{n_prompt}"] if n_prompt else []), *([f"tg{n_gen}"] if n_gen else [])])
    samples = row.at("samples_ts").items()
    return Run(
        title=title + (f" at depth {depth}" if depth else ""),
        model=row.at("model_type").text(),
        engine=f"llama.cpp build {row.at('build_number').text()} ({row.at('build_commit').text(40)})",
        hardware=row.at("gpu_info").text() or row.at("cpu_info").text(),
        arm="off",
        concurrency=1.0,
        prompt_tokens=None if n_prompt is None else float(n_prompt),
        output_tokens=None if n_gen is None else float(n_gen),
        context_tokens=None if depth is None else float(depth),
        n_requests=len(samples) or None,
        at=row.at("test_time").text(40),
        settings={key: plain(row.at(key).text(), 200) for key in _SETTINGS if row.at(key)},
        numbers=tuple(n for n in found if isinstance(n, Number)),
    )


def _agree(row: Place, n_tokens: int) -> None:
    mean, ns = row.at("avg_ts").number("tokens/s"), row.at("avg_ns").number()
    samples = [s for place in row.at("samples_ts").items() if (s := place.number("tokens/s")) is not None]
    if samples and not agree(sum(samples) / len(samples), mean):
        words = f"does not agree with its {len(samples)} samples_ts, whose mean is {sum(samples) / len(samples):,.6g}"
        row.at("avg_ts").fault(words, "Send what llama-bench printed, unchanged.", mean)
    # The mean of rates and the rate of the mean time part when repetitions differ much; another unit is a factor of a thousand.
    if ns and n_tokens and mean and not agree(n_tokens * 1e9 / ns, mean, 0.5):
        words = f"does not agree with {n_tokens} tokens in avg_ns = {ns:,.0f} ns"
        row.at("avg_ts").fault(words, "One of them is in another unit: send what llama-bench printed, unchanged.", mean)

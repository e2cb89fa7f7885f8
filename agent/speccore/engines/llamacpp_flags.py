"""llama-server's flags: which of them SpecWeb sets itself, which a host may allow, and which belong to speculation."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: Flags that SpecWeb sets, or that would take the engine out of its hands: models and downloads, listening, logs and files,
#: served tools, request defaults. Never legal in ``extra``, whatever a host allows.
OWNED_FLAGS: frozenset[str] = frozenset(
    """
    --help --usage --version --cache-list --list-devices --completion-bash
    --model --model-url --docker-repo --hf-repo --hf-file --hf-token --mmproj --mmproj-url --mmproj-auto --no-mmproj
    --lora --lora-scaled --lora-init-without-apply --control-vector --control-vector-scaled --control-vector-layer-range --override-kv
    --models-dir --models-preset --models-max --models-autoload --no-models-autoload --offline --rpc
    --host --port --reuse-port --path --api-prefix --api-key --api-key-file --ssl-key-file --ssl-cert-file --timeout --threads-http
    --sse-ping-interval --cors-origins --cors-methods --cors-headers --cors-credentials --no-cors-credentials
    --ui --webui --no-ui --no-webui --ui-config --webui-config --ui-config-file --webui-config-file --ui-mcp-proxy --webui-mcp-proxy
    --no-ui-mcp-proxy --no-webui-mcp-proxy --tools --tools-runtime --mcp-servers-config --mcp-servers-json --agent --no-agent
    --metrics --props --slots --no-slots --slot-save-path --media-path --video-ffmpeg-dir --alias --tags
    --log-disable --log-file --log-colors --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --log-jsonl --no-log-jsonl
    --log-prompts-dir --verbose --log-verbose --verbosity --log-verbosity
    --ctx-size --parallel --threads --gpu-layers --n-gpu-layers --cache-type-k --cache-type-v --batch-size --ubatch-size --flash-attn
    --fit --fit-target --fit-ctx --kv-unified --no-kv-unified --kv-unified-per-slot
    --cache-prompt --no-cache-prompt --cache-ram --cache-reuse --cache-idle-slots --no-cache-idle-slots
    --predict --n-predict --keep --seed --ignore-eos --samplers --sampler-seq --sampling-seq --temp --temperature --top-k --top-p --min-p
    --grammar --grammar-file --json-schema --json-schema-file --logit-bias --chat-template --chat-template-file --chat-template-kwargs
    --embedding --embeddings --rerank --reranking --sleep-idle-seconds --lookup-cache-static --lookup-cache-dynamic
    """.split()  # noqa: SIM905 - a hundred names read better as a table
)
#: Flags that SpecWeb sets for the sake of measuring, by any name that a build has for them: what whoever runs the same engine
#: for other ends may leave out or change, and what it was for. All other flags are part of what was measured.
MEASURING_FLAGS: dict[str, str] = {
    "--host": "yours to choose: where it listens",
    "--port": "yours to choose: while measured, each start drew a free one",
    "--no-cache-prompt": "so that no answer profits from an earlier prompt; without it prompts are reused",
    "--cache-ram": "the same: no memory for earlier prompts",
    "--cache-reuse": "the same: no parts of earlier prompts moved to where they would fit",
    "--metrics": "counters to read around each request",
    **dict.fromkeys(("--log-verbosity", "--verbosity"), "a log that tells buffers and drafts"),
    **dict.fromkeys(("--no-webui", "--no-ui"), "no web page"),
    "--offline": "no downloads",
}
#: What a host allows unless its owner says otherwise: where weights and KV lie, and how the CPU is used.
DEFAULT_ALLOWED_FLAGS: tuple[str, ...] = (
    "--cpu-moe",
    "--n-cpu-moe",
    "--n-cpu-ffn",
    "--override-tensor",
    "--split-mode",
    "--tensor-split",
    "--main-gpu",
    "--device",
    "--no-kv-offload",
    "--no-op-offload",
    "--no-repack",
    "--no-host",
    "--load-mode",
    "--lazy-mode",
    "--mlock",
    "--no-mmap",
    "--numa",
    "--swa-full",
    "--threads-batch",
    "--prio",
    "--poll",
    "--cpu-strict",
    "--ctx-checkpoints",
)


def is_speculation(flag: str) -> bool:
    """Whether a long flag belongs to speculation or its helper model: it may differ between arms, others may not."""
    return (
        flag.startswith(("--spec-", "--draft", "--lookup-cache-", "--no-spec-"))
        or flag == "--spec"
        or flag.endswith(("-draft", "-draft-batch", "-batch-draft"))
        or (flag.startswith("--fim-") and flag.endswith("-spec"))
    )


def without_speculation(argv: list[str]) -> list[str]:
    """A command as :func:`llamacpp.render` makes it, less speculation and port: equal in all arms of a fair comparison."""
    kept, skipping = [], False
    for word in argv:
        if word.startswith("--"):
            skipping = is_speculation(word) or word == "--port"
        if not skipping:
            kept.append(word)
    return kept


def nearest_flag(flag: str, known: Iterable[str]) -> str:
    """`` (did you mean --x?)`` for a flag that a build lacks, or nothing."""
    match = difflib.get_close_matches(flag, sorted(f for f in known if f.startswith("--")), n=1)
    return f" (did you mean {match[0]}?)" if match else ""

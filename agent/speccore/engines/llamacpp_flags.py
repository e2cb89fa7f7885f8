"""llama-server's flags: what a build's ``--help`` lists, which of them SpecWeb sets itself, and which speculation mode needs which."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable

from ..inventory import Capabilities

REMOVED = "the argument has been removed"

#: speculation mode: the value of --spec-type
SPEC_TYPES: dict[str, str] = {
    "draft": "draft-simple",
    "mtp": "draft-mtp",
    "eagle3": "draft-eagle3",
    "dflash": "draft-dflash",
    "dspark": "draft-dspark",
    "ngram-simple": "ngram-simple",
    "ngram-map-k": "ngram-map-k",
    "ngram-map-k4v": "ngram-map-k4v",
    "ngram-mod": "ngram-mod",
    "ngram-cache": "ngram-cache",
}

_DRAFT_LIMITS = {
    "draft_limit": ("--spec-draft-n-max", "--draft-max"),
    "draft_min": ("--spec-draft-n-min", "--draft-min"),
    "p_min": ("--spec-draft-p-min", "--draft-p-min"),
    "draft_gpu_layers": ("--spec-draft-ngl", "--gpu-layers-draft", "--n-gpu-layers-draft"),
    "draft_device": ("--spec-draft-device", "--device-draft"),
    "draft_kv_type_k": ("--spec-draft-type-k", "--cache-type-k-draft"),
    "draft_kv_type_v": ("--spec-draft-type-v", "--cache-type-v-draft"),
}
#: speculation mode: {field of the arm: names of its flag, the first that the build lists is taken}
ARM_FLAGS: dict[str, dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("draft", "mtp", "eagle3", "dflash", "dspark"), _DRAFT_LIMITS),
    **{
        mode: {
            "draft_limit": (f"--spec-{mode}-size-m", "--spec-ngram-size-m"),
            "ngram_size": (f"--spec-{mode}-size-n", "--spec-ngram-size-n"),
        }
        for mode in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
    },
    "ngram-mod": {
        "draft_limit": ("--spec-ngram-mod-n-max",),
        "draft_min": ("--spec-ngram-mod-n-min",),
        "ngram_size": ("--spec-ngram-mod-n-match",),
    },
    "ngram-cache": {},
}
#: Fields of an arm that become flags.
ARM_FIELDS = (*_DRAFT_LIMITS, "ngram_size")
DRAFT_MODEL_FLAGS = ("--spec-draft-model", "--model-draft")
SPEC_TYPE_FLAG = "--spec-type"

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


_ENTRY = re.compile(r"^(?P<names>-{1,2}[A-Za-z0-9][\w.-]*(?:,\s+-{1,2}[A-Za-z0-9][\w.-]*)*)(?P<rest>.*)$")


def capabilities(help_text: str) -> Capabilities:
    """Reads ``--help``. A flag whose text says that it has been removed is listed as removed, not as a capability."""
    flags: dict[str, str] = {}
    removed: list[str] = []
    spec_types: list[str] = []
    for names, metavar, description in _entries(help_text):
        if REMOVED in f"{metavar} {description}":  # a long name leaves no gap before its text
            removed += names
            continue
        flags.update(_canonical(names))
        if SPEC_TYPE_FLAG in names:
            spec_types = [t for t in re.split(r"[,|]", metavar.strip("[]{}<>")) if t and t != "none"]
    removed = [name for name in removed if name not in flags]
    return Capabilities(
        dialect=_dialect(flags, spec_types),
        flags=flags,
        removed_flags=removed,
        spec_types=spec_types,
        help_sha256=hashlib.sha256(help_text.encode()).hexdigest(),
    )


def _entries(help_text: str) -> list[tuple[list[str], str, str]]:
    """(names, metavar, description) of each option; a description goes on in indented lines."""
    entries: list[tuple[list[str], str, str]] = []
    for line in help_text.splitlines():
        match = _ENTRY.match(line)
        if match and not line.startswith("-----"):
            names = re.split(r",\s+", match["names"])
            metavar, _, description = match["rest"].strip().partition("  ") if match["rest"].startswith(" ") else ("", "", "")
            if match["rest"].startswith("   "):  # a column gap: the flag takes no value
                metavar, description = "", match["rest"].strip()
            entries.append((names, metavar, description.strip()))
        elif entries and line.startswith(" "):
            names, metavar, description = entries[-1]
            entries[-1] = (names, metavar, f"{description} {line.strip()}")
    return entries


def _canonical(names: list[str]) -> dict[str, str]:
    """Each name of one option → its first long name; the negative forms (--no-x) are an option of their own."""
    positive = next((n for n in names if n.startswith("--") and not n.startswith("--no-")), "")
    negative = next((n for n in names if n.startswith("--no-")), "")
    result: dict[str, str] = {}
    for i, name in enumerate(names):
        if name.startswith("--"):
            is_negative = name.startswith("--no-")
        else:  # a short name stands before the long one that it abbreviates
            is_negative = next((n for n in names[i:] if n.startswith("--")), "").startswith("--no-")
        result[name] = (negative if is_negative else positive) or positive or negative or name
    return result


def _dialect(flags: dict[str, str], spec_types: list[str]) -> str:
    if SPEC_TYPES["draft"] in spec_types:
        return "spec-type"
    if "--model-draft" in flags and "--draft-max" in flags:
        return "draft-flag"
    return "spec-type" if spec_types else "none"

"""vLLM's flags: what a build's ``--help=all`` lists, which of them SpecWeb sets itself, which a host may allow, and which never."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..inventory import Capabilities

DIALECT = "vllm"
SPECULATIVE_CONFIG_FLAG = "--speculative-config"
#: Lists each step of a request in its reply; vLLM refuses it where it doesn't speculate.
REQUEST_STEPS_FLAG = "--per-request-spec-decode-metrics"
KV_TYPE_FLAG = "--kv-cache-dtype"

#: speculation mode: the method of the speculative config
SPEC_TYPES: dict[str, str] = {
    "draft": "draft_model",
    "mtp": "mtp",
    "eagle": "eagle",
    "eagle3": "eagle3",
    "medusa": "medusa",
    "mlp-speculator": "mlp_speculator",
    "dflash": "dflash",
    "dspark": "dspark",
    "ngram": "ngram",
    "suffix": "suffix",
}


def _each(names: str, words: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), words)


#: What SpecWeb sets itself, with the field to use instead, or why there is none.
SET_FLAGS: dict[str, str] = {
    "--model": "is the experiment's target",
    "--max-model-len": "is engine.context",
    "--max-num-seqs": "is engine.slots",
    "--kv-cache-dtype": "is engine.kv_type_k and kv_type_v",
    "--max-num-batched-tokens": "is engine.batch",
    **dict.fromkeys(("--enable-prefix-caching", "--no-enable-prefix-caching"), "is engine.prefix_cache"),
    **_each(
        """
        --host --port --served-model-name --stream-interval --generation-config --override-generation-config --seed
        --enable-per-request-metrics --no-enable-per-request-metrics --per-request-spec-decode-metrics
        --enable-tokenizer-info-endpoint --no-enable-tokenizer-info-endpoint
        --enable-prompt-tokens-details --no-enable-prompt-tokens-details --disable-log-stats --help
        """,
        "is set by SpecWeb itself",
    ),
}
_CODE = "would run code that is no part of the build"
_FILES = "reads or writes files of the host"
_OUT = "talks to others"
_ANSWERS = "changes what is answered, or how"
#: What no host may allow, with the reason. Flags that stand in none of these tables are refused too: nobody has looked at them.
NEVER_FLAGS: dict[str, str] = {
    **_each(
        """
        --trust-remote-code --no-trust-remote-code --middleware --tool-parser-plugin --reasoning-parser-plugin --io-processor-plugin
        --logits-processors --worker-cls --worker-extension-cls --scheduler-cls --model-class-overrides --distributed-executor-backend
        --kv-transfer-config --ec-transfer-config --ec-manager-config --compilation-config --additional-config
        --structured-outputs-config --weight-transfer-config --hf-overrides --model-loader-extra-config --code-revision --model-impl
        """,
        _CODE,
    ),
    **_each(
        """
        --config --logging-config --log-config-file --chat-template --allowed-local-media-path --hf-config-path --download-dir
        --lora-modules --enable-lora --no-enable-lora --default-mm-loras --profiler-config --tokenizer --revision --tokenizer-revision
        --config-format --ignore-patterns --pt-load-map-location --mm-encoder-fp8-scale-path --mm-encoder-fp8-scale-save-path
        """,
        _FILES,
    ),
    **_each(
        """
        --tool-server --hf-token --otlp-traces-endpoint --collect-detailed-traces --kv-events-config --uds --grpc --grpc-port --headless
        --ssl-keyfile --ssl-certfile --ssl-ca-certs --ssl-cert-reqs --ssl-ciphers --enable-ssl-refresh --no-enable-ssl-refresh
        --allowed-media-domains --allowed-origins --allowed-methods --allowed-headers --allow-credentials --api-key --root-path
        --api-server-count --kv-offloading-backend --enable-scale-out
        """,
        _OUT,
    ),
    **_each(
        """
        --enable-trace-replay --no-enable-trace-replay --trust-request-chat-template --no-trust-request-chat-template
        --trust-request-mm-kwargs --no-trust-request-mm-kwargs --enable-prompt-embeds --enable-mm-embeds --tokens-only --skip-tokenizer-init
        --watermark-config --return-tokens-as-token-ids --enable-force-include-usage --default-chat-template-kwargs --runner --convert
        --diffusion-config --pooler-config --reasoning-config --use-fp64-gumbel
        """,
        _ANSWERS,
    ),
}
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,63}")
_AMOUNT = re.compile(r"[0-9]+(\.[0-9]+)?([kKmMgGtT]i?)?")


class Takes(NamedTuple):
    """What a flag takes. ``values``: the only ones; else ``pattern``. Nothing of both: it takes none."""

    pattern: re.Pattern[str] | None = None
    values: tuple[str, ...] = ()
    many: bool = False


_SWITCH, _NAME, _NUMBER = Takes(), Takes(_WORD), Takes(_AMOUNT)
#: What a host's owner may allow, and what each takes: none takes a path, JSON, or the name of something to import.
#: Where weights and cache lie, how they are computed. Those that are allowed unless the owner says otherwise come first.
DEFAULT_ALLOWED: dict[str, Takes] = {
    "--dtype": _NAME,
    "--quantization": _NAME,
    "--block-size": _NUMBER,
    "--enable-chunked-prefill": _SWITCH,
    "--no-enable-chunked-prefill": _SWITCH,
    "--enforce-eager": _SWITCH,
    "--optimization-level": Takes(values=("0", "1", "2", "3")),
    "--performance-mode": Takes(values=("balanced", "interactivity", "throughput")),
    "--attention-backend": _NAME,
    "--linear-backend": _NAME,
    "--moe-backend": _NAME,
    "--mamba-backend": _NAME,
    "--gpu-memory-utilization": _NUMBER,
    "--kv-cache-memory-bytes": _NUMBER,
    "--tensor-parallel-size": _NUMBER,
    "--pipeline-parallel-size": _NUMBER,
    "--enable-expert-parallel": _SWITCH,
    "--cpu-offload-gb": _NUMBER,
    "--mamba-cache-dtype": _NAME,
    "--mamba-ssm-cache-dtype": _NAME,
    "--mamba-block-size": _NUMBER,
    "--mamba-cache-mode": _NAME,
    "--disable-cascade-attn": _SWITCH,
    "--disable-custom-all-reduce": _SWITCH,
    "--long-prefill-token-threshold": _NUMBER,
    "--language-model-only": _SWITCH,
}
ALLOWABLE: dict[str, Takes] = {
    **DEFAULT_ALLOWED,
    "--load-format": Takes(values=("auto", "safetensors", "fastsafetensors", "mistral", "bitsandbytes")),
    "--safetensors-load-strategy": Takes(values=("eager", "lazy", "prefetch")),
    "--data-parallel-size": _NUMBER,
    "--decode-context-parallel-size": _NUMBER,
    "--prefill-context-parallel-size": _NUMBER,
    "--all2all-backend": _NAME,
    "--enable-eplb": _SWITCH,
    "--enable-dbo": _SWITCH,
    "--disable-sliding-window": _SWITCH,
    "--disable-hybrid-kv-cache-manager": _SWITCH,
    "--scheduling-policy": Takes(values=("fcfs", "priority")),
    "--prefix-caching-hash-algo": _NAME,
    "--kv-sharing-fast-prefill": _SWITCH,
    "--enable-flashinfer-autotune": _SWITCH,
    "--no-enable-flashinfer-autotune": _SWITCH,
    "--gdn-prefill-backend": _NAME,
    "--kda-prefill-backend": _NAME,
    "--kda-decode-backend": _NAME,
    "--numa-bind": _SWITCH,
    "--allow-deprecated-quantization": _SWITCH,
}
#: What the engine settles by itself, and may settle otherwise under speculation: left to it in every arm, so that the difference
#: shows. A control may carry it, to tell what of a speed-up it explains.
IMPLIED: dict[str, Takes] = {
    "--async-scheduling": _SWITCH,
    "--no-async-scheduling": _SWITCH,
    "--max-num-scheduled-tokens": _NUMBER,
    "--num-gpu-blocks-override": _NUMBER,
    "--cudagraph-capture-sizes": Takes(_AMOUNT, many=True),
    "--max-cudagraph-capture-size": _NUMBER,
}
_WITH_CHOICES = frozenset({*ALLOWABLE, *IMPLIED, KV_TYPE_FLAG})
DEFAULT_ALLOWED_FLAGS: tuple[str, ...] = tuple(DEFAULT_ALLOWED)
#: Never legal in ``extra``, whatever a host allows.
OWNED_FLAGS: frozenset[str] = frozenset({*SET_FLAGS, *NEVER_FLAGS, *IMPLIED, SPECULATIVE_CONFIG_FLAG})
#: Flags that SpecWeb sets for the sake of measuring: what whoever runs the same engine for other ends may leave out or change.
MEASURING_FLAGS: dict[str, str] = {
    "--host": "yours to choose: where it listens",
    "--port": "yours to choose: while measured, each start drew a free one",
    "--served-model-name": "yours to choose: the name by which requests call the model",
    "--no-enable-prefix-caching": "so that no answer profits from an earlier prompt; without it prompts are reused",
    "--stream-interval": "every token is sent as it comes",
    "--generation-config": "no request defaults from the model's folder",
    "--seed": "the same in each start",
    "--enable-per-request-metrics": "counts of each request to read beside its answer",
    "--per-request-spec-decode-metrics": "the same: what each step drafted and accepted",
    "--enable-prompt-tokens-details": "the same: tokens of the prompt that came from a cache",
    "--enable-tokenizer-info-endpoint": "to read the chat template",
}
#: Names in the environment that no owner's configuration may set, with the reason.
NEVER_ENVIRONMENT: dict[str, str] = {
    "VLLM_PLUGINS": _CODE,
    "VLLM_SERVER_DEV_MODE": "opens the engine to requests that change it",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": _CODE,
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "lets requests load weights",
    "HF_TOKEN": "is for downloads, and there are none",
    **dict.fromkeys(
        ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "LD_AUDIT"),
        "puts code into the engine that no hash of the build covers",
    ),
    "LD_PRELOAD": "puts code into the engine that no hash of the build covers, also where it is tcmalloc, as vLLM advises",
}


def is_speculation(flag: str) -> bool:
    """Whether a long flag belongs to speculation: it may differ between arms, others may not."""
    return flag.startswith(("--spec-", "--speculative-")) or flag == REQUEST_STEPS_FLAG


def without_speculation(argv: list[str]) -> list[str]:
    """A command as :func:`vllm.render` makes it, less port, speculation and what a control carries of it: equal in all arms."""
    kept, skipping = [], False
    for word in argv:
        if word.startswith("--"):
            skipping = is_speculation(word) or word in IMPLIED or word == "--port"
        if not skipping:
            kept.append(word)
    return kept


def capabilities(help_text: str) -> Capabilities:
    """Reads ``vllm serve --help=all``. ``--spec-method`` lists the methods there; a build without that list, but with a speculative
    config, is believed to know all, and says at its start if it doesn't.
    """
    flags: dict[str, str] = {}
    switches: list[str] = []
    choices: dict[str, list[str]] = {}
    methods: list[str] = []
    for invocation, _ in entries(help_text):
        names = names_of(invocation)
        flags |= (known := _canonical(names))
        listed = _choices(invocation)
        choices |= {flag: listed for flag in known.values() if listed and flag in _WITH_CHOICES}
        if invocation == ", ".join(names):  # nothing stands for a value
            switches += dict.fromkeys(known.values())
        if "--spec-method" in names:
            methods = [m for m in listed if not m.endswith("_mtp")]  # which are older names of mtp, one for each family
    if SPECULATIVE_CONFIG_FLAG in flags and not methods:
        methods = list(SPEC_TYPES.values())
    return Capabilities(
        dialect=DIALECT if "--max-model-len" in flags else "none",
        flags=flags,
        switches=sorted(switches),
        spec_types=methods,
        choices=choices,
        help_sha256=hashlib.sha256(help_text.encode()).hexdigest(),
    )


def entries(help_text: str) -> Iterator[tuple[str, str]]:
    """(invocation, description) of each option, the description with its lines joined."""
    invocation, description = "", ""
    for line in help_text.splitlines():
        if re.match(r"  -{1,2}[A-Za-z]", line):
            if invocation:
                yield invocation, description.strip()
            # Two spaces end an invocation that leaves room for its text.
            invocation, _, description = line.strip().partition("  ")
        elif invocation and line.startswith("   "):
            description += f" {line.strip()}"
        elif line and not line.startswith(" "):  # the head of the next group
            if invocation:
                yield invocation, description.strip()
            invocation, description = "", ""
    if invocation:
        yield invocation, description.strip()


def names_of(invocation: str) -> list[str]:
    """``--a A, -a A`` → ``--a``, ``-a``; choices in brackets hold no names."""
    bare = re.sub(r"\{[^{}]*\}|\[[^\[\]]*\]", "", invocation)
    return [part.split()[0] for part in bare.split(", ") if part.startswith("-")]


def _choices(invocation: str) -> list[str]:
    """The values that an option lists, as ``{a,b}`` or ``['a', 'b']``; nothing for one that takes any."""
    listed = re.search(r"\{([^{}]*)\}|\[('[^\[\]]*')\]", invocation)
    return [c for c in re.split(r"[,\s']+", listed[1] or listed[2]) if c and c != "None"] if listed else []


def _canonical(names: list[str]) -> dict[str, str]:
    """Each name of an option → its first long name; a negative form (--no-x) is an option of its own."""
    longs = [n for n in names if n.startswith("--")]
    first = next((n for n in longs if not n.startswith("--no-")), longs[0] if longs else names[0])
    return {name: name if name.startswith("--no-") else first for name in names}


def first_known(flags: Mapping[str, str], *names: str) -> str:
    """The first of the names that the build knows, as its long name; empty if it knows none."""
    return next((flags[n] for n in names if n in flags), "")

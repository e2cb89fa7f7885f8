"""The fields of the experiment form: where each stands in the spec, what it is called, and what it means in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from speccore.spec import MODES, MODES_WITH_DRAFT_MODEL

Kind = Literal["text", "number", "choice", "tick", "area", "list", "map"]


@dataclass(frozen=True)
class Field:
    """``path`` is dotted as in the spec, from the row for a field of a row. ``default`` is what an empty field stands for."""

    path: str
    label: str
    help: str
    kind: Kind = "text"
    default: str = ""
    offers: str = ""  # the list that it chooses from, or that suggests values
    matters: str = ""  # class of the arms that it matters to (plain: those that don't speculate): an empty field is hidden in others
    word: bool = False  # a bare off or on of YAML is a word here

    @property
    def name(self) -> str:
        return self.path.replace(".", "-")


def _number(path: str, label: str, words: str, default: str = "", matters: str = "") -> Field:
    return Field(path, label, words, "number", default, matters=matters)


QUESTION = (
    Field("name", "Name", "A short title, which lists show."),
    Field("question", "Question", "One sentence that the answer will stand under; left empty, it is made from what is compared.", "area"),
)
TARGET = (
    Field("target.model", "Target model", "The model that is asked: an alias that your hosts offer, or a model’s hash.", offers="models"),
)
RUNTIME = (
    Field("runtime.engine", "Engine", "The program that serves the model.", "choice", "llama-server", "engines"),
    Field("runtime.version", "Version", "Text that must stand in what the build says of its version.", default="any", offers="versions"),
    Field(
        "runtime.source_commit", "Commit", "The source commit that it was built from, or its beginning.", default="any", offers="commits"
    ),
    Field("runtime.backend", "Backend", "What it computes with: cpu, cuda, vulkan and so on.", default="any", offers="backends"),
    Field("runtime.manifest_hash", "Exact build", "The hash of one build, where only that one will do.", default="any", offers="builds"),
    Field(
        "runtime.attached",
        "Attached",
        "Servers that already run, one for each arm by its name: nothing is restarted between trials.",
        "tick",
    ),
)
ENGINE = (
    _number("engine.context", "Context", "Tokens that each slot can hold.", "4096"),
    _number("engine.slots", "Slots", "Requests that the engine serves at a time; at least the largest concurrency.", "1"),
    _number("engine.threads", "CPU threads", "Left empty, each host takes its own default: all cores but one.", "host’s default"),
    _number("engine.gpu_layers", "GPU layers", "Layers of the target on the card; left empty, the engine decides.", "engine’s default"),
)
ENGINE_MORE = (
    Field("engine.kv_type_k", "KV type K", "Number format of the cached keys, for example f16 or q8_0.", default="engine’s default"),
    Field("engine.kv_type_v", "KV type V", "Number format of the cached values.", default="engine’s default"),
    _number("engine.batch", "Batch", "Most tokens of a prompt in one logical batch.", "engine’s default"),
    _number("engine.ubatch", "Micro-batch", "Most tokens that are computed at once.", "engine’s default"),
    Field("engine.flash_attention", "Flash attention", "Left empty, the engine decides.", "choice", "engine’s default", "flash", word=True),
    Field("engine.prefix_cache", "Prefix cache", "Lets a prompt reuse what an earlier one left; off for a cold measurement.", "tick"),
    _number("engine.log_verbosity", "Log verbosity", "4 tells buffers, memory and what speculation did.", "4"),
    _number("engine.start_timeout_s", "Start within, s", "An engine that isn’t healthy by then has failed.", "300"),
    _number("engine.probe_timeout_s", "Answer within, s", "A timed request that takes longer has failed.", "300"),
)
PLAN = (
    _number("blocks", "Blocks", "Each block starts every arm once; 5 are usual, fewer than 3 give no verdict.", "5"),
    Field("sequential", "Stop early", "Looks after blocks 3, 5, 7 and 10: an arm that is decided leaves the later ones.", "tick"),
    Field("fit", "Find what fits", "After the blocks, finds the largest context that loads with and without each helper.", "tick"),
    Field(
        "warmup.mode",
        "Warm-up",
        "At each point until the speed has settled, or a fixed number of requests.",
        "choice",
        "settled",
        "warmups",
    ),
    _number("warmup.most", "Warm-up at most", "Requests of a point at the most, where it goes on until the speed has settled.", "10"),
    _number(
        "warmup.requests",
        "Warm-up requests",
        "Of a fixed warm-up: sent before the first timed request of each start, and not counted.",
        "1",
    ),
    Field(
        "second_look",
        "Ask again",
        "Each greedy prompt once more without speculation, untimed, so that near-ties can be told from wrong tokens.",
        "choice",
        "once",
        "second_looks",
    ),
    _number("seed", "Seed", "Draws the order of arms, the prompts and their seeds.", "1"),
    _number("margin", "Margin", "The smallest gain worth having, as a share: 0.03 is 3 %.", "0.03"),
)
REQUIREMENTS = (
    _number("requirements.context", "Context kept", "Tokens per slot that an arm must still offer to be worth keeping.", "none"),
    _number("requirements.slots", "Slots kept", "Slots that an arm must still offer to be worth keeping.", "none"),
    _number(
        "requirements.free_memory_mib", "Memory left free, MiB", "That must stay free where the model runs, for an arm to be kept.", "none"
    ),
    Field(
        "requirements.quality",
        "Quality",
        "Not shown to be lost, or shown to be held: the latter needs many checked prompts.",
        "choice",
        "not lost",
        "qualities",
    ),
)
SAMPLING_TEST = (
    Field(
        "sampling_test.workload",
        "Sampling test",
        "Prompts to continue under other seeds: do both draw alike? Empty: no test.",
        "choice",
        "none",
        "workloads",
    ),
    _number("sampling_test.continuations", "Continuations", "Of each arm, over all blocks.", "2000"),
    _number("sampling_test.positions", "Tokens of each", "Positions that are compared.", "4"),
    _number("sampling_test.sampling.temperature", "Test temperature", "At which the continuations are drawn.", "0.8"),
    _number("sampling_test.sampling.top_k", "Test top k", "Only the k likeliest tokens are drawn from.", "engine’s"),
    _number("sampling_test.sampling.top_p", "Test top p", "Only the likeliest tokens that make up this probability.", "engine’s"),
    _number("sampling_test.sampling.min_p", "Test min p", "Only tokens at least this likely, as a share of the likeliest.", "engine’s"),
)
PLACEMENT = (
    _number("placement.count", "On how many hosts", "Any that fit, where no host is ticked.", "1"),
    Field("placement.each", "On each host", "On every host with these labels, instead of a number of them.", "tick"),
)

ARM = (
    Field("name", "Name", "How tables and plots call it; letters, digits and . _ + / @ -", word=True),
    Field("mode", "Mode", "Who proposes the tokens; exactly one arm is off, the baseline.", "choice", offers="modes", word=True),
    Field("draft_model", "Draft model", "The second model, by alias or hash.", offers="models", matters="with-model"),
    _number("draft_limit", "Draft limit", "Most tokens drafted in one cycle.", "engine’s", "speculates"),
)
ARM_MORE = (
    _number("draft_min", "Draft min", "Fewest tokens that are worth verifying.", "engine’s", "speculates"),
    _number("p_min", "Least probability", "The drafter stops when it is less sure than this, from 0 to 1.", "engine’s", "speculates"),
    _number("draft_gpu_layers", "Draft GPU layers", "Layers of the draft model on the card.", "engine’s", "with-model"),
    Field(
        "draft_device",
        "Draft device",
        "Where the draft model runs, as the engine names it: CUDA1, or none for the CPU.",
        default="engine’s",
        matters="with-model",
    ),
    Field(
        "draft_kv_type_k", "Draft KV type K", "Number format of the draft model’s cached keys.", default="engine’s", matters="with-model"
    ),
    Field(
        "draft_kv_type_v", "Draft KV type V", "Number format of the draft model’s cached values.", default="engine’s", matters="with-model"
    ),
    _number("draft_threads", "Draft threads", "CPU threads of the draft model.", "engine’s", "with-model"),
    _number("p_split", "Split probability", "Least probability of a second branch of the draft, from 0 to 1.", "engine’s", "speculates"),
    _number(
        "ngram_size", "N-gram size", "Tokens that are looked up in what was said so far; of a range the most.", "engine’s", "with-ngram"
    ),
    _number("ngram_min", "N-gram least", "Of a range the fewest tokens that are looked up.", "engine’s", "with-ngram"),
    _number("ngram_hits", "N-gram hits", "How often an n-gram must have come before it is believed.", "engine’s", "with-ngram"),
    Field(
        "also",
        "Beside it",
        "N-gram drafters that stand beside this one, with a comma between.",
        kind="list",
        default="none",
        offers="beside",
        matters="speculates",
    ),
    _number("also_limit", "Limit beside it", "Most tokens that those beside it draft in one cycle.", "engine’s", "speculates"),
    Field(
        "extra",
        "Further settings",
        "Flags of llama-server or keys of vLLM’s speculative config, as key: value, …",
        kind="map",
        default="none",
    ),
    Field(
        "control",
        "Control",
        "A second arm with mode off, which tells how much the host varies by itself; with further settings, what another arm’s bring with them.",
        "tick",
        matters="plain",
    ),
)
POINT = (
    Field("workload", "Workload", "The prompts; a bare name takes the newest version.", "choice", offers="workloads"),
    _number("max_tokens", "Most tokens", "An answer ends here, if it doesn’t end by itself.", "128"),
    _number(
        "probes",
        "Probes",
        "Timed requests in each start of the server; by the clock or with several at a time at least 24, and four for each.",
        "2",
    ),
    _number("sampling.temperature", "Temperature", "0 takes the likeliest token each time.", "0"),
    _number("concurrency", "Concurrency", "Requests in flight at a time; needs as many slots.", "1"),
)
POINT_MORE = (
    _number(
        "occupied_context",
        "Occupied context",
        "Tokens in the context when the timed answer begins, the prompt’s included: real text stands before it.",
        "0",
    ),
    _number(
        "rate_per_s",
        "Rate, 1/s",
        "Requests by the clock, so many a second, whatever the answers do; empty: the next when one has ended.",
        "none",
    ),
    Field("warm", "Warm", "Each prompt was asked before in the same start: measures what a repeat is worth.", "tick"),
    Field(
        "thinking",
        "Chat and thinking",
        "Through the model’s chat template, with thinking on or off; empty: the bare text.",
        "choice",
        "bare text",
        "thinkings",
    ),
    _number("sampling.top_k", "Top k", "Only the k likeliest tokens are drawn from.", "engine’s"),
    _number("sampling.top_p", "Top p", "Only the likeliest tokens that make up this probability.", "engine’s"),
    _number("sampling.min_p", "Min p", "Only tokens at least this likely, as a share of the likeliest.", "engine’s"),
)
EXTRA = (
    Field("flag", "Flag", "A long flag of the engine, for example --override-tensor; hosts must allow it.", offers="flags"),
    Field("value", "Value", "Empty for a flag without one, false for its --no- form; several values: one row each."),
)
LABEL = (
    Field("key", "Label", "A label that hosts’ owners gave them.", offers="label_keys"),
    Field("value", "Value", "What the label must say.", offers="label_values"),
)

#: Fields that stand once, in the order of the spec.
SINGLE = (*QUESTION, *TARGET, *RUNTIME, *ENGINE, *ENGINE_MORE, *PLAN, *REQUIREMENTS, *SAMPLING_TEST, *PLACEMENT)
#: Groups of rows, by the name that their fields begin with.
ROWS: dict[str, tuple[Field, ...]] = {
    "engine-extra": EXTRA,
    "arms": (*ARM, *ARM_MORE),
    "points": (*POINT, *POINT_MORE),
    "placement-labels": LABEL,
}
#: What a row is called, for a message about it.
ROW_WORDS = {"engine-extra": "Flag", "arms": "Arm", "points": "Point", "placement-labels": "Label"}
#: What the form doesn't ask for, since it has one value.
FIXED = {"version": 1}

MODE_WORDS: dict[str, str] = {
    "off": "no speculation: the baseline",
    "draft": "a smaller model proposes",
    "mtp": "the target’s own layers propose",
    "eagle": "an EAGLE head proposes",
    "eagle3": "an EAGLE-3 head proposes",
    "medusa": "Medusa heads propose",
    "mlp-speculator": "a small network proposes",
    "dflash": "a DFlash head proposes",
    "dspark": "a DSpark head proposes",
    "ngram": "continues as the same words did before",
    "ngram-simple": "continues as the text did before",
    "ngram-map-k": "a map of this text’s n-grams",
    "ngram-map-k4v": "a map with more continuations",
    "ngram-mod": "a hashed map, kept after a request",
    "ngram-cache": "n-grams, kept after a request",
    "suffix": "a suffix tree of earlier answers",
}


def mode_class(mode: str) -> str:
    """Class of an arm by what its mode needs, for the fields that matter to it."""
    if mode in MODES_WITH_DRAFT_MODEL:
        return "speculates with-model"
    return {"off": "", "ngram": "speculates with-ngram"}.get(MODES.get(mode, "model"), "speculates")

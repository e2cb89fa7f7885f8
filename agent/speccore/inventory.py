"""What a host is and offers: hardware, devices, engine builds with their capabilities, models, and what its owner allows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from .canonical import sha256_of


class Peer(BaseModel):
    """Base of what machines send: unknown fields of a newer peer are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


#: A hash: part of addresses and a key of tables.
Identity = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class Capabilities(Peer):
    """What an engine build can do, read from its ``--help`` and never from its version.

    ``flags`` maps every name that the help lists (short and long, removed ones left out) to the long name that
    SpecWeb uses for it. ``spec_types`` are the values that ``--spec-type`` takes (empty: no such flag).
    """

    dialect: str  # "spec-type" (today's llama-server), "draft-flag" (older: -md and --draft-max), "none", "vllm", "attached": not asked
    flags: dict[str, str]
    removed_flags: list[str] = []
    spec_types: list[str] = []
    one_spec_type: bool = False  # ``--spec-type`` takes one of them, and no list
    switches: list[str] = []  # long names of flags that take no value; empty: not looked at
    defaults: dict[str, str] = {}  # long name of a flag of speculation: the number that the build takes by itself
    choices: dict[str, list[str]] = {}  # long name of a flag whose values the help lists: those; of flags that may be set
    help_sha256: str = ""


class RuntimeInfo(Peer):
    """An engine build on a host; its identity is ``manifest_hash``."""

    engine: str = Field(min_length=1, max_length=20)  # as the agent names it; a newer one may know further ones
    version: str  # what --version prints, one line
    source_commit: str = ""
    backend: str = ""  # "cpu", "vulkan", "cuda", …, from the libraries that it loads
    manifest_hash: Identity
    manifest: dict[str, str] = {}  # file name: sha256
    executable: str  # path on the host; in a container, in its image; of a server that stands already, empty
    capabilities: Capabilities
    kind: Literal["process", "container", "attached"] = "process"
    image: str = ""  # of a container: name@sha256:digest
    servers: dict[str, str] = {}  # of an attached one: arm's name: address of the server that stands for it
    oddities: list[str] = []  # what looking at it found odd, in clauses


class BrokenRuntime(Peer):
    """A build in the owner's configuration that can't be used. ``why`` in one clause."""

    engine: str
    kind: str = "process"
    path: str  # or image, or address
    why: str
    remedy: str = ""


class TokenizerInfo(Peer):
    """What of a model's tokenizer another one must share to draft for it. Hashes of nothing are empty; None: the file doesn't say."""

    kind: str = ""  # "gpt2", "llama", …
    pre: str = ""  # how text is cut before it becomes tokens
    n_tokens: int = Field(default=0, ge=0)
    tokens_hash: str = ""
    #: Of the tokens from id 5 on: all of them, all but the last, all but the last two, …, so that sizes may differ a little.
    prefix_hashes: list[str] = []
    merges_hash: str = ""
    special: dict[str, int] = {}  # name: id, e.g. bos, eos, eot
    add_bos: bool | None = None
    add_eos: bool | None = None


class BlockShape(Peer):
    """One block of a model: bytes of its weights, values that one token adds to K and to V, bytes of state of one sequence."""

    weights: int = Field(ge=0)
    k: int = Field(default=0, ge=0)
    v: int = Field(default=0, ge=0)
    state: int = Field(default=0, ge=0)
    windowed: bool = False  # attends to the last ``MemoryShape.window`` tokens only


class MemoryShape(Peer):
    """What of a model file decides the memory that it takes. ``unknown``: why its cache can't be told from it; else empty."""

    blocks: list[BlockShape]
    n_next: int = Field(default=0, ge=0)  # of the blocks, at the end: a head for mtp, loaded for that only
    embedding_bytes: int = Field(ge=0)  # of tokens; stays in the host's memory
    other_bytes: int = Field(ge=0)  # the output's weights and norms
    host_bytes: int = Field(default=0, ge=0)  # further tables that are looked up in the host's memory, e.g. embeddings by layer
    tied: bool = False  # the embedding is the output's too
    width: int = Field(ge=0)
    feed_forward: int = Field(default=0, ge=0)
    heads: int = Field(default=0, ge=0)
    window: int = Field(default=0, ge=0)  # tokens; 0: none
    hidden: int = Field(default=0, ge=0)  # of a head that works in another width than its target: the width of the target's states
    unknown: str = ""


class ModelInfo(Peer):
    """A model on a host: read from its file or folder, or known by the word of a server that stands already (``format``)."""

    alias: str
    manifest_hash: Identity
    manifest: dict[str, str] = {}
    path: str
    format: str = "gguf"  # or "hf": a folder with config.json; "served": a server tells of it and no file is known
    size_bytes: int = Field(ge=0)
    architecture: str = ""
    quantization: str = ""
    n_parameters: int | None = None
    n_layers: int | None = None
    context_length: int | None = None
    vocab_size: int | None = None
    has_mtp: bool = False
    custom_code: bool = False  # its folder brings code of its own, which is never run
    drafts_for: str = ""  # of a folder that names the model that it drafts for: that name or path
    tokenizer_hash: str = ""
    tokenizer: TokenizerInfo | None = None  # None: it has no vocabulary, or an older agent has looked
    chat_template_hash: str = ""
    memory: MemoryShape | None = None  # None: an older agent has looked


class Device(Peer):
    """What a job computes on. A host without a GPU has one device of kind cpu."""

    uuid: str
    kind: Literal["cpu", "gpu"]
    name: str
    memory_bytes: int = Field(ge=0)
    driver: str = ""
    power_cap_w: float | None = None


class HostInventory(Peer):
    protocol: int = 1
    agent_version: str
    hostname: str
    os: dict[str, str]  # system, release, machine, libc
    boot_id: str
    cpu_model: str
    n_cores: int = Field(ge=1)
    memory_bytes: int = Field(ge=0)
    engine_threads: int | None = Field(default=None, ge=1)  # what the host's owner allows an engine; None: all cores but one
    devices: list[Device] = Field(min_length=1)
    runtimes: list[RuntimeInfo]
    models: list[ModelInfo]
    allowed_flags: list[str] = Field(default_factory=list)
    labels: dict[str, str] = Field(default_factory=dict)
    sensors: dict[str, str] = Field(default_factory=dict)  # name: "ok", or why it is missing
    broken_runtimes: list[BrokenRuntime] = Field(default_factory=list)
    cpu_flags: list[str] = Field(default_factory=list)  # instruction sets that engines are built for, e.g. avx2, avx512f, amx_int8
    problems: list[str] = Field(default_factory=list)  # e.g. a configured model file that is not there

    def content_hash(self) -> str:
        return sha256_of(self.model_dump(mode="json"))

    def default_threads(self) -> int:
        """CPU threads of an engine whose experiment names none; agent and server must render the same."""
        return self.engine_threads or max(1, self.n_cores - 1)

    def driver(self) -> str:
        """The drivers of the devices, each once; empty where there is none, as on a CPU."""
        return ", ".join(sorted({d.driver for d in self.devices if d.driver}))

    def hardware_name(self) -> str:
        """The class of the devices, e.g. ``1 × NVIDIA H200`` or ``CPU · Intel Xeon, 2 cores``."""
        if self.devices[0].kind == "cpu":
            return f"CPU · {self.cpu_model}, {self.n_cores} core{'' if self.n_cores == 1 else 's'}"
        names = [d.name for d in self.devices]
        return " + ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))

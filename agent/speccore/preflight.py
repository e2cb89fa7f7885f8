"""Whether a helper model can draft for a target, told from both files' metadata before anything is started.

llama-server compares the vocabularies itself when it loads a helper (mode *draft*): their kind, whether and with which token
texts begin and end, their sizes, and the text of each token. A pair that it refuses is loaded all the same, and then served
without speculation. What it doesn't look at (merges, other special tokens, chat templates) lets a pair start that guesses badly.

vLLM compares the numbers of tokens alone and ends at its start if they differ, unless it is told to translate. A helper with as
many other tokens starts, and drafts by their numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .errors import ErrorBody, VocabMismatch
from .inventory import ModelInfo, RuntimeInfo, TokenizerInfo
from .spec import Arm

#: Modes whose helper is a whole model with a vocabulary of its own; the heads of other modes have none, or map theirs.
MODES_COMPARED = frozenset({"draft"})
#: Of a head in a file of its own the engine compares nothing: it drafts by the numbers of tokens, whatever they stand for there.
MODES_BY_NUMBER = frozenset({"mtp"})
#: What llama-server allows vocabularies to differ by in size; the texts of the first tokens may differ too.
MOST_SIZE_DIFFERENCE = 128
FIRST_TOKEN_COMPARED = 5
_SHORT_HASH = 10  # 40 bits: a wrong match once in a trillion pairs


@dataclass(frozen=True)
class PairCheck:
    """``refused``: why the engine will not draft with this pair, in clauses. ``differs``: what it doesn't mind, and a sceptic does."""

    refused: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)


def compare_pair(target: ModelInfo, draft: ModelInfo) -> PairCheck:
    """What is not known of either file is not held against the pair."""
    if target.tokenizer and draft.tokenizer:
        refused = [*_refused(target.tokenizer, draft.tokenizer)]
        differs = [*_subtle(target.tokenizer, draft.tokenizer)]
    else:
        refused = [*_sizes_apart(target.vocab_size, draft.vocab_size)]
        tokenizers = target.tokenizer_hash, draft.tokenizer_hash
        differs = ["tokenizer"] if all(tokenizers) and tokenizers[0] != tokenizers[1] and not refused else []
    if size := _size_words(target, draft):
        differs.append(size)
    templates = target.chat_template_hash, draft.chat_template_hash
    if all(templates) and templates[0] != templates[1]:
        differs.append("chat template")
    return PairCheck(refused, differs)


def translates(arm: Arm) -> bool:
    """Whether vLLM is told to draft with the tokens that both vocabularies have."""
    return arm.extra.get("use_heterogeneous_vocab") is True


def refusal(target: ModelInfo, draft: ModelInfo, mode: str, runtime: RuntimeInfo, *, translated: bool = False) -> ErrorBody | None:
    """That the engine build would serve this pair without speculation, or not at all; None where it will draft, or where that is not known.

    Builds of the older dialect are not spoken for: some translate between vocabularies. ``translated``: see :func:`translates`.
    """
    if mode in MODES_COMPARED and runtime.engine == "vllm" and not translated:
        return _refusal_by_number(target, draft)
    if mode not in MODES_COMPARED or runtime.engine != "llama-server" or runtime.capabilities.dialect != "spec-type":
        return None
    why = compare_pair(target, draft).refused
    if not why:
        return None
    words = f"{draft.alias} can't draft for {target.alias}: {'; '.join(why)} (the engine would start, and serve without speculation)"
    return VocabMismatch(words, target=target.alias, draft=draft.alias).body()


def _refusal_by_number(target: ModelInfo, draft: ModelInfo) -> ErrorBody | None:
    there, here = target.vocab_size, draft.vocab_size
    if not there or not here or there == here:
        return None
    words = f"{draft.alias} can't draft for {target.alias}: it knows {here:,} tokens, the target {there:,} (vLLM would end at its start)"
    remedy = "Take a helper with the target's vocabulary, or let vLLM translate: use_heterogeneous_vocab: true in the arm's extra."
    return VocabMismatch(words, remedy=remedy, target=target.alias, draft=draft.alias).body()


def warning(target: ModelInfo, draft: ModelInfo, mode: str, runtime: RuntimeInfo | None, *, translated: bool = False) -> str:
    """What a colleague would say of a pair that starts; empty if nothing."""
    found = compare_pair(target, draft)
    if mode in MODES_COMPARED and translated:
        return ""
    if mode in MODES_BY_NUMBER and found.refused:
        return f"{draft.alias} is no head of {target.alias}: {'; '.join(found.refused)}: the engine drafts with it all the same, by the numbers of tokens"
    if mode not in MODES_COMPARED or (runtime and refusal(target, draft, mode, runtime)):
        return ""
    if found.refused:
        blind = ": vLLM compares their numbers only, and drafts by them" if runtime and runtime.engine == "vllm" else ""
        return f"{draft.alias} can't be expected to draft for {target.alias}: {'; '.join(found.refused)}{blind}"
    if not found.differs:
        return ""
    return f"{draft.alias} and {target.alias} differ in {_listed(found.differs)}: the pair starts, and the helper may only guess worse"


def prefix_hashes(tokens: Sequence[str]) -> list[str]:
    """Short hashes of the tokens that engines compare: of all, of all but the last, …, as far as sizes may differ."""
    found: list[str] = []
    digest = hashlib.sha256()
    for n, token in enumerate(tokens, 1):
        if n > FIRST_TOKEN_COMPARED:
            digest.update(token.encode("utf-8", "surrogatepass") + b"\0")
        if n >= len(tokens) - MOST_SIZE_DIFFERENCE:
            found.append(digest.hexdigest()[:_SHORT_HASH])
    return found[::-1]


def _refused(target: TokenizerInfo, draft: TokenizerInfo) -> Iterator[str]:
    if target.kind != draft.kind:
        yield f"its tokenizer is of another kind ({draft.kind or 'none'}; the target's is {target.kind or 'none'})"
        return
    for verb, adds, token in (("begins", "add_bos", "bos"), ("ends", "add_eos", "eos")):
        theirs, own = getattr(target, adds), getattr(draft, adds)
        if theirs is not None and own is not None and theirs != own:
            yield f"it {verb} texts {'with' if own else 'without'} a special token, the target {'with' if theirs else 'without'} one"
        elif theirs and own and (ids := (target.special.get(token), draft.special.get(token))) and None not in ids and ids[0] != ids[1]:
            yield f"it {verb} texts with token {ids[1]}, the target with token {ids[0]}"
    apart = list(_sizes_apart(target.n_tokens, draft.n_tokens))
    yield from apart
    if not apart and _texts_agree(target, draft) is False:
        yield "its vocabulary has other tokens than the target's"


def _sizes_apart(target: int | None, draft: int | None) -> Iterator[str]:
    if target and draft and abs(target - draft) > MOST_SIZE_DIFFERENCE:
        yield f"it knows {draft:,} tokens, the target {target:,}: more than {MOST_SIZE_DIFFERENCE} apart"


def _texts_agree(target: TokenizerInfo, draft: TokenizerInfo) -> bool | None:
    """Whether the tokens that both have are the same ones, the first few aside; None if that can't be told."""
    smaller, larger = sorted((target, draft), key=lambda t: t.n_tokens)
    beyond = larger.n_tokens - smaller.n_tokens
    if not smaller.prefix_hashes or beyond >= len(larger.prefix_hashes):
        return None
    return smaller.prefix_hashes[0] == larger.prefix_hashes[beyond]


def _subtle(target: TokenizerInfo, draft: TokenizerInfo) -> Iterator[str]:
    if target.pre != draft.pre:
        yield f"how text is cut before it becomes tokens ({draft.pre or 'unnamed'}, the target's {target.pre or 'unnamed'})"
    if target.merges_hash != draft.merges_hash:
        yield "merges"
    if target.n_tokens == draft.n_tokens and target.tokens_hash != draft.tokens_hash and _texts_agree(target, draft):
        yield f"the first {FIRST_TOKEN_COMPARED} tokens"
    names = [n for n in target.special if n in draft.special and target.special[n] != draft.special[n]]
    if names:
        yield f"special tokens ({', '.join(f'{n} {draft.special[n]}, the target has {target.special[n]}' for n in sorted(names))})"


def _size_words(target: ModelInfo, draft: ModelInfo) -> str:
    there, here = target.vocab_size, draft.vocab_size
    if not there or not here or there == here or abs(there - here) > MOST_SIZE_DIFFERENCE:
        return ""
    return f"size of vocabulary ({here:,} tokens, the target's {there:,})"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"

"""Pairs of target and helper as their files describe them: what the engine refuses, what only guesses worse, what is not known."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.canonical import sha256_of
from speccore.inventory import Capabilities, ModelInfo, RuntimeInfo, TokenizerInfo
from speccore.preflight import compare_pair, prefix_hashes, refusal, translates, warning
from speccore.spec import Arm

TOKENS = [f"t{i}" for i in range(400)]


def runtime(dialect: str = "spec-type", engine: Any = "llama-server") -> RuntimeInfo:
    return RuntimeInfo(
        engine=engine, version="1", manifest_hash="a" * 64, executable="/e", capabilities=Capabilities(dialect=dialect, flags={})
    )


def tokenizer(tokens: list[str] | None = None, **changes: Any) -> TokenizerInfo:
    tokens = TOKENS if tokens is None else tokens
    facts: dict[str, Any] = {
        "kind": "gpt2",
        "pre": "qwen2",
        "n_tokens": len(tokens),
        "tokens_hash": sha256_of(tokens),
        "prefix_hashes": prefix_hashes(tokens),
        "merges_hash": "m",
        "special": {"bos": 1, "eos": 2},
        "add_bos": True,
        "add_eos": False,
    }
    return TokenizerInfo(**(facts | changes))


def model(alias: str, held: TokenizerInfo | None, **changes: Any) -> ModelInfo:
    facts: dict[str, Any] = {"vocab_size": held.n_tokens if held else 400, "tokenizer_hash": "t", "chat_template_hash": "c"}
    return ModelInfo(alias=alias, manifest_hash=alias, path=f"/{alias}", size_bytes=1, tokenizer=held, **(facts | changes))


TARGET = model("big", tokenizer())


def pair(**changes: Any) -> tuple[list[str], list[str]]:
    found = compare_pair(TARGET, model("small", tokenizer(**changes)))
    return found.refused, found.differs


class TestTheEnginesRule:
    def test_a_pair_of_one_family(self) -> None:
        assert pair() == ([], [])
        assert refusal(TARGET, model("small", tokenizer()), "draft", runtime()) is None
        assert warning(TARGET, model("small", tokenizer()), "draft", runtime()) == ""

    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"kind": "llama"}, "its tokenizer is of another kind (llama; the target's is gpt2)"),
            ({"add_bos": False}, "it begins texts without a special token, the target with one"),
            ({"add_eos": True}, "it ends texts with a special token, the target without one"),
            ({"special": {"bos": 7, "eos": 2}}, "it begins texts with token 7, the target with token 1"),
            ({"tokens": TOKENS[:271]}, "it knows 271 tokens, the target 400: more than 128 apart"),
            ({"tokens": [*TOKENS[:5], "x", *TOKENS[6:]]}, "its vocabulary has other tokens than the target's"),
            ({"tokens": [*TOKENS[:300], "x"]}, "its vocabulary has other tokens than the target's"),
            ({"tokens": [*TOKENS[:-1], "x", "y", "z"]}, "its vocabulary has other tokens than the target's"),
        ],
    )
    def test_refused(self, changes: dict[str, Any], why: str) -> None:
        assert pair(**changes)[0] == [why]
        told = refusal(TARGET, model("small", tokenizer(**changes)), "draft", runtime())
        assert told is not None
        assert (told.code, told.blame) == ("vocab_mismatch", "spec")
        assert told.message == f"small can't draft for big: {why} (the engine would start, and serve without speculation)"
        assert told.remedy

    @pytest.mark.parametrize("n", [272, 399])
    def test_a_vocabulary_that_is_a_little_smaller_will_do(self, n: int) -> None:
        refused, differs = pair(tokens=TOKENS[:n])
        assert refused == []
        assert differs == [f"size of vocabulary ({n} tokens, the target's 400)"]

    def test_and_one_that_is_a_little_larger(self) -> None:
        assert pair(tokens=[*TOKENS, *(f"pad{i}" for i in range(128))]) == ([], ["size of vocabulary (528 tokens, the target's 400)"])

    def test_the_first_five_tokens_may_differ(self) -> None:
        assert pair(tokens=["a", "b", "c", "d", "e", *TOKENS[5:]]) == ([], ["the first 5 tokens"])

    def test_a_special_token_that_is_not_added_is_not_compared_by_the_engine(self) -> None:
        assert pair(special={"bos": 1, "eos": 9}) == ([], ["special tokens (eos 9, the target has 2)"])


class TestWhatTheEngineDoesNotLookAt:
    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"merges_hash": "other"}, "merges"),
            ({"pre": "llama-bpe"}, "how text is cut before it becomes tokens (llama-bpe, the target's qwen2)"),
            ({"special": {"bos": 1, "eos": 2, "eot": 5}}, ""),  # the target's file doesn't name one
        ],
    )
    def test_is_told_as_a_warning(self, changes: dict[str, Any], said: str) -> None:
        words = warning(TARGET, model("small", tokenizer(**changes)), "draft", runtime())
        assert words == (f"small and big differ in {said}: the pair starts, and the helper may only guess worse" if said else "")

    def test_chat_templates(self) -> None:
        words = warning(TARGET, model("small", tokenizer(merges_hash="x"), chat_template_hash="other"), "draft", runtime())
        assert "differ in merges and chat template:" in words
        assert warning(TARGET, model("small", tokenizer(), chat_template_hash=""), "draft", runtime()) == ""


class TestWhatIsNotKnown:
    def test_a_file_that_an_older_agent_has_looked_at(self) -> None:
        old = model("small", None)
        assert compare_pair(TARGET, old).refused == []
        assert compare_pair(TARGET, model("small", None, tokenizer_hash="other")).differs == ["tokenizer"]
        assert compare_pair(TARGET, model("small", None, vocab_size=100)).refused == [
            "it knows 100 tokens, the target 400: more than 128 apart"
        ]
        assert compare_pair(TARGET, model("small", None, vocab_size=None, tokenizer_hash="")).refused == []

    def test_a_file_that_does_not_say_whether_it_begins_texts(self) -> None:
        assert pair(add_bos=None, add_eos=None) == ([], [])

    def test_older_builds_and_other_modes_are_not_spoken_for(self) -> None:
        alien = model("small", tokenizer(kind="llama"))
        assert refusal(TARGET, alien, "draft", runtime("draft-flag")) is None
        assert refusal(TARGET, alien, "eagle3", runtime()) is None
        assert refusal(TARGET, alien, "draft", runtime("none", "vllm")) is None
        assert "can't be expected to draft for big" in warning(TARGET, alien, "draft", runtime("draft-flag"))
        assert warning(TARGET, alien, "eagle3", runtime()) == ""
        assert warning(TARGET, alien, "draft", runtime()) == ""  # that is refused, and said there


def test_hashes_tell_vocabularies_apart_at_each_size() -> None:
    whole = prefix_hashes(TOKENS)
    assert len(whole) == 129
    for shorter in (0, 1, 57, 128):
        assert prefix_hashes(TOKENS[: len(TOKENS) - shorter])[0] == whole[shorter]
    assert len(set(whole)) == 129
    assert prefix_hashes(["a" * 2, *TOKENS[1:]]) == whole  # the first five are not looked at
    assert prefix_hashes([*TOKENS[:5], "t", "5t6", *TOKENS[7:]])[0] != whole[0]  # where a token ends counts
    assert prefix_hashes(["a"]) == prefix_hashes(["b"])


class TestVllmsRule:
    def test_it_compares_numbers_only_and_ends_if_they_differ(self) -> None:
        smaller = model("small", None, vocab_size=399)
        refused = refusal(TARGET, smaller, "draft", runtime("vllm", "vllm"))
        assert refused is not None
        assert (refused.code, refused.details) == ("vocab_mismatch", {"target": "big", "draft": "small"})
        assert "it knows 399 tokens, the target 400 (vLLM would end at its start)" in refused.message
        assert "use_heterogeneous_vocab" in refused.remedy
        assert refusal(TARGET, smaller, "draft", runtime()) is None  # which llama-server takes
        assert refusal(TARGET, smaller, "eagle", runtime("vllm", "vllm")) is None  # a head maps its own
        assert refusal(TARGET, model("small", None, vocab_size=None), "draft", runtime("vllm", "vllm")) is None

    def test_as_many_other_tokens_start_and_are_warned_of(self) -> None:
        other = model("small", tokenizer([f"u{i}" for i in range(400)]))
        assert refusal(TARGET, other, "draft", runtime("vllm", "vllm")) is None
        said = warning(TARGET, other, "draft", runtime("vllm", "vllm"))
        assert said.endswith("its vocabulary has other tokens than the target's: vLLM compares their numbers only, and drafts by them")
        assert warning(TARGET, model("small", tokenizer()), "draft", runtime("vllm", "vllm")) == ""

    def test_told_to_translate_it_takes_any(self) -> None:
        arm = Arm(name="d", mode="draft", draft_model="small", draft_limit=3, extra={"use_heterogeneous_vocab": True})
        other = model("small", tokenizer([f"u{i}" for i in range(300)]))
        assert translates(arm)
        assert refusal(TARGET, other, "draft", runtime("vllm", "vllm"), translated=translates(arm)) is None
        assert warning(TARGET, other, "draft", runtime("vllm", "vllm"), translated=translates(arm)) == ""
        assert not translates(arm.model_copy(update={"extra": {}}))

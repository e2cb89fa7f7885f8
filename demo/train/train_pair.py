"""Trains the demo pair: a target on code and counting, then a draft that is distilled from it.

    python -m venv WORK/venv && WORK/venv/bin/pip install torch transformers tokenizers safetensors
    WORK/venv/bin/python demo/train/train_pair.py WORK --target-seconds 1200 --draft-seconds 600

Needs PyTorch, which is no dependency of this project, and the text of prepare_text.py in WORK. Copy
demo/models/tokenizer.json to WORK to keep the vocabulary; else one of 2048 entries is trained. A run limited by time can't be repeated bit for bit: the files in demo/models are the truth.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as functional
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

END_OF_TEXT = "<|endoftext|>"
VOCABULARY = 2048
LENGTH = 192  # tokens of a training row
ROWS = 16
COUNTING_ROWS = ROWS // 5
N_HELD_OUT = 60_000  # tokens of code, never trained on
DISTILLED = 0.9  # weight of the target's distribution in the draft's loss; the rest is the text itself
WARMUP_STEPS = 80


@dataclass
class Text:
    """Token ids: code and counting to train on, code to judge by."""

    code: torch.Tensor
    counting: torch.Tensor
    held_out: torch.Tensor

    def batch(self) -> torch.Tensor:
        """``ROWS`` random stretches of ``LENGTH`` tokens, a fifth of them counting."""
        rows = []
        for i in range(ROWS):
            data = self.counting if i < COUNTING_ROWS else self.code
            start = int(torch.randint(0, len(data) - LENGTH - 1, (1,)).item())
            rows.append(data[start : start + LENGTH])
        return torch.stack(rows)


def tokenizer_of(work: Path) -> Tokenizer:
    """The byte-level BPE in ``work``, trained on the text if there is none; entry 0 ends a text."""
    path = work / "tokenizer.json"
    if not path.exists():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=[END_OF_TEXT], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        )
        tokenizer.train([str(work / "code.txt"), str(work / "count.txt")], trainer)
        tokenizer.save(str(path))
    return Tokenizer.from_file(str(path))


def load(work: Path) -> Text:
    tokenizer = tokenizer_of(work)
    code, counting = (torch.tensor(tokenizer.encode((work / f).read_text(encoding="utf-8")).ids) for f in ("code.txt", "count.txt"))
    return Text(code=code[:-N_HELD_OUT], counting=counting, held_out=code[-N_HELD_OUT:])


def llama(width: int, layers: int, heads: int, feed_forward: int) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            intermediate_size=feed_forward,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def loss_of(logits: torch.Tensor, ids: torch.Tensor, teacher: LlamaForCausalLM | None) -> torch.Tensor:
    """Cross entropy of the next token; with a teacher, mostly the divergence from the teacher's distribution."""
    entropy = functional.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
    if teacher is None:
        return entropy
    with torch.no_grad():
        wanted = teacher(input_ids=ids).logits[:, :-1].float()
    divergence = functional.kl_div(
        functional.log_softmax(logits[:, :-1], -1), functional.log_softmax(wanted, -1), log_target=True, reduction="none"
    )
    return DISTILLED * divergence.sum(-1).mean() + (1 - DISTILLED) * entropy


def train(model: LlamaForCausalLM, text: Text, seconds: float, peak_rate: float, teacher: LlamaForCausalLM | None = None) -> int:
    """Trains for a span of time with a cosine schedule in that time. Returns the number of steps."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=peak_rate, betas=(0.9, 0.95))
    began, step = time.monotonic(), 0
    while (share := (time.monotonic() - began) / seconds) < 1:
        rate = peak_rate * min(1, step / WARMUP_STEPS) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids = text.batch()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model(input_ids=ids).logits.float(), ids, teacher)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 100 == 0:
            print(f"step {step}, loss {loss.item():.3f}, {time.monotonic() - began:.0f} s", flush=True)
    model.eval()
    return step


@torch.no_grad()
def judge(model: LlamaForCausalLM, text: Text, teacher: LlamaForCausalLM | None = None) -> str:
    """Held-out loss; beside a teacher also how often both choose the same token, and the overlap of their distributions."""
    ids = torch.stack([text.held_out[i : i + LENGTH] for i in range(0, len(text.held_out) - LENGTH, LENGTH)][:64])
    logits = model(input_ids=ids).logits[:, :-1]
    words = f"held-out loss {functional.cross_entropy(logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1)).item():.2f}"
    if teacher is not None:
        wanted = teacher(input_ids=ids).logits[:, :-1]
        same = (wanted.argmax(-1) == logits.argmax(-1)).float().mean().item()
        overlap = torch.minimum(wanted.softmax(-1), logits.softmax(-1)).sum(-1).mean().item()
        words += f", greedy agreement {same:.2f}, sum of min(p, q) {overlap:.2f}"
    return words


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the demo pair.")
    parser.add_argument("work", type=Path, help="folder with code.txt and count.txt; takes the models")
    parser.add_argument("--target-seconds", type=float, default=1200)
    parser.add_argument("--draft-seconds", type=float, default=600)
    given = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    text = load(given.work)
    target = llama(width=256, layers=4, heads=4, feed_forward=704)
    steps = train(target, text, given.target_seconds, peak_rate=2e-3)
    print(f"target: {steps} steps, {judge(target, text)}", flush=True)
    target.save_pretrained(given.work / "target")
    draft = llama(width=128, layers=1, heads=4, feed_forward=352)
    steps = train(draft, text, given.draft_seconds, peak_rate=3e-3, teacher=target)
    print(f"draft: {steps} steps, {judge(draft, text, target)}", flush=True)
    draft.save_pretrained(given.work / "draft")


if __name__ == "__main__":
    main()

"""Trains two heads that draft for the demo's target in vLLM: one of MiMo's kind for mode mtp, one of EAGLE's.

    OTHER/python -m demo.train.hf_heads OUT WORK --seconds 100      # what `python -m demo.train --hf OUT --torch OTHER/python` runs

Needs PyTorch and transformers, which are no dependency of this project, ``OUT/target`` and the text in WORK. The target stays as
it is; a head sees its hidden state at position p and the embedding of token p + 1, and learns what the target says of token p + 2.
MiMo's head gets the state before the last norm, EAGLE's after it; both may be asked again with their own state in its place, so
the loss counts a second step of EAGLE's. Leaves ``WORK/mtp.npz`` and ``WORK/eagle.npz`` under the names of the checkpoints.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as functional
from tokenizers import Tokenizer
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

LENGTH, ROWS = 128, 8
COUNTING_ROWS = ROWS // 4
CODE_CHARACTERS = 3_000_000
WARMUP_STEPS = 20
PEAK_RATE = 2e-3


class Head(nn.Module):
    """``fc`` joins two vectors, one decoder layer follows. ``mimo``: with norms before and behind; else EAGLE's, without the first norm."""

    def __init__(self, config: LlamaConfig, *, mimo: bool) -> None:
        super().__init__()
        self.mimo = mimo
        width = config.hidden_size
        self.fc = nn.Linear(2 * width, width, bias=False)
        self.layer = LlamaDecoderLayer(config, 0)
        self.rotary = LlamaRotaryEmbedding(config)
        if mimo:
            self.token_norm, self.hidden_norm, self.final_norm = (LlamaRMSNorm(width, config.rms_norm_eps) for _ in range(3))
        else:
            self.layer.input_layernorm = nn.Identity()

    def forward(self, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(embedded.shape[1])[None]
        if self.mimo:
            embedded = torch.where(positions[..., None] == 0, 0.0, embedded)  # as vLLM does
            pair = torch.cat([self.hidden_norm(hidden), self.token_norm(embedded)], -1)
        else:
            pair = torch.cat([embedded, hidden], -1)
        joined = self.fc(pair)
        out = self.layer(joined, position_embeddings=self.rotary(joined, positions))
        out = out[0] if isinstance(out, tuple) else out
        return self.final_norm(out) if self.mimo else out


def batch(code: torch.Tensor, counting: torch.Tensor) -> torch.Tensor:
    rows = []
    for i in range(ROWS):
        data = counting if i < COUNTING_ROWS else code
        start = int(torch.randint(0, len(data) - LENGTH - 1, (1,)).item())
        rows.append(data[start : start + LENGTH])
    return torch.stack(rows)


def divergence(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """What a guess costs, in nats for a token."""
    apart = functional.kl_div(functional.log_softmax(logits, -1), functional.log_softmax(wanted, -1), log_target=True, reduction="none")
    return apart.sum(-1).mean()


def train(target: LlamaForCausalLM, head: Head, code: torch.Tensor, counting: torch.Tensor, seconds: float) -> tuple[int, float]:
    """Steps, and how often the head's first guess is the target's own choice, over the last twenty batches."""
    optimizer = torch.optim.AdamW(head.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    kept: dict[str, torch.Tensor] = {}
    target.model.norm.register_forward_pre_hook(lambda module, inputs: kept.update(before=inputs[0]))
    began, step, agreed = time.monotonic(), 0, []
    while (share := (time.monotonic() - began) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = PEAK_RATE * min(1, (step + 1) / WARMUP_STEPS) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))
        ids = batch(code, counting)
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                after = target.model(input_ids=ids).last_hidden_state.float()
                wanted = target.lm_head(after).float()
            state = kept["before"].float() if head.mimo else after
            embedded = target.model.embed_tokens(ids)
            first = head(embedded[:, 1:], state[:, :-1])
            logits = target.lm_head(first).float()
            loss = divergence(logits, wanted[:, 1:])
            if not head.mimo:
                loss = loss + functional.smooth_l1_loss(first.float(), after[:, 1:])
                second = head(embedded[:, 2:], first[:, :-1])
                loss = loss + 0.5 * divergence(target.lm_head(second).float(), wanted[:, 2:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        step += 1
        agreed.append((logits.argmax(-1) == wanted[:, 1:].argmax(-1)).float().mean().item())
        if step % 100 == 0:
            print(f"step {step}, loss {loss.item():.3f}, {time.monotonic() - began:.0f} s", flush=True)
    return step, float(np.mean(agreed[-20:]))


def named(head: Head) -> dict[str, np.ndarray]:
    """The head's tensors as its checkpoint names them."""
    layer = dict(head.layer.state_dict())
    if not head.mimo:
        tensors = {"fc.weight": head.fc.weight, **{f"layers.0.{k}": v for k, v in layer.items()}}
    else:
        tensors = {
            "input_proj.weight": head.fc.weight,
            "token_layernorm.weight": head.token_norm.weight,
            "hidden_layernorm.weight": head.hidden_norm.weight,
            "final_layernorm.weight": head.final_norm.weight,
            **layer,
            **{f"self_attn.{n}_proj.bias": torch.zeros(layer[f"self_attn.{n}_proj.weight"].shape[0]) for n in "qkv"},
        }
        tensors = {f"model.mtp_layers.0.{k}": v for k, v in tensors.items()}
    return {k: v.detach().float().numpy() for k, v in tensors.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train heads for the demo's target.")
    parser.add_argument("out", type=Path, help="folder that holds target")
    parser.add_argument("work", type=Path, help="folder with code.txt and count.txt; takes the heads")
    parser.add_argument("--seconds", type=float, default=100.0)
    given = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = Tokenizer.from_file(str(given.out / "target/tokenizer.json"))
    texts = ((given.work / name).read_text(encoding="utf-8")[:CODE_CHARACTERS] for name in ("code.txt", "count.txt"))
    code, counting = (torch.tensor(tokenizer.encode(text).ids) for text in texts)
    for mimo in (True, False):
        target = LlamaForCausalLM.from_pretrained(given.out / "target", dtype=torch.float32).eval().requires_grad_(False)
        head = Head(target.config, mimo=mimo)
        steps, agreement = train(target, head, code, counting, given.seconds)
        name = "mtp" if mimo else "eagle"
        np.savez(given.work / f"{name}.npz", **named(head))
        print(f"{name}: {steps} steps, first guess is the target's choice {agreement:.2f} of the time", flush=True)


if __name__ == "__main__":
    main()

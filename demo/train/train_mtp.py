"""Trains the demo model that drafts for itself: a trunk and its head for multi-token prediction, together.

    python -m venv WORK/venv && WORK/venv/bin/pip install torch transformers tokenizers numpy
    WORK/venv/bin/python -m demo.train.train_mtp WORK --seconds 1140

Needs PyTorch, which is no dependency of this project, and the text of prepare_text.py and demo/models/tokenizer.json in WORK;
writes WORK/mtp.npz for export_mtp.py. A run limited by time can't be repeated bit for bit: demo/models/mtp.gguf is the truth.
It took 2,229 steps on two cores with AMX, half a second each; without AMX a step takes some four seconds of processor time.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as functional

from demo.train.mtp_model import Model
from demo.train.mtp_shape import Shape
from demo.train.train_pair import Text, load

ROWS, LENGTH = 8, 192
COUNTING_ROWS = 2
#: Weight of the loss of each step of the head, beside the trunk's own of 1. It is trained on its own guesses, as it will be run.
STEPS = (0.5, 0.3, 0.2)
PEAK_RATE, WARMUP_STEPS = 2e-3, 100


def batch(text: Text) -> torch.Tensor:
    """``ROWS`` random stretches of ``LENGTH`` tokens, a quarter of them counting."""
    rows = []
    for i in range(ROWS):
        data = text.counting if i < COUNTING_ROWS else text.code
        start = int(torch.randint(0, len(data) - LENGTH - 1, (1,)).item())
        rows.append(data[start : start + LENGTH])
    return torch.stack(rows)


def losses(model: Model, ids: torch.Tensor) -> list[torch.Tensor]:
    """Cross entropy of the next token: by the trunk, then by each step of the head, where it has a whole history behind it."""
    found = []
    for step, scores in enumerate(model(ids, len(STEPS))):
        rows = scores[:, step:-1].float()
        found.append(functional.cross_entropy(rows.reshape(-1, rows.shape[-1]), ids[:, step + 1 :].reshape(-1)))
    return found


def train(model: Model, text: Text, seconds: float) -> int:
    """Trains for a span of time with a cosine schedule in that time. Returns the number of steps."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95))
    began, step = time.monotonic(), 0
    while (share := (time.monotonic() - began) / seconds) < 1:
        rate = PEAK_RATE * min(1, step / WARMUP_STEPS) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", torch.bfloat16):
            found = losses(model, batch(text))
            loss = found[0] + sum(weight * one for weight, one in zip(STEPS, found[1:], strict=True))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 50 == 0:
            shown = ", ".join(f"{one.item():.3f}" for one in found)
            print(f"step {step}, loss of the trunk and of the head's steps {shown}, {time.monotonic() - began:.0f} s", flush=True)
    model.eval()
    return step


@torch.no_grad()
def judge(model: Model, text: Text) -> str:
    """Held-out loss of the trunk, and how often the head guesses what the trunk would choose, step by step."""
    ids = torch.stack([text.held_out[i : i + LENGTH] for i in range(0, len(text.held_out) - LENGTH, LENGTH)][:32])
    trunk, *steps = model(ids, len(STEPS))
    loss = functional.cross_entropy(trunk[:, :-1].reshape(-1, trunk.shape[-1]), ids[:, 1:].reshape(-1)).item()
    same = [(trunk.argmax(-1) == one.argmax(-1)).float().mean().item() for one in steps]
    return f"held-out loss {loss:.2f}, the head agrees with the trunk in {', '.join(f'{s:.2f}' for s in same)}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the demo model with a head for multi-token prediction.")
    parser.add_argument("work", type=Path, help="folder with code.txt, count.txt and tokenizer.json; takes mtp.npz")
    parser.add_argument("--seconds", type=float, default=1140)
    given = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    text = load(given.work)
    model = Model(Shape())
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters", flush=True)
    steps = train(model, text, given.seconds)
    print(f"{steps} steps, {judge(model, text)}", flush=True)
    weights = {name: tensor.detach().float().numpy() for name, tensor in model.state_dict().items()}
    np.savez(given.work / "mtp.npz", **weights)


if __name__ == "__main__":
    main()

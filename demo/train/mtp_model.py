"""A small model of the Qwen3.5 family in PyTorch: a trunk of recurrent and attention layers, and a head for multi-token prediction.

Written so that llama-server computes the same from the exported file. Sizes in comments: B rows of T tokens, H heads of D numbers.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as functional
from torch import nn
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

from demo.train.mtp_shape import ATTENTION, Shape

Rotation = tuple[torch.Tensor, torch.Tensor]


class Norm(nn.Module):
    """Root mean square norm; multiplies by its weight as it stands."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def rotation(shape: Shape, length: int) -> Rotation:
    speeds = shape.rope_base ** (-torch.arange(0, shape.rotated, 2).float() / shape.rotated)
    angles = torch.arange(length).float()[:, None] * speeds[None]
    return angles.cos(), angles.sin()


def rotated(x: torch.Tensor, by: Rotation) -> torch.Tensor:
    """Turns the first numbers of each head, the first half of them against the second; the others pass. x: B, H, T, D."""
    cos, sin = by
    half = cos.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


class GatedAttention(nn.Module):
    """Attention with fewer heads of keys than of queries, and a gate on what it found."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = linear(shape.width, shape.heads * shape.head_width * 2)
        self.k_proj = linear(shape.width, shape.kv_heads * shape.head_width)
        self.v_proj = linear(shape.width, shape.kv_heads * shape.head_width)
        self.o_proj = linear(shape.heads * shape.head_width, shape.width)
        self.q_norm, self.k_norm = Norm(shape.head_width, shape.eps), Norm(shape.head_width, shape.eps)

    def project(self, x: torch.Tensor, by: Rotation) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys, values (B, H, T, D) and the gate (B, T, H·D)."""
        s, (rows, length, _) = self.shape, x.shape
        # Of each head first the rows of its query, then those of its gate.
        q, gate = self.q_proj(x).view(rows, length, s.heads, 2, s.head_width).unbind(3)
        k, v = (proj(x).view(rows, length, s.kv_heads, s.head_width) for proj in (self.k_proj, self.v_proj))
        q, k = (rotated(norm(part).transpose(1, 2), by) for norm, part in ((self.q_norm, q), (self.k_norm, k)))
        share = s.heads // s.kv_heads
        return q, k.repeat_interleave(share, 1), v.transpose(1, 2).repeat_interleave(share, 1), gate.reshape(rows, length, -1)

    def combine(self, found: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return self.o_proj(found.transpose(1, 2).flatten(2) * torch.sigmoid(gate))

    def forward(self, x: torch.Tensor, by: Rotation) -> torch.Tensor:
        q, k, v, gate = self.project(x, by)
        return self.combine(functional.scaled_dot_product_attention(q, k, v, is_causal=True), gate)


class GatedDeltaNet(nn.Module):
    """The recurrent layer: a state of D × D numbers for each head, which forgets and is corrected with each token."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, inner = shape, shape.recurrent_inner
        self.in_proj_qkv, self.in_proj_z = linear(shape.width, 3 * inner), linear(shape.width, inner)
        self.in_proj_b, self.in_proj_a = linear(shape.width, shape.recurrent_heads), linear(shape.width, shape.recurrent_heads)
        self.out_proj = linear(inner, shape.width)
        self.conv1d = nn.Conv1d(3 * inner, 3 * inner, shape.kernel, groups=3 * inner, bias=False)
        nn.init.normal_(self.conv1d.weight, std=0.3)
        self.dt_bias = nn.Parameter(torch.full((shape.recurrent_heads,), -2.0))
        self.A_log = nn.Parameter(torch.log(torch.linspace(0.05, 2, shape.recurrent_heads)))  # from slow to quick to forget
        self.norm = Norm(shape.recurrent_width, shape.eps)

    def forward(self, x: torch.Tensor, by: Rotation) -> torch.Tensor:
        s, (rows, length, _) = self.shape, x.shape
        mixed = functional.pad(self.in_proj_qkv(x).transpose(1, 2), (s.kernel - 1, 0))
        mixed = functional.silu(self.conv1d(mixed)).transpose(1, 2)
        q, k, v = (part.view(rows, length, s.recurrent_heads, s.recurrent_width) for part in mixed.chunk(3, -1))
        q, k = (part * torch.rsqrt(part.pow(2).sum(-1, keepdim=True) + s.eps) for part in (q, k))
        forget = -self.A_log.exp() * functional.softplus(self.in_proj_a(x) + self.dt_bias)
        found, _ = torch_chunk_gated_delta_rule(q, k, v, forget, torch.sigmoid(self.in_proj_b(x)))
        gate = functional.silu(self.in_proj_z(x).view(rows, length, s.recurrent_heads, s.recurrent_width))
        return self.out_proj((self.norm(found) * gate).flatten(2))


class Mlp(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = linear(shape.width, shape.feed_forward), linear(shape.width, shape.feed_forward)
        self.down_proj = linear(shape.feed_forward, shape.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape, kind: str) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(shape.width, shape.eps), Norm(shape.width, shape.eps)
        if kind == ATTENTION:
            self.self_attn = GatedAttention(shape)
        else:
            self.linear_attn = GatedDeltaNet(shape)
        self.mixer = "self_attn" if kind == ATTENTION else "linear_attn"
        self.mlp = Mlp(shape)

    def forward(self, x: torch.Tensor, by: Rotation) -> torch.Tensor:
        return self.after_mixing(x + getattr(self, self.mixer)(self.input_layernorm(x), by))

    def after_mixing(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape, kind) for kind in shape.pattern)
        self.norm = Norm(shape.width, shape.eps)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The hidden states *after* the last norm: what the scores are made from, and what the head is given."""
        x, by = self.embed_tokens(ids), rotation(self.shape, ids.shape[1])
        for layer in self.layers:
            x = layer(x, by)
        return self.norm(x)


class Head(nn.Module):
    """Guesses the token after next from a token and the hidden state of the position before it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden = Norm(shape.width, shape.eps), Norm(shape.width, shape.eps)
        self.fc = linear(2 * shape.width, shape.width)
        self.layers = nn.ModuleList([Layer(shape, ATTENTION)])
        self.norm = Norm(shape.width, shape.eps)

    def steps(self, embedded: torch.Tensor, hidden: torch.Tensor, n: int) -> list[torch.Tensor]:
        """``n`` hidden states for each position, as when the head is run ``n`` times in a row. B, T, width each.

        Step j at position p is given the token at p and the hidden state of p − 1: the trunk's for j = 0, the head's own of step
        j − 1 after. The same keys are seen as when llama-server drafts: those of step 0 up to the last token that was verified,
        which is p − j, and for each drafted token after that the one of its own step.
        """
        length, by = embedded.shape[1], rotation(self.shape, embedded.shape[1])
        layer, attention = self.layers[0], self.layers[0].self_attn
        keys: list[torch.Tensor] = []
        values: list[torch.Tensor] = []
        found = []
        for _ in range(n):
            before = functional.pad(hidden, (0, 0, 1, 0))[:, :length]
            x = self.fc(torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(before)], -1))
            q, k, v, gate = attention.project(layer.input_layernorm(x), by)
            keys.append(k)
            values.append(v)
            x = layer.after_mixing(x + attention.combine(_drafting_attention(q, keys, values), gate))
            hidden = self.norm(x)
            found.append(hidden)
        return found


def _drafting_attention(q: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]) -> torch.Tensor:
    """Of the step that the last of ``keys`` belongs to. B, H, T, D."""
    step, length, scale = len(keys) - 1, q.shape[2], 1 / math.sqrt(q.shape[3])
    at = torch.arange(length)
    verified = (q @ keys[0].transpose(-1, -2) * scale).masked_fill(at[None, :] > at[:, None] - step, -torch.inf)

    def shifted(t: torch.Tensor, by: int) -> torch.Tensor:
        return functional.pad(t, (0, 0, by, 0))[:, :, :length]

    drafted = [(q * shifted(keys[m], step - m)).sum(-1, keepdim=True) * scale for m in range(1, step + 1)]
    drafted = [score.masked_fill((at < step - m)[:, None], -torch.inf) for m, score in enumerate(drafted, 1)]
    weights = torch.softmax(torch.cat([verified, *drafted], -1), -1)
    found = weights[..., :length] @ values[0]
    for m in range(1, step + 1):
        found = found + weights[..., length + m - 1 : length + m] * shifted(values[m], step - m)
    return found


class Model(nn.Module):
    """Trunk and head; scores are products with the embedding. Names of parameters are those of a checkpoint of the family."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.model, self.mtp = shape, Trunk(shape), Head(shape)
        for name, weights in self.named_parameters():
            if weights.dim() == 2:
                closing = name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight"))
                nn.init.normal_(weights, std=0.02 if "embed" in name else weights.shape[1] ** -0.5 * (0.5 if closing else 1))

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self.model.embed_tokens.weight.T

    def forward(self, ids: torch.Tensor, steps: int) -> list[torch.Tensor]:
        """Scores of the next token, and of what the head guesses in each of its steps: row p of step j is of token p + 1 too,
        seen from a text that was verified up to p − 1 − j."""
        hidden = self.model(ids)
        return [self.scores(h) for h in (hidden, *self.mtp.steps(self.model.embed_tokens(ids), hidden, steps))]

"""What theory expects of speculation (Leviathan et al., arXiv:2211.17192), for the docs and the help on break-even only.

α is the chance that one drafted token is accepted, the same at every position; k the tokens drafted per cycle; c the time
of one drafting step as a share of a plain step of the target. None of these is measured: accepted ÷ drafted is not α.
"""

from __future__ import annotations


def expected_tokens_per_pass(alpha: float, k: int) -> float:
    """E = (1 − α^(k+1)) ÷ (1 − α): mean tokens that one pass of the target commits (equation 1 there)."""
    _in_range(alpha, k)
    return float(k + 1) if alpha == 1 else (1 - alpha ** (k + 1)) / (1 - alpha)


def expected_speedup(alpha: float, k: int, c: float) -> float:
    """S = E ÷ (k·c + 1): the improvement of decoding time (theorem 3.8 there), a verification costing one plain step."""
    if c < 0:
        raise ValueError(f"c is {c}; the time of a drafting step as a share of a plain step is 0 or more")
    return expected_tokens_per_pass(alpha, k) / (k * c + 1)


def expected_accepted_share(alpha: float, k: int) -> float:
    """(E − 1) ÷ k: what accepted ÷ drafted tends to. Positions after the first rejection count as drafted, so it is below α."""
    if k < 1:
        raise ValueError(f"k is {k}; with nothing drafted there is no share")
    return (expected_tokens_per_pass(alpha, k) - 1) / k


def _in_range(alpha: float, k: int) -> None:
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha}; a chance lies between 0 and 1")
    if k < 0:
        raise ValueError(f"k is {k}; it counts drafted tokens")

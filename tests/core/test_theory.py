"""What theory expects, against values worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from speccore.theory import expected_accepted_share, expected_speedup, expected_tokens_per_pass


@pytest.mark.parametrize(
    ("alpha", "k", "c", "tokens", "speedup", "share"),
    [
        # E = 1 + 0.8 + 0.64 + 0.512 + 0.4096 = 3.3616; S = 3.3616 ÷ 1.2; share = 2.3616 ÷ 4
        (0.8, 4, 0.05, 3.3616, 2.8013, 0.590),
        # E = (1 − 0.6^17) ÷ 0.4 = 0.999831 ÷ 0.4; S = 2.4996 ÷ 2.6; share = 1.4996 ÷ 16
        (0.6, 16, 0.10, 2.4996, 0.9614, 0.094),
        # E = 1 + 0.3 + 0.09 + 0.027 = 1.417; S = 1.417 ÷ 1.6; share = 0.417 ÷ 3
        (0.3, 3, 0.20, 1.4170, 0.8856, 0.139),
        # E = 1 + 0.5; S = 1.5 ÷ 1.02; share = 0.5 ÷ 1: with one token drafted it is α itself
        (0.5, 1, 0.02, 1.5, 1.4706, 0.5),
    ],
)
def test_expected_tokens_speedup_and_share(alpha: float, k: int, c: float, tokens: float, speedup: float, share: float) -> None:
    assert expected_tokens_per_pass(alpha, k) == pytest.approx(tokens, abs=0.00005)
    assert expected_speedup(alpha, k, c) == pytest.approx(speedup, abs=0.00005)
    assert expected_accepted_share(alpha, k) == pytest.approx(share, abs=0.0005)


def test_ends_of_the_range() -> None:
    assert expected_tokens_per_pass(1, 4) == 5  # everything accepted: the drafted four and the target's own
    assert expected_tokens_per_pass(0, 4) == 1
    assert expected_tokens_per_pass(0.7, 0) == 1  # nothing drafted
    assert expected_accepted_share(1, 4) == 1


def test_the_share_falls_with_the_limit_at_equal_quality() -> None:
    shares = [expected_accepted_share(0.8, k) for k in (1, 2, 4, 8, 16)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(0.8)


@pytest.mark.parametrize(("alpha", "k", "c"), [(1.2, 4, 0.1), (-0.1, 4, 0.1), (0.5, -1, 0.1), (0.5, 4, -0.1)])
def test_what_is_no_chance_or_count_is_refused(alpha: float, k: int, c: float) -> None:
    with pytest.raises(ValueError, match=r"is -|is 1\.2"):
        expected_speedup(alpha, k, c)
    with pytest.raises(ValueError, match="k is 0"):
        expected_accepted_share(0.5, 0)


def test_the_docs_hold_these_values() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "measurement.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (0\.\d) \| (\d+) \| (0\.\d\d) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", docs, re.MULTILINE)
    assert len(rows) == 4
    for alpha, k, c, tokens, speedup, share in rows:
        assert f"{expected_tokens_per_pass(float(alpha), int(k)):.4f}" == tokens
        assert f"{expected_speedup(float(alpha), int(k), float(c)):.4f}" == speedup
        assert f"{expected_accepted_share(float(alpha), int(k)):.3f}" == share

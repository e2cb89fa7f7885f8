"""What outsiders wrote is read to its end, or refused in words: nothing of it breaks what comes later."""

from __future__ import annotations

import json

import pytest
from speccore.canonical import sha256_of
from speccore.plain import one_line, read_json


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 200_000, "nested"),
        ("[" * 200 + "]" * 200, "nested more than 100 deep"),
        ('{"a":' * 200 + "1" + "}" * 200, "nested more than 100 deep"),
        ('{"a": NaN}', "NaN, which is no number"),
        ('{"a": -Infinity}', "no number"),
        ("[1e999]", "too large"),
        ("9" * 5000, "5000 digits"),
        ("{", "Expecting"),
        (b"\x00", "Expecting"),
    ],
)
def test_what_can_t_be_kept_is_refused(text: str | bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_json(text)


def test_configurations_may_hold_what_is_no_number() -> None:
    """As those of models with a state of their own do: ``"time_step_limit": [0.0, Infinity]``."""
    assert read_json('{"limit": [0.0, Infinity], "a": NaN, "b": 1e999}', lenient=True) == {"limit": [0.0, None], "a": None, "b": None}
    assert read_json('{"model_max_length": 1000000000000000019884624838656}', lenient=True)["model_max_length"] == int(1e30)


@pytest.mark.parametrize("text", ['{"a\\ud800": ["\\udfff", "ok"]}', b'{"a": "\xed\xa0\x80"}', b"\xef\xbb\xbf" + b'{"a": "\xff"}'])
def test_halves_of_characters_are_replaced(text: str | bytes) -> None:
    said = read_json(text)
    assert len(sha256_of(said)) == 64
    json.dumps(said, ensure_ascii=False).encode()


def test_whole_ones_stay() -> None:
    assert read_json('["\\ud83d\\ude00", "é", "\\u0000"]') == ["😀", "é", "\0"]


def test_one_line_is_one_and_moves_no_cursor() -> None:
    assert one_line("a\n[ ok ] b\x1b[2J\u202ec\x9b\ud800") == "a [ ok ] b\ufffd[2J\ufffdc\ufffd?"

"""Greedy answers beside each other: where they part, what kind of parting it is, and what the evidence must hold for that."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.agreement import END, Agreement, Output, agreement, arm_pairs, first_divergence, own_pairs, read_output
from speccore.records import StreamEvent, StreamRecord, TextRecord


def out(item: str, *ids: int, block: int = 1, cut: bool = False) -> Output:
    return Output(item, block, ids, cut)


class TestFirstDivergence:
    @pytest.mark.parametrize(
        ("left", "right", "at"),
        [
            (out("a", 1, 2, 3), out("a", 1, 2, 3), None),
            (out("a", 1, 2, 3), out("a", 1, 9, 3), 1),
            (out("a", 7), out("a", 8), 0),
            (out("a", 1, 2), out("a", 1, 2, 3), 2),  # one has ended, the other goes on
            (out("a", 1, 2, 3), out("a", 1, 2), 2),
            (out("a", 1, 2, cut=True), out("a", 1, 2, 3), None),  # the limit took the rest
            (out("a", 1, 2), out("a", 1, 2, 3, cut=True), 2),
            (out("a", 1, 9, cut=True), out("a", 1, 2, 3), 1),
        ],
    )
    def test_is_the_first_token_that_differs(self, left: Output, right: Output, at: int | None) -> None:
        assert first_divergence(left, right) == at
        assert first_divergence(right, left) == at


class TestKinds:
    def test_near_ties_are_told_from_wrong_tokens(self) -> None:
        gaps = {"tie": 0.2, "wrong": 0.21, "never asked": None}
        pairs = [(out(item, 1, 2, 3), out(item, 1, 5, 3)) for item in gaps] + [(out("same", 1), out("same", 1))]
        found = agreement(pairs, lambda left, at: gaps[left.item])
        assert {d.item: d.kind for d in found.divergences} == {"tie": "near-tie", "wrong": "wrong", "never asked": "not known"}
        assert (found.n, found.n_identical, found.wrong_prompts()) == (4, 1, ["wrong"])

    def test_the_target_is_asked_of_the_place_where_they_part(self) -> None:
        asked = []
        agreement([(out("a", 1, 2, 3), out("a", 1, 2, 9)), (out("b", 4), out("b", 4))], lambda left, at: asked.append((left.item, at)))
        assert asked == [("a", 2)]

    def test_an_end_is_a_token(self) -> None:
        (found,) = agreement([(out("a", 1, 2), out("a", 1, 2, 3))]).divergences
        assert (found.at, found.left, found.right) == (2, END, 3)

    def test_a_prompt_that_goes_wrong_in_two_blocks_is_one_prompt(self) -> None:
        pairs = [(out("a", 1, block=b), out("a", 2, block=b)) for b in (1, 2)]
        assert agreement(pairs, lambda left, at: 3.0).wrong_prompts() == ["a"]

    def test_answers_to_two_prompts_are_not_compared(self) -> None:
        with pytest.raises(ValueError, match="'a' and to 'b'"):
            agreement([(out("a", 1), out("b", 1))])


class TestPairs:
    def test_an_arm_is_paired_within_the_block(self) -> None:
        baseline = [out("a", 1), out("b", 2), out("a", 3, block=2)]
        arm = [out("a", 9, block=2), out("a", 8), out("c", 7)]
        assert [(x.ids, y.ids) for x, y in arm_pairs(baseline, arm)] == [((1,), (8,)), ((3,), (9,))]

    def test_the_baseline_is_paired_with_itself_over_blocks(self) -> None:
        baseline = [out("a", 3, block=3), out("a", 1, block=1), out("b", 5), out("a", 2, block=2)]
        assert [(x.ids, y.ids) for x, y in own_pairs(baseline)] == [((1,), (2,)), ((1,), (3,))]


class TestWords:
    @pytest.mark.parametrize(
        ("n", "gaps", "said"),
        [
            (0, [], "there are no greedy answers to compare"),
            (20, [], "20 of 20 answers are identical"),
            (2, [0.1], "1 of 2 answers is identical; 1 parts, after 1 token: 1 near-tie"),
            (20, [0.1, 0.0, 5.0], "17 of 20 answers are identical; 3 part, after 1 token in the middle: 2 near-ties, 1 wrong"),
            (
                3,
                [None],
                "2 of 3 answers are identical; 1 parts, after 1 token: of 1 it is not known whether the target was undecided there",
            ),
        ],
    )
    def test_say_how_many_and_of_which_kind(self, n: int, gaps: list[float | None], said: str) -> None:
        parting = [(out(f"p{i}", 1, 2), out(f"p{i}", 1, 3)) for i in range(len(gaps))]
        same = [(out("s", 1), out("s", 1))] * (n - len(gaps))
        found = agreement([*parting, *same], lambda left, at: gaps[int(left.item[1:])])
        assert found.words() == said

    def test_the_middle_of_the_places(self) -> None:
        pairs = [(out("a", *range(k), 1000), out("a", *range(k), 2000)) for k in (3, 50, 10)]
        assert agreement(pairs).median_first == 10
        assert Agreement(5, []).median_first is None


class TestEvidence:
    def read(self, temperature: Any = 0, ids: list[list[int]] | None = None, without: int = 0, **changes: Any) -> Output | str:
        events = [StreamEvent(at_s=0.1, tokens=1 + without, without_id=without)]
        facts: dict[str, Any] = {"probe": "p", "point": "q", "item": "a", "seed": 1, "path": "/completion", "request_sha256": ""}
        facts |= {"connected_at_s": 0, "sent_at_s": 0, "closed_at_s": 1, "status": 200, "events": events, "final": {"stop_type": "eos"}}
        text = TextRecord(probe="p", request={"temperature": temperature}, texts=["x"], ids=[[1, 2], [3]] if ids is None else ids)
        return read_output(StreamRecord(**(facts | changes)), text, block=4)

    def test_a_whole_greedy_answer(self) -> None:
        assert self.read() == Output("a", 4, (1, 2, 3), cut=False)
        assert self.read(final={"stop_type": "limit"}) == Output("a", 4, (1, 2, 3), cut=True)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"temperature": 0.8}, "it was drawn at temperature 0.8, and only greedy answers have one right answer"),
            ({"temperature": None}, "it was drawn at temperature None, and only greedy answers have one right answer"),
            ({"ids": [[]]}, "it came without token ids"),
            ({"without": 2}, "2 of its tokens came without an id"),
            ({"failure": "probe_failed", "failure_message": "HTTP 500"}, "HTTP 500"),
        ],
    )
    def test_what_can_not_be_compared_says_why(self, changes: dict[str, Any], said: str) -> None:
        assert self.read(**changes) == said

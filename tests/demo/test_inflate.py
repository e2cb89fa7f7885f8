"""The inflated model: much heavier, and the same answers."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from speccore.workloads import builtin

from demo.inflate import LAYERS, WIDTH, CannotInflate, inflate, is_inflated_from
from tests.demo.llama import llama_server

MODELS = Path(__file__).resolve().parents[2] / "demo/models"
PROMPTS = [w.items[i].prompt for w in (builtin()["count"], builtin()["python-code"], builtin()["free-text"]) for i in (0, 7)]


def answers(model: Path, log: Path, *arguments: str) -> list[list[int]]:
    with llama_server(model, log, *arguments) as ask:
        return [ask(prompt)["tokens"] for prompt in PROMPTS]


def test_greedy_ids_are_the_same_and_the_file_is_thirty_times_as_big(heavy_model, tmp_path):
    light, heavy = answers(MODELS / "target.gguf", tmp_path / "light.log"), answers(heavy_model, tmp_path / "heavy.log")
    assert heavy == light
    assert [len(ids) for ids in light] == [64] * len(PROMPTS)
    assert len({tuple(ids) for ids in light}) == len(PROMPTS)  # else equality would say little
    assert heavy_model.stat().st_size > 25 * (MODELS / "target.gguf").stat().st_size
    assert 110e6 < heavy_model.stat().st_size < 130e6


def test_greedy_ids_are_the_same_with_the_draft_model(heavy_model, tmp_path):
    plain = answers(heavy_model, tmp_path / "plain.log")
    drafted = answers(
        heavy_model,
        tmp_path / "drafted.log",
        *("--spec-type", "draft-simple", "-md", str(MODELS / "draft.gguf"), "--spec-draft-n-max", "3"),
    )
    assert drafted == plain


def test_only_the_shape_changes_in_the_metadata(heavy_model):
    before, after = (gguf.GGUFReader(p) for p in (MODELS / "target.gguf", heavy_model))
    value = {name: (f.contents(), after.get_field(name).contents()) for name, f in before.fields.items() if not name.startswith("GGUF.")}
    changed = {name for name, (old, new) in value.items() if old != new}
    assert changed == {"general.name", "llama.block_count", "llama.feed_forward_length"}
    assert value["llama.block_count"] == (4, 4 + LAYERS)
    assert value["llama.feed_forward_length"] == (704, 704 * WIDTH)


def test_the_file_knows_what_it_was_made_from(heavy_model, tmp_path):
    assert is_inflated_from(heavy_model, MODELS / "target.gguf")
    assert not is_inflated_from(heavy_model, MODELS / "draft.gguf")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(heavy_model.read_bytes()[:1000])
    assert not is_inflated_from(cut, MODELS / "target.gguf")
    assert not is_inflated_from(tmp_path / "none.gguf", MODELS / "target.gguf")


def test_a_type_in_which_zero_bytes_are_not_zero_is_refused(tmp_path):
    source = tmp_path / "q4.gguf"
    writer = gguf.GGUFWriter(source, "llama")
    writer.add_name("q4")
    rows = gguf.quants.quantize(np.ones((32, 32), np.float32), gguf.GGMLQuantizationType.Q4_1)
    writer.add_tensor("blk.0.ffn_down.weight", rows, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CannotInflate, match="Q4_1"):
        inflate(source, tmp_path / "out.gguf")
    assert list(tmp_path.iterdir()) == [source]  # no partial file stays

"""The demo model that drafts for itself: its exporter, its heavy form, and its second sample experiment."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from speccore.spec import parse_spec
from speccore.workloads import builtin
from speccore.yamltext import read_yaml

from demo.inflate import LAYERS, WIDTH, CannotInflate, inflate
from demo.train.export_mtp import (
    ATTENTION_MATRICES,
    ATTENTION_NORMS,
    BLOCK_NORMS,
    HEAD_NORMS,
    MLP_MATRICES,
    RECURRENT_MATRICES,
    export,
)
from demo.train.mtp_shape import ATTENTION, Shape
from tests.demo.llama import llama_server

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "demo/models"
SOURCE = MODELS / "mtp.gguf"
COUNTING = [builtin()["count"].items[i].prompt for i in (0, 7)]
PROMPTS = [*COUNTING, *(w.items[i].prompt for w, i in ((builtin()["python-code"], 0), (builtin()["free-text"], 7)))]


def drafting(limit: int) -> tuple[str, ...]:
    return "--spec-type", "draft-mtp", "--spec-draft-n-max", str(limit)


@pytest.fixture(scope="module")
def heavy(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("heavy") / "mtp.gguf"
    inflate(SOURCE, path)
    return path


def asked(model: Path, log: Path, *arguments: str, prompts: list[str] = PROMPTS) -> list[dict]:
    with llama_server(model, log, *arguments) as ask:
        return [ask(prompt, n_predict=24) for prompt in prompts]


def ids(answers: list[dict]) -> list[list[int]]:
    return [answer["tokens"] for answer in answers]


def checkpoint(path: Path) -> dict[str, np.ndarray]:
    """The file's numbers under the names that train_mtp.py saves."""
    values = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}
    found = {"model.embed_tokens.weight": values["token_embd.weight"], "model.norm.weight": values["output_norm.weight"]}
    pattern = Shape().pattern
    for i, kind in enumerate([*pattern, ATTENTION]):
        ours, theirs = f"blk.{i}.", f"model.layers.{i}." if i < len(pattern) else "mtp.layers.0."
        mixing = {**ATTENTION_MATRICES, **ATTENTION_NORMS} if kind == ATTENTION else RECURRENT_MATRICES
        for name, other in {**BLOCK_NORMS, **mixing, **MLP_MATRICES}.items():
            found[f"{theirs}{other}.weight"] = values[f"{ours}{name}.weight"]
        if kind != ATTENTION:
            own = f"{theirs}linear_attn."
            found[f"{own}conv1d.weight"] = values[f"{ours}ssm_conv1d.weight"][:, None]
            found[f"{own}dt_bias"] = values[f"{ours}ssm_dt.bias"]
            found[f"{own}A_log"] = np.log(-values[f"{ours}ssm_a"])
            found[f"{own}norm.weight"] = values[f"{ours}ssm_norm.weight"]
    head = f"blk.{len(pattern)}."
    found["mtp.fc.weight"] = values[f"{head}nextn.eh_proj.weight"]
    return found | {f"mtp.{theirs}.weight": values[f"{head}{ours}.weight"] for ours, theirs in HEAD_NORMS.items()}


def test_the_exporter_writes_the_demo_model_which_then_drafts_for_itself(tmp_path):
    again = tmp_path / "again.gguf"
    export(checkpoint(SOURCE), MODELS / "tokenizer.json", again)
    wanted, written = gguf.GGUFReader(SOURCE), gguf.GGUFReader(again)
    for name, field in wanted.fields.items():
        if not name.startswith("GGUF.") and name != "general.name":
            assert written.get_field(name).contents() == field.contents(), name
    got = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in written.tensors}
    assert got.keys() == {t.name for t in wanted.tensors}
    for tensor in wanted.tensors:
        before = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        # Quantising again may round a scale differently; an order of rows gone wrong would differ by as much as the numbers.
        assert np.abs(got[tensor.name] - before).max() <= 0.01 * np.abs(before).max() + 1e-7, tensor.name

    drafted = asked(again, tmp_path / "again.log", *drafting(3), prompts=COUNTING)
    assert all(a["timings"]["draft_n_accepted"] > 0.5 * a["timings"]["draft_n"] > 0 for a in drafted)


def test_the_heavy_form_answers_the_same_and_drafts_as_well(heavy, tmp_path):
    light, weighty = asked(SOURCE, tmp_path / "light.log"), asked(heavy, tmp_path / "heavy.log")
    assert ids(weighty) == ids(light)
    assert len({tuple(one) for one in ids(light)}) == len(PROMPTS)  # else equality would say little
    drafted = asked(heavy, tmp_path / "drafted.log", *drafting(2), prompts=COUNTING)
    assert ids(drafted) == ids(light)[: len(COUNTING)]
    assert all(a["timings"]["draft_n_accepted"] > 0.5 * a["timings"]["draft_n"] > 0 for a in drafted)
    assert 118e6 < heavy.stat().st_size < 128e6


def test_only_the_shape_of_the_trunk_grows(heavy):
    before, after = gguf.GGUFReader(SOURCE), gguf.GGUFReader(heavy)
    value = {name: (f.contents(), after.get_field(name).contents()) for name, f in before.fields.items() if not name.startswith("GGUF.")}
    changed = {name.removeprefix("qwen35."): both for name, both in value.items() if both[0] != both[1]}
    assert changed.pop("general.name")
    assert changed == {
        "block_count": (5, 5 + LAYERS),
        "feed_forward_length": (704, 704 * WIDTH),
        "attention.recurrent_layers": ([True] + [False] * 4, [True] + [False] * (4 + LAYERS)),
    }
    heads = {int(t.name.split(".")[1]) for t in after.tensors if ".nextn." in t.name}
    assert heads == {4 + LAYERS}  # the last block, as the engine wants it


def test_a_model_whose_last_layer_is_recurrent_is_refused(tmp_path):
    """It has no projection that could be silenced by the names that the recipe knows, so its copies would change the answers."""
    source = tmp_path / "recurrent.gguf"
    writer = gguf.GGUFWriter(source, "qwen35")
    writer.add_name("recurrent")
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    for name in ("ssm_out", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", np.ones((32, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CannotInflate, match=r"block 0 has no attn_output\.weight"):
        inflate(source, tmp_path / "out.gguf")
    assert list(tmp_path.iterdir()) == [source]


def test_the_second_sample_experiment_is_shaped_like_the_preset():
    ours, problems = parse_spec(read_yaml((ROOT / "demo/mtp.yaml").read_bytes()))
    assert ours, problems
    assert [(a.name, a.mode, a.draft_limit) for a in ours.arms] == [
        ("off", "off", None),
        *((f"mtp-{limit}", "mtp", limit) for limit in (1, 2, 5)),
    ]
    preset = read_yaml((ROOT / "agent/speccore/presets/qwen3.8-27b-mtp.yaml").read_bytes())
    assert (ours.engine.slots, ours.blocks, ours.warmup.mode, ours.warmup.requests) == (
        preset["engine"]["slots"],
        preset["blocks"],
        preset["warmup"]["mode"],
        preset["warmup"]["requests"],
    )
    assert {(p.probes, p.one_by_one) for p in ours.points} == {(preset["points"][0]["probes"], True)}
    assert [p.workload for p in ours.points] == ["count", "python-code", "free-text"]

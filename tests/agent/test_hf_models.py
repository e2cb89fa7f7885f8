"""Model folders as the agent reads them: every field from the files, nothing run, and what can't be used named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from specagent.config import Config, ModelEntry
from specagent.filecache import FileCache
from specagent.inventory import take_inventory
from specagent.models import configured_models, model_info
from speccore.errors import ModelFileMissing
from speccore.preflight import compare_pair

from demo.train import hf

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "max_position_embeddings": 512,
    "vocab_size": 2048,
}
TENSORS = {"model.embed_tokens.weight": (4, 8), "model.layers.0.self_attn.q_proj.weight": (8, 8)}


def write(folder: Path, tensors: dict[str, tuple[int, ...]] | None = None, **changes: Any) -> Path:
    """A model folder with weights of zero."""
    folder.mkdir(parents=True)
    hf.write_safetensors(folder / hf.WEIGHTS, {n: np.zeros(s, np.float32) for n, s in (tensors or TENSORS).items()})
    hf.write_words(folder, CONFIG | changes)
    return folder


def info(folder: Path) -> Any:
    return model_info("small", folder, FileCache(folder.parent / "cache.json"))


def test_a_folder_tells_what_a_file_would(tmp_path: Path) -> None:
    model = info(write(tmp_path / "m"))
    assert (model.format, model.architecture, model.quantization) == ("hf", "LlamaForCausalLM", "F32")
    assert (model.n_parameters, model.n_layers, model.context_length, model.vocab_size) == (4 * 8 + 8 * 8, 1, 512, 2048)
    assert (model.has_mtp, model.custom_code) == (False, False)
    assert model.tokenizer.n_tokens == 2048
    assert model.tokenizer.special == {"bos": 0, "eos": 0}
    assert model.tokenizer.add_bos is False
    assert set(model.manifest) == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert model.size_bytes == sum((tmp_path / "m" / name).stat().st_size for name in model.manifest)


@pytest.mark.parametrize(
    ("key", "tensor", "has"),
    [
        ("num_nextn_predict_layers", "model.mtp_layers.0.input_proj.weight", True),
        ("mtp_num_hidden_layers", "mtp.fc.weight", True),
        ("num_nextn_predict_layers", "model.layers.1.eh_proj.weight", True),  # behind the last layer
        ("num_nextn_predict_layers", "model.layers.0.mlp.up_proj.weight", False),  # promised, and left out of this copy
        ("other", "mtp.fc.weight", True),  # some configurations don't speak of it
        ("other", "model.layers.1.eh_proj.weight", False),
    ],
)
def test_a_head_is_told_by_its_tensors(tmp_path: Path, key: str, tensor: str, has: bool) -> None:
    assert info(write(tmp_path / "m", TENSORS | {tensor: (2, 2)}, **{key: 1})).has_mtp is has


def test_quantization_is_as_the_configuration_names_it(tmp_path: Path) -> None:
    assert info(write(tmp_path / "m", quantization_config={"quant_method": "awq", "bits": 4})).quantization == "awq-4bit"


def test_the_numbers_of_a_model_of_text_and_pictures_are_those_of_its_text(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", num_hidden_layers=None, max_position_embeddings=None, vocab_size=None)
    said = json.loads((folder / "config.json").read_text())
    said["text_config"] = {"num_hidden_layers": 7, "max_position_embeddings": 4096, "vocab_size": 2048}
    (folder / "config.json").write_text(json.dumps(said))
    model = info(folder)
    assert (model.n_layers, model.context_length, model.vocab_size) == (7, 4096, 2048)


def test_code_in_the_folder_is_noted_and_never_run(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", auto_map={"AutoConfig": "configuration_own.OwnConfig"})
    (folder / "configuration_own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert info(folder).custom_code is True
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"verifier": {"name_or_path": "/else\x1b/big"}}, "/else\ufffd/big"),
        ({"verifier": [1]}, "a model that it doesn't name"),
        ([], "a model that it doesn't name"),
        (None, ""),
    ],
)
def test_a_helper_tells_for_which_model_it_drafts(said: object, named: str, tmp_path: Path) -> None:
    assert info(write(tmp_path / "m", speculators_config=said)).drafts_for == named


def test_a_template_of_its_own_file_wins(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    before = info(folder).chat_template_hash
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert info(folder).chat_template_hash not in ("", before)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.safetensors", b"", "is no readable safetensors file"),
        ("model.safetensors", b"\x10\0\0\0\0\0\0\0not json at all!", "is no readable safetensors file"),
        ("config.json", b"{", "is no JSON"),
        ("config.json", b"[1]", "is no mapping"),
    ],
)
def test_what_can_t_be_read_is_said(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    folder = write(tmp_path / "m")
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=words):
        info(folder)


def test_weights_that_are_programs_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"no weights as safetensors \(weights in \.bin or \.pt files are programs"):
        info(folder)


def test_a_broken_folder_is_a_problem_of_the_inventory_and_no_end_of_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    (folder / "config.json").write_text("{")
    config = Config(state_dir=tmp_path / "state", models=[ModelEntry(alias="mine", path=folder)])
    held = take_inventory(config, FileCache(tmp_path / "cache.json"))
    assert held.inventory.models == []
    assert any("model 'mine'" in p and "is no JSON" in p for p in held.inventory.problems)


def test_folders_of_models_are_found_under_their_names(tmp_path: Path) -> None:
    write(tmp_path / "all/one")
    write(tmp_path / "all/models--org--two/snapshots/0123abcd")
    (tmp_path / "all/no-model").mkdir()
    (tmp_path / "all/no-model/config.json").write_text("{}")
    found = dict(configured_models(Config(model_folders=[tmp_path / "all"])))
    assert set(found) == {"one", "org/two"}


def test_changed_weights_are_another_model_and_the_facts_are_read_again(tmp_path: Path) -> None:
    folder, cache = write(tmp_path / "m"), FileCache(tmp_path / "cache.json")
    before = model_info("m", folder, cache)
    hf.write_safetensors(folder / hf.WEIGHTS, {"model.embed_tokens.weight": np.ones((3, 8), np.float32)})
    after = model_info("m", folder, cache)
    assert after.manifest_hash != before.manifest_hash
    assert after.n_parameters == 24


@pytest.mark.parametrize("change", ["gone", "other"])
def test_a_model_that_changes_after_it_was_advertised_is_not_run(tmp_path: Path, change: str) -> None:
    folder = write(tmp_path / "m")
    config = Config(state_dir=tmp_path / "state", models=[ModelEntry(alias="mine", path=folder)])
    held = take_inventory(config, FileCache(tmp_path / "cache.json"))
    path = folder / "tokenizer.json"
    if change == "gone":
        path.unlink()
    else:
        path.write_text("{}")
    with pytest.raises(ModelFileMissing, match=r"tokenizer\.json"):
        held.model(held.inventory.models[0].manifest_hash)


def test_pairs_of_folders_are_compared_by_their_vocabularies(tmp_path: Path) -> None:
    target, same, other = (write(tmp_path / name) for name in ("t", "s", "o"))
    said = json.loads((other / "tokenizer.json").read_text())
    said["model"]["vocab"] = {f"x{token}": n for token, n in said["model"]["vocab"].items()}
    (other / "tokenizer.json").write_text(json.dumps(said))
    assert compare_pair(info(target), info(same)).refused == []
    assert compare_pair(info(target), info(other)).refused == ["its vocabulary has other tokens than the target's"]

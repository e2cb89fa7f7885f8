"""A pair of models is looked at before anything is started: what the files say, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from specagent import local
from specagent.config import Config, ModelEntry
from specagent.filecache import FileCache
from specagent.inventory import Host, take_inventory
from speccore.errors import SpecError
from speccore.preflight import compare_pair

from tests.agent.commands import SMALL, call
from tests.agent.ggufs import make_draft_of_another_vocabulary, make_headless


@pytest.fixture
def host_with(config: Config) -> Callable[[Path], Host]:
    def make(file: Path) -> Host:
        both = Config.model_validate(config.model_dump() | {"models": [*config.models, ModelEntry(alias="other", path=file)]})
        return take_inventory(both, FileCache(config.state_dir / "files.json"))

    return make


def test_the_files_of_the_demo_pair_say_that_they_fit(host: Host) -> None:
    target, draft = host.inventory.models
    assert target.tokenizer is not None
    assert (target.tokenizer.kind, target.tokenizer.pre, target.tokenizer.n_tokens) == ("gpt2", "gpt-2", 2048)
    assert target.tokenizer.special == {"bos": 0, "eos": 0}
    assert (target.tokenizer.add_bos, target.tokenizer.add_eos) == (False, None)
    assert len(target.tokenizer.prefix_hashes) == 129
    assert compare_pair(target, draft).refused == []
    assert compare_pair(target, draft).differs == []


def test_a_helper_of_another_vocabulary_is_refused_by_name(host_with: Callable, config: Config, job: Callable, spec_with: Callable) -> None:
    other = Path(config.models[1].path).with_name("other.gguf")
    make_draft_of_another_vocabulary(Path(config.models[1].path), other)
    host = host_with(other)
    target, _, alien = host.inventory.models
    assert compare_pair(target, alien).refused == ["its vocabulary has other tokens than the target's"]
    assert compare_pair(target, alien).differs == ["merges"]
    arms = [{"name": "off", "mode": "off"}, {"name": "alien", "mode": "draft", "draft_model": "other", "draft_limit": 3}]
    with pytest.raises(SpecError, match="arm 'alien': other can't draft for target: its vocabulary has other tokens"):
        job(spec_with(arms=arms), host)


def test_a_helper_that_only_cuts_text_otherwise_runs_with_a_note(config: Config, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    make_draft_of_another_vocabulary(Path(config.models[1].path), other, merges_only=True)
    both = config.model_copy(update={"models": [*config.models, ModelEntry(alias="other", path=other)]})
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(json.loads(both.model_dump_json(exclude_none=True))))
    arms = [SMALL["arms"][0], {"name": "doubtful", "mode": "draft", "draft_model": "other", "draft_limit": 3}]
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(SMALL | {"arms": arms, "blocks": 1}))
    ran = call("run", tmp_path / "experiment.yaml", "--config", tmp_path / "agent.yaml", "--out", tmp_path / "out")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("note: other and target differ in merges: the pair starts, and the helper may only guess worse") == 1


def test_a_file_without_a_vocabulary_is_not_spoken_for(host_with: Callable, tmp_path: Path) -> None:
    target, _, other = host_with(make_headless(tmp_path / "other.gguf")).inventory.models
    assert other.tokenizer is None
    assert compare_pair(target, other).refused == []


@pytest.mark.parametrize(
    ("arm", "why"),
    [
        ({"mode": "mtp"}, "target has no head for mtp"),
        ({"mode": "mtp", "draft_model": "draft"}, "draft has no head for mtp"),
        ({"mode": "eagle3", "draft_model": "draft"}, "draft is no eagle3 head: its architecture is llama, and a head's is eagle3"),
    ],
)
def test_an_arm_whose_head_is_not_there_is_refused_by_name(arm: dict, why: str, job: Callable, spec_with: Callable) -> None:
    arms = [{"name": "off", "mode": "off"}, {"name": "headed", "draft_limit": 2, **arm}]
    with pytest.raises(SpecError, match=f"arm 'headed': {why}"):
        job(spec_with(arms=arms))


def test_a_head_in_a_file_of_its_own_drafts(config: Config, demo_models: Path, job: Callable, spec_with: Callable) -> None:
    """The demo's model with a head, once as the target and once more as the file that holds the head."""
    both = [ModelEntry(alias=name, path=demo_models / "mtp.gguf") for name in ("target", "head")]
    host = take_inventory(config.model_copy(update={"models": both}), FileCache(config.state_dir / "files.json"))
    assert all(m.has_mtp for m in host.inventory.models)
    arms = [{"name": "off", "mode": "off"}, {"name": "own", "mode": "mtp", "draft_model": "head", "draft_limit": 2}]
    ran = job(spec_with(arms=arms), host)
    assert ran.run().outcome == "completed"
    (compared,) = local.analyse(ran.offer, ran.workloads, ran.sink).comparisons
    assert next(c for c in compared.checks if c.name == "drafter alive").state == "passed"

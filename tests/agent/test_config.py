"""The owner's configuration: every fault in words, paths whole, an example that is true."""

from __future__ import annotations

from pathlib import Path

import pytest
from specagent.config import Config, ConfigInvalid, find_config, load_config

EXAMPLE = Path(__file__).resolve().parents[2] / "agent" / "config.example.yaml"


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return load_config(path)


def test_the_example_is_valid_and_shows_every_key() -> None:
    config = load_config(EXAMPLE)
    assert config.models
    assert config.runtimes
    text = EXAMPLE.read_text()
    assert [key for key in Config.model_fields if f"{key}:" not in text] == []


def test_nothing_is_needed() -> None:
    config = load_config(None)
    assert config.state_dir.is_absolute()
    assert config.state_dir.name == "specweb-agent"
    assert config.allowed_flags is None


def test_paths_count_from_the_files_folder(tmp_path: Path) -> None:
    config = load(
        tmp_path, "state_dir: state\nmodels: [{alias: a, path: m/a.gguf}]\nmodel_folders: [~/models]\nruntimes: [{path: /opt/l}]\n"
    )
    assert config.state_dir == tmp_path / "state"
    assert config.models[0].path == tmp_path / "m" / "a.gguf"
    assert config.model_folders == [Path.home() / "models"]
    assert config.runtimes[0].path == Path("/opt/l")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("modles: []", "modles: unknown key (did you mean 'models'?)"),
        ("models: [{alias: a, path: x, hash: y}]", "models.0.hash: unknown key"),
        ("models: [{alias: a}]", "models.0.path: is required"),
        ("runtimes: [{engine: tgi, path: x}]", "runtimes.0.engine"),
        ("threads: 0", "threads"),
        ("server: example.org", "'example.org' is no http:// or https:// address"),
        ("allowed_flags: [-ot]", "'-ot' is no long flag"),
        ("- a\n- b", "is not a mapping"),
        ("a: [", "is no valid YAML"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(tmp_path, text)
    assert said in caught.value.message
    assert caught.value.remedy_text


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="No such file"):
        load_config(tmp_path / "none.yaml")


def test_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPECWEB_AGENT_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    assert find_config() is None
    user = tmp_path / "home" / "specweb-agent" / "config.yaml"
    user.parent.mkdir(parents=True)
    user.touch()
    assert find_config() == user
    (tmp_path / "specweb-agent.yaml").touch()
    assert find_config() == Path("specweb-agent.yaml")
    monkeypatch.setenv("SPECWEB_AGENT_CONFIG", "/elsewhere.yaml")
    assert find_config() == Path("/elsewhere.yaml")

"""The owner's configuration: every fault in words, paths whole, an example that is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from specagent.config import Config, ConfigInvalid, Limits, ModelEntry, RuntimeEntry, find_config, load_config

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
    assert [key for kind in (Config, RuntimeEntry, Limits, ModelEntry) for key in kind.model_fields if f"{key}:" not in text] == []


def test_what_the_example_shows_in_comments_is_valid_too(tmp_path: Path) -> None:
    shown = re.sub(r"(?m)^# (- engine:|  (?:image|path|gpus|limits|docker|servers):)", r"  \1", EXAMPLE.read_text())
    assert [r.kind for r in load(tmp_path, shown).runtimes] == ["process", "process", "container", "attached"]


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
        ('labels: {room: "\\e[2J"}', "labels.room: holds a control character"),
        ('labels: {"\\uD800": x}', "a key of labels: holds a control character, or half of a character"),
        ('models: [{alias: a, path: "x\\0y"}]', "models.0.path: holds a control character"),
        ("state_dir: ~nobodys-name/x", "a path from ~ that leads nowhere"),
        ("runtimes: [{path: x, env: {A=B: c}}]", "'A=B' is no name of a variable"),
        ("runtimes: [{path: x, env: {'': c}}]", "'' is no name of a variable"),
        ("runtimes: [{path: x, gpus: [0]}]", "has gpus, which bind a container and nothing else"),
        ("runtimes: [{path: x, limits: {cpus: 0-3}, docker: 'unix:///x'}]", "has docker and limits, which bind a container"),
        ("runtimes: [{image: x, gpus: [all, 0]}]", "names all, and some beside them"),
        ("runtimes: [{image: x, limits: {memory_mib: 99999999999999999999}}]", "runtimes.0.limits.memory_mib"),
        ("runtimes: [{servers: {off: 'http://a..b:80'}}]", "the address of 'off' is none"),
        ("runtimes: [{servers: {'<b>': 'http://127.0.0.1:1'}}]", "'<b>' can be no arm's name"),
        ("runtimes: [{servers: {off: 'http://127.0.0.1:1'}, env: {A: b}}]", "servers stand already: remove env"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(tmp_path, text)
    assert said in caught.value.message
    assert caught.value.remedy_text


@pytest.mark.parametrize(("written", "read"), [("[0, GPU-1]", ["0", "GPU-1"]), ("all", ["all"]), ("1", ["1"]), ("[all]", ["all"])])
def test_gpus_of_a_container_are_written_as_one_would(written: str, read: list[str], tmp_path: Path) -> None:
    assert load(tmp_path, f"runtimes: [{{image: x, gpus: {written}}}]").runtimes[0].gpus == read


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

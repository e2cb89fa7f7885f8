"""Where address and token come from, and who else may read them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from specclient.config import Account, config_path, forget_account, keep_account, load_account, read_profiles
from specclient.errors import BadInput, NotLoggedIn

LAB = Account("https://lab.example.org", "sw_lab", "default")
HOME = Account("http://127.0.0.1:8000", "sw_home", "home")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return config_path({"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.fixture
def env(path: Path, tmp_path: Path) -> dict[str, str]:
    keep_account(LAB, path)
    keep_account(HOME, path)
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def test_the_environment_wins_over_the_file_and_a_named_profile_over_both(env: dict[str, str]) -> None:
    assert load_account("", env) == LAB
    assert load_account("home", env) == HOME
    assert load_account("", env | {"SPECWEB_PROFILE": "home"}) == HOME
    both = env | {"SPECWEB_URL": "https://ci.example.org/", "SPECWEB_TOKEN": "sw_ci"}
    assert load_account("", both) == Account("https://ci.example.org", "sw_ci")
    assert load_account("home", both) == HOME
    assert load_account("", env | {"SPECWEB_TOKEN": "sw_other"}) == Account(LAB.url, "sw_other")


def test_a_kept_token_goes_to_no_other_server(env: dict[str, str]) -> None:
    assert load_account("", env | {"SPECWEB_URL": "http://127.0.0.1:8000/"}) == HOME
    with pytest.raises(NotLoggedIn, match="no token for it"):
        load_account("", env | {"SPECWEB_URL": "https://lab.example.org.evil.example"})
    with pytest.raises(NotLoggedIn, match="no token for it"):
        load_account("", env | {"SPECWEB_URL": "http://lab.example.org"})


def test_nobody_else_may_read_it(env: dict[str, str], path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0
    assert os.listdir(path.parent) == [path.name]
    path.chmod(0o640)
    with pytest.raises(BadInput, match="can be read by others") as told:
        load_account("", env)
    assert f"chmod 600 {path}" in told.value.remedy_text


def test_profiles_are_kept_and_forgotten_one_by_one(env: dict[str, str], path: Path) -> None:
    assert list(read_profiles(path)) == ["default", "home"]
    assert forget_account("default", path)
    assert not forget_account("default", path)
    assert read_profiles(path) == {"home": HOME}
    with pytest.raises(NotLoggedIn, match=r"no profile 'default'.*there is home"):
        load_account("", env)
    odd = Account("https://x.example", "sw_x", 'a "quoted" näme = [x]')
    keep_account(odd, path)
    assert read_profiles(path)[odd.profile] == odd


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("url = [", "is no TOML"),
        ("\xff", "is no TOML"),
        ('[profiles.default]\nurl = "https://x"\n', "needs a url and a token"),
        ('[profiles.default]\nurl = 3\ntoken = "sw"\n', "needs a url and a token"),
        ('[profiles.default]\nurl = "ftp://x"\ntoken = "sw"\n', "is no http:// or https:// address"),
        ('[profiles.default]\nurl = "https://x"\ntoken = "a b"\n', "characters that no token has"),
    ],
)
def test_a_damaged_file_is_refused_in_words(path: Path, tmp_path: Path, text: str, words: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))
    path.chmod(0o600)
    with pytest.raises(BadInput, match=words):
        load_account("", {"XDG_CONFIG_HOME": str(tmp_path)})


def test_nobody_has_logged_in(tmp_path: Path) -> None:
    with pytest.raises(NotLoggedIn, match="no profile 'default'") as told:
        load_account("", {"XDG_CONFIG_HOME": str(tmp_path)})
    assert "specweb login" in told.value.remedy_text
    assert "sw_lab" not in repr(LAB)

"""Who asks where: addresses and tokens from the environment, or as ``specweb login`` has kept them in a file for its owner alone."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speccore.plain import one_line

from .errors import BadInput, NotLoggedIn
from .transport import checked_token, checked_url

DEFAULT = "default"
URL, TOKEN, PROFILE = "SPECWEB_URL", "SPECWEB_TOKEN", "SPECWEB_PROFILE"


@dataclass(frozen=True)
class Account:
    url: str
    token: str = field(repr=False)
    profile: str = ""  # empty: from the environment


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    base = environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".config") / "specweb" / "config.toml"


def load_account(profile: str = "", environ: Mapping[str, str] = os.environ) -> Account:
    """A named profile, else what the environment says, else the profile ``default``. Raises :class:`NotLoggedIn`, :class:`BadInput`.

    A token of the file goes to no other server than the one that it was kept for.
    """
    url, token = environ.get(URL, "").strip(), environ.get(TOKEN, "").strip()
    if url and token and not profile:
        return Account(checked_url(url), token)
    path = config_path(environ)
    known = read_profiles(path)
    if url and not profile:
        same = [a for a in known.values() if a.url == checked_url(url)]
        if same:
            return same[0]
        raise NotLoggedIn(
            f"{URL} is {one_line(url)[:100]}, and there is no token for it",
            remedy=f"Set {TOKEN}, or run: specweb login {one_line(url)[:100]}",
        )
    name = profile or environ.get(PROFILE, "").strip() or DEFAULT
    found = known.get(name)
    if found is None:
        names = f"; there is {', '.join(known)}" if known else ""
        raise NotLoggedIn(f"there is no profile {one_line(name)[:60]!r} in {path}{names}")
    return Account(found.url, token, "") if token and not profile else found


def read_profiles(path: Path) -> dict[str, Account]:
    """Name → account; empty where nobody has logged in. Raises :class:`BadInput`."""
    try:
        with path.open("rb") as f:
            mode = os.fstat(f.fileno()).st_mode
            data = tomllib.load(f)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadInput(f"{path} can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is no TOML: {one_line(str(error))}", remedy="Correct it, or remove it and run: specweb login") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadInput(
            f"{path} can be read by others, and holds tokens",
            remedy=f"Run: chmod 600 {path}; if others have accounts here, make new tokens.",
        )
    profiles = data.get("profiles", {})
    return {name: _account(path, name, entry) for name, entry in profiles.items()} if isinstance(profiles, dict) else {}


def _account(path: Path, name: str, entry: Any) -> Account:
    if not isinstance(entry, dict) or not isinstance(entry.get("url"), str) or not isinstance(entry.get("token"), str):
        raise BadInput(
            f"{path}: profile {one_line(name)[:60]!r} needs a url and a token", remedy="Correct it, or remove it and run: specweb login"
        )
    checked_token(entry["token"])
    return Account(checked_url(entry["url"]), entry["token"], name)


def keep_account(account: Account, path: Path) -> None:
    """Writes it beside the others, whole or not at all, readable for its owner alone. Raises :class:`BadInput`."""
    known = read_profiles(path) | {account.profile: account}
    _write(known, path)


def forget_account(profile: str, path: Path) -> bool:
    known = read_profiles(path)
    if known.pop(profile, None) is None:
        return False
    _write(known, path)
    return True


def _write(accounts: Mapping[str, Account], path: Path) -> None:
    text = "# Kept by specweb login. Tokens: for your eyes only.\n"
    for name, account in accounts.items():
        text += f"\n[profiles.{_quoted(name)}]\nurl = {_quoted(account.url)}\ntoken = {_quoted(account.token)}\n"
    part = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, part = tempfile.mkstemp(dir=path.parent, prefix=".config-")  # made for its owner alone
        with open(handle, "w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        os.replace(part, path)
        part = ""
    except OSError as error:
        raise BadInput(f"the token can't be kept in {path}: {error.strerror}") from None
    finally:
        if part:
            with suppress(OSError):
                os.unlink(part)


def checked_profile(name: str) -> str:
    if not name or not name.isprintable() or len(name) > 60:
        raise BadInput(f"{one_line(name)[:60]!r} is no name for a profile", remedy="Take a word, such as lab.")
    return name


def _quoted(text: str) -> str:
    """A basic string of TOML, whose escapes JSON's are."""
    return json.dumps(text, ensure_ascii=False)

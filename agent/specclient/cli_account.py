"""``login``, ``logout``, ``completion``."""

from __future__ import annotations

import argparse
import getpass
import sys
from typing import Any
from urllib.parse import urlsplit

import shtab

from .cli_base import Call, add
from .client import Client
from .config import DEFAULT, Account, checked_profile, config_path, forget_account, keep_account
from .errors import ApiError, BadInput
from .gate import OK
from .models import Token
from .screen import Screen, safe
from .transport import checked_url

SHELLS = ("bash", "zsh", "fish")
#: What a file stands for in the commands' usage.
_FILES = ("FILE", "ARCHIVE")


def add_commands(actions: Any, common: argparse.ArgumentParser) -> None:
    login = add(
        actions,
        "login",
        _login,
        "keep an address and a token for the other commands",
        common,
        "Asks for the address of a service and a token from its account page (/account/), tries both, and keeps them in "
        "~/.config/specweb/config.toml, readable for you alone.",
    )
    login.add_argument("address", nargs="?", metavar="ADDRESS", help="of the service, https://…")
    login.add_argument("--token-stdin", action="store_true", help="read the token from standard input instead of asking")
    logout = add(
        actions, "logout", _logout, "forget a kept token", common, "Forgets a kept token. It stays valid: revoke it on the account page."
    )
    del logout
    completion = add(actions, "completion", _completion, "print what completes commands in a shell", common)
    completion.add_argument("shell", choices=SHELLS)


def _login(call: Call) -> int:
    args, screen = call.args, call.screen
    name = checked_profile(args.profile or DEFAULT)
    asked = sys.stdin.isatty()
    given = args.address or (input("Address of the service: ") if asked and not args.token_stdin else "")
    if not given:
        raise BadInput("no address is given", remedy="specweb login https://specweb.example.org")
    url = checked_url(given)
    token = _token(url, screen, from_stdin=args.token_stdin or not asked)
    with Client(url, token, say=screen.note) as client:
        me = client.me()
        try:
            own = next((t for t in client.tokens() if t.current), None)
        except ApiError:  # a token without the scope to read them
            own = None
    path = config_path()
    keep_account(Account(url, token, name), path)
    if call.json:
        screen.json({"profile": name, "url": url, **me.raw})
        return OK
    teams = ", ".join(f"{safe(t.slug)} ({safe(t.role)})" for t in me.teams) or "no team"
    screen.print(f"logged in at {url} as {safe(me.user)}: {teams}")
    if own:
        screen.print(_token_words(own))
    if urlsplit(url).scheme == "http" and urlsplit(url).hostname not in ("127.0.0.1", "localhost", "::1"):
        screen.note("note: the address is http://, so the token travels for all to read on the way")
    screen.note(f"kept in {path}" + (f" as profile {name}" if name != DEFAULT else ""))
    return OK


def _token(url: str, screen: Screen, *, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().strip()
    screen.note(f"Make a token at {url}/account/")
    return getpass.getpass("Token (not shown): ").strip()


def _token_words(token: Token) -> str:
    until = f"until {token.expires_at:%Y-%m-%d %H:%M} UTC" if token.expires_at else "without an end"
    return f"token {safe(token.name)}: {', '.join(safe(s) for s in token.scopes) or 'no scope'}, {until}"


def _logout(call: Call) -> int:
    name, path = checked_profile(call.args.profile or DEFAULT), config_path()
    there = forget_account(name, path)
    if call.json:
        call.screen.json({"profile": name, "forgotten": there})
    elif there:
        call.screen.print(f"forgotten: profile {name}. Its token stays valid until it is revoked on the account page.")
    else:
        raise BadInput(f"there is no profile {name!r} in {path}")
    return OK


def _completion(call: Call) -> int:
    from .cli import parser

    whole = parser()
    _complete_files(whole)
    call.screen.print(shtab.complete(whole, shell=call.args.shell).rstrip())
    return OK


def _complete_files(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _complete_files(inner)
        elif action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]

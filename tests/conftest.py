"""Real servers for the tests: those that DATABASE_URL and BROKER_URL name, else embedded ones, started when first needed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import django
import pytest
from hypothesis import HealthCheck, settings

# Test modules import models, so Django is set up before any test asks for a server; `servers` fills in the real addresses.
_NOWHERE = "postgresql://specweb@/specweb?host=/nonexistent"
# A process that shares the tests inherits what the first one wrote here, which is no address that somebody gave.
_GIVEN = bool(os.environ.get("DATABASE_URL") and os.environ.get("BROKER_URL")) and os.environ["DATABASE_URL"] != _NOWHERE
if not _GIVEN:
    os.environ["DATABASE_URL"] = _NOWHERE
    os.environ["BROKER_URL"] = "redis+socket:///nonexistent/broker.sock"
os.environ["DJANGO_SETTINGS_MODULE"] = "specweb.settings"
os.environ.setdefault("SECRET_KEY", "only-for-tests")
os.environ["SPECWEB_STATIC_FROM_SOURCE"] = "1"
# Tests ask faster than people and programs; those of the limits set their own.
for _kind in ("REQUESTS", "UPLOADS", "OPEN_REQUESTS", "LOGINS"):
    os.environ[f"SPECWEB_{_kind}_PER_MINUTE"] = "0"
os.environ["SPECWEB_MAILS_PER_HOUR"] = "0"
django.setup()
# How long one example takes is the machine's to say.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
# A password is hashed slowly so that nobody guesses it, and no test does.
django.conf.settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher", *django.conf.settings.PASSWORD_HASHERS]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """What needs a dockerd or an engine of gigabytes is run by `make test-docker` and `make test-vllm`, and not by the way."""
    needs = {"docker": "SPECWEB_TEST_DOCKER", "vllm": "SPECWEB_TEST_VLLM"}
    name = needs.get(collection_path.name) if collection_path.parent == Path(__file__).parent else None
    return True if name and name not in os.environ else None


@pytest.fixture(scope="session")
def servers() -> Iterator[None]:
    """PostgreSQL and a broker run, and both the settings and the environment of child processes name them."""
    if _GIVEN:
        yield
        return
    from demo.stack import Stack

    home = Path(tempfile.mkdtemp(prefix="specweb-tests-"))
    try:
        with Stack(home) as addresses:
            _use(addresses.database_url, addresses.broker_url)
            yield
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _use(database_url: str, broker_url: str) -> None:
    import dj_database_url
    from django.conf import settings
    from django.core.signals import setting_changed
    from django.db import connections

    from specweb.settings import cache_at

    os.environ["DATABASE_URL"], os.environ["BROKER_URL"] = database_url, broker_url
    settings.BROKER_URL = broker_url
    settings.CACHES = {"default": cache_at(broker_url)}
    setting_changed.send(sender=None, setting="CACHES", value=settings.CACHES, enter=True)
    connections.settings["default"].update(dj_database_url.parse(database_url))


@pytest.fixture(scope="session")
def django_db_modify_db_settings(servers: None) -> None:
    """pytest-django's hook before it makes the test database."""


#: Tests that measure on a real clock, or wait for one, beside whatever else the machine does: a fault of ours fails twice.
_BY_THE_CLOCK = (
    "tests/e2e/",
    "tests/engines/",
    "tests/browser/",
    "tests/replay/",
    "tests/chaos/",
    "tests/agent/test_answers_under_load.py",
    "tests/agent/test_attached.py",
    "tests/agent/test_confounds.py",
    "tests/agent/test_fit.py",
    "tests/agent/test_known_truth.py",
    "tests/agent/test_llamacpp_modes.py",
    "tests/agent/test_load",
    "tests/agent/test_misbehaving.py",
    "tests/agent/test_receive.py",
    "tests/agent/test_sampling_test.py",
    "tests/agent/test_scratch.py",
    "tests/agent/test_streams",
    "tests/agent/test_warming.py",
    "tests/agent/test_worded.py",
    "tests/client/test_real_shell.py",
    "tests/web/test_race.py",
    "tests/workers/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those get one second try, which the report names (R)."""
    for item in items:
        if item.path.relative_to(item.config.rootpath).as_posix().startswith(_BY_THE_CLOCK):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Who patches something wants nothing that was made without the patch."""
    from tests import remembered

    info = getattr(item, "_fixtureinfo", None)
    asked = [info.argnames, *(d.argnames for ds in info.name2fixturedefs.values() for d in ds if d.baseid)] if info else []
    remembered.allowed = not any("monkeypatch" in names for names in asked)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """With SPECWEB_REFUSE_SKIPS a skipped test fails: where everything is installed, nothing may hide behind a skip."""
    report = yield
    if os.environ.get("SPECWEB_REFUSE_SKIPS") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and skips are refused here: {report.longrepr}"
    return report  # type: ignore[return-value]

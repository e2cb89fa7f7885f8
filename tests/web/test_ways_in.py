"""The one-time login link, the commands of a new installation, settings that are missing, and the schema."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from speccore.jobstate import JobState
from speccore.workloads import builtin
from speccore.yamltext import spec_to_yaml

from specweb.accounts.models import LoginLink, User
from specweb.accounts.services import create_login_link
from specweb.experiments.models import EnrolmentCode, Experiment, Host, Job, Workload
from specweb.experiments.services.jobs import move_job
from specweb.experiments.services.submission import seed_workload
from specweb.results.services.comparing import compare_job
from tests.web import sample
from tests.worlds import Agent, World

ROOT = Path(__file__).parents[2]


def run(name: str, *args: str, **options: Any) -> str:
    out = StringIO()
    call_command(name, *args, stdout=out, stderr=StringIO(), **options)
    return out.getvalue()


def refused(name: str, *args: str) -> str:
    with pytest.raises(CommandError) as caught:
        call_command(name, *args, stdout=StringIO(), stderr=StringIO())
    assert caught.value.returncode == 2
    return str(caught.value)


def user_of(client: Client) -> str | None:
    return client.session.get("_auth_user_id")


class TestLoginLink:
    def link(self, world: World) -> str:
        return urlsplit(run("login_link", "--user", "owner").strip()).path

    def test_logs_in_once(self, world: World) -> None:
        path = self.link(world)
        first, second = Client(), Client()
        assert first.get(path).headers["Location"] == "/"
        assert user_of(first) == str(world.owner.pk)
        assert second.get(path).headers["Location"] == "/login/"
        assert user_of(second) is None

    def test_a_preview_does_not_use_it_up(self, world: World) -> None:
        path, client = self.link(world), Client()
        assert client.head(path).status_code == 200
        assert user_of(client) is None
        client.get(path)
        assert user_of(client) == str(world.owner.pk)

    @pytest.mark.parametrize("where", [{"REMOTE_ADDR": "192.0.2.7"}, {"HTTP_X_FORWARDED_FOR": "127.0.0.1"}, {"REMOTE_ADDR": ""}])
    def test_from_this_machine_only(self, world: World, where: dict[str, str]) -> None:
        path, client = self.link(world), Client()
        client.get(path, **where)
        assert user_of(client) is None
        assert LoginLink.objects.get().used_at is None
        client.get(path, REMOTE_ADDR="::1")
        assert user_of(client) == str(world.owner.pk)

    def test_too_old_unknown_or_of_somebody_who_left(self, world: World) -> None:
        old = create_login_link(world.owner, timezone.now() - timedelta(minutes=11))
        left = create_login_link(world.teammate, timezone.now())
        User.objects.filter(pk=world.teammate.pk).update(is_active=False)
        for secret in (old, left, "once_wrong"):
            client = Client()
            assert client.get(f"/login/once/{secret}").headers["Location"] == "/login/"
            assert user_of(client) is None

    def test_no_such_user(self, world: World) -> None:
        assert "'nobody'" in refused("login_link", "--user", "nobody")


class TestBootstrap:
    def test_twice_makes_nothing_twice(self, db: Any, tmp_path: Path) -> None:
        file = tmp_path / "new" / "token"
        first, second = (json.loads(run("bootstrap", "--team", "lab", "--user", "ada", "--token-file", str(file))) for _ in range(2))
        assert first == second
        assert (first["team"], first["user"], first["host"]["name"]) == ("lab", "ada", "lab")
        assert first["workloads"] == sorted({w.ref for w in builtin().values()})
        assert (Host.objects.count(), Workload.objects.count()) == (1, len(first["workloads"]))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert Agent(file.read_text().strip()).poll().status_code == 200
        assert not User.objects.get().has_usable_password()

    def test_a_token_that_is_lost_or_revoked_is_made_anew(self, db: Any, tmp_path: Path) -> None:
        file = tmp_path / "token"
        run("bootstrap", "--token-file", str(file))
        Host.objects.update(revoked_at=timezone.now())
        run("bootstrap", "--token-file", str(file))
        assert Agent(file.read_text().strip()).poll().status_code == 200

    def test_or_an_enrolment_code(self, db: Any) -> None:
        code = json.loads(run("bootstrap"))["enrolment_code"]
        assert Agent("").post("enrol", {"code": code, "hostname": "h", "agent_version": "1"}).status_code == 201
        assert EnrolmentCode.objects.get().host == Host.objects.get()

    def test_a_token_file_that_cannot_be_written(self, db: Any, tmp_path: Path) -> None:
        assert "token-file" in refused("bootstrap", "--token-file", str(tmp_path))
        assert not Host.objects.exists()  # none whose token nobody has


GOOD = """
name: Does it pay?
target: {model: target}
arms: [{name: off, mode: off}, {name: d, mode: draft, draft_model: draft, draft_limit: 4}]
points: [{workload: tiny}]
warmup: {mode: fixed}
"""


class TestSubmit:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "experiment.yaml"
        path.write_text(GOOD)
        return path

    @pytest.fixture
    def ready(self, world: World) -> World:
        world.agent.poll()
        world.agent.send_inventory()
        return world

    def test_prints_id_and_address(self, ready: World, file: Path) -> None:
        told = json.loads(run("submit", str(file), "--team", "ours", "--user", "owner", "--json"))
        experiment = Experiment.objects.get()
        assert told["experiment"] == str(experiment.pk)
        assert told["url"].endswith(f"/experiments/{experiment.pk}/")
        assert told["jobs"] == [str(experiment.jobs.get().pk)]
        assert (experiment.created_by, experiment.visibility) == (ready.owner, "team")

    def test_waiting_tells_each_state_once(self, ready: World, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        host = Host.objects.earliest("pk")
        states = iter([("queued", f"queued on {host.name}"), ("claimed", ""), ("cancelled", "as asked")])

        def later(_seconds: float) -> None:
            state, reason = next(states)
            Job.objects.update(state=state, reason=reason, host=host)

        monkeypatch.setattr("time.sleep", later)
        said = StringIO()
        with pytest.raises(CommandError):
            call_command("submit", str(file), "--team", "ours", "--wait", stdout=StringIO(), stderr=said)
        told = said.getvalue().replace(host.name, "vm").splitlines()
        assert told[1:] == ["queued on vm", "claimed on vm", "cancelled on vm: as asked"]

    def test_waiting_ends_with_the_comparisons_and_the_address(self, db: None, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        them = sample.people()
        host = sample.host_with_inventory(them.team)
        for workload in {w.content_hash(): w for w in builtin().values()}.values():
            seed_workload(workload)
        file.write_text(spec_to_yaml(sample.spec(points=[{"workload": "count", "max_tokens": 64}])))

        def run_it(_seconds: float) -> None:
            taken = sample.claimed(Experiment.objects.get(), host)
            sample.play(taken)
            move_job(taken.job.pk, JobState.COMPLETED, now=timezone.now(), by="test")
            assert compare_job(taken.job.pk, timezone.now())

        monkeypatch.setattr("time.sleep", run_it)
        said = StringIO()
        call_command("submit", str(file), "--team", "ours", "--wait", stdout=said, stderr=StringIO())
        lines = said.getvalue().splitlines()
        assert lines[1] == lines[-1]
        assert lines[1].endswith(f"/experiments/{Experiment.objects.get().pk}/")
        table = [line.split() for line in said.getvalue().split("\n\n")[0].splitlines()[2:] if not line.startswith("─")]
        assert [row[1] for row in table] == ["arm", "draft-3", "draft-8", "ngram-simple"]
        assert float(table[1][2].rstrip("×")) > 1
        assert run("report", str(Experiment.objects.get().pk), table=True).strip() in said.getvalue()

    def test_of_one_that_was_not_measured_there_is_no_table(self, ready: World, file: Path) -> None:
        run("submit", str(file), "--team", "ours")
        assert run("report", str(Experiment.objects.get().pk), table=True) == "nothing is compared yet\n"

    def test_every_fault_in_words(self, ready: World, file: Path) -> None:
        file.write_text(GOOD.replace("draft_limit: 4", "draft_limit: 0").replace("name: Does", "nane: Does"))
        message = refused("submit", str(file), "--team", "ours")
        assert "nane: unknown key 'nane' (did you mean 'name'?)" in message
        assert "arms.1.draft_limit: should be a whole number from 1 to 1,024 (most tokens drafted per cycle) (given: 0)" in message
        assert "name: is required" in message

    @pytest.mark.parametrize(
        ("text", "said"),
        [("[1, 2]", "a mapping of keys"), ("a: [", "neither YAML nor JSON"), ("\x00", "neither YAML nor JSON"), ("", "a mapping of keys")],
    )
    def test_files_that_are_no_experiment(self, ready: World, file: Path, text: str, said: str) -> None:
        file.write_text(text)
        assert said in refused("submit", str(file), "--team", "ours")

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[" * 5000, "nested more than 20 deep"),
            ("target: 2026-13-45", "target: should be a mapping of keys, not the text '2026-13-45'"),
            ("seed: " + "9" * 5000, "seed: should be a whole number from 0 to 2,147,483,647"),
            ("name: x\nname: y", "the key 'name' is there twice"),
            ("question: " + "x" * 300_000, "more than the 262,144 that are read"),
            (b"\xff\xfe\x00", "it is no UTF-8 text"),
            (GOOD + 'engine: {extra: {--numa: "a\\0b"}}', "line 7, engine.extra.--numa: holds a NUL character"),
            (GOOD.replace("draft_limit: 4", "draft_limit: yes"), "arms.1.draft_limit: a number is due, not yes or no"),
            (GOOD.replace("workload: tiny", 'workload: "a\\0b"'), "points.0.workload"),
            (GOOD.replace("{workload: tiny}", "{workload: tiny, max_tokens: 100}") + "engine: {context: 64}", "engine.context is 64"),
            (GOOD + "\n".join(f"k{i}: 1" for i in range(5000)), "… and 71 more"),
        ],
    )
    def test_files_made_to_break_it(self, ready: World, file: Path, text: str | bytes, said: str) -> None:
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        assert said in refused("submit", str(file), "--team", "ours")
        assert not Experiment.objects.exists()

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("engine: {extra: {--log-file: /x}}", "engine.extra.--log-file: --log-file is set by SpecWeb itself"),
            ("engine: {extra: {--spec-type: none}}", "engine.extra.--spec-type: --spec-type belongs to speculation: set it in the arm"),
            ("engine: {kv_type_k: --log-file}", "engine.kv_type_k"),
            ("runtime: {engine: vllm}", "runtime.engine: no host of this team offers vllm; there is llama-server: choose that"),
        ],
    )
    def test_what_no_host_can_do_does_not_wait_for_one(self, ready: World, file: Path, text: str, said: str) -> None:
        file.write_text(GOOD + text)
        assert said in refused("submit", str(file), "--team", "ours")
        file.write_text(GOOD.replace("draft, draft_model: draft, draft_limit: 4", "suffix"))
        assert "llama-server has no mode 'suffix'" in refused("submit", str(file), "--team", "ours")
        assert not Experiment.objects.exists()

    def test_a_file_that_is_not_there(self, ready: World, tmp_path: Path) -> None:
        assert "can't be read" in refused("submit", str(tmp_path / "none.yaml"), "--team", "ours")

    def test_a_model_that_no_host_has(self, ready: World, file: Path) -> None:
        file.write_text(GOOD.replace("model: target", "model: tarqet"))
        message = refused("submit", str(file), "--team", "ours")
        assert "'tarqet'; near: target" in message
        assert "Hosts page" in message

    def test_who_and_for_whom(self, ready: World, file: Path) -> None:
        assert "teams: ours, theirs" in refused("submit", str(file))
        assert "no team 'x'" in refused("submit", str(file), "--team", "x")
        assert "teammate may not submit" in refused("submit", str(file), "--team", "ours", "--user", "teammate")
        assert "stranger may not submit" in refused("submit", str(file), "--team", "ours", "--user", "stranger")
        assert "no active user 'x'" in refused("submit", str(file), "--team", "ours", "--user", "x")
        assert not Experiment.objects.exists()


class TestSettings:
    """Each in a process of its own, since settings are read once."""

    def load(self, **changes: str) -> str:
        environment = {"PATH": os.environ["PATH"], "SECRET_KEY": "x", "DATABASE_URL": "postgres:///x", "BROKER_URL": "redis://x"}
        code = "import specweb.settings as s; print('loaded', s.DATABASES['default']['ENGINE'])"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={k: v for k, v in (environment | changes).items() if v},
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr.splitlines()[-1] if done.returncode else done.stdout

    @pytest.mark.parametrize("name", ["SECRET_KEY", "DATABASE_URL", "BROKER_URL"])
    def test_what_is_required_is_named(self, name: str) -> None:
        assert f"{name} is not set. Set it in the environment, for example {name}=" in self.load(**{name: ""})

    def test_postgresql_only(self) -> None:
        assert "SpecWeb needs PostgreSQL" in self.load(DATABASE_URL="sqlite:///x.db")
        assert "DATABASE_URL can't be read" in self.load(DATABASE_URL="nonsense://x")
        assert "loaded django.db.backends.postgresql" in self.load()

    def test_values_that_make_no_sense(self) -> None:
        assert "DEBUG is 'maybe'" in self.load(DEBUG="maybe")
        assert "SPECWEB_POLL_IDLE_S is 'often'" in self.load(SPECWEB_POLL_IDLE_S="often")

    def test_debugging_needs_no_secret(self) -> None:
        assert "loaded" in self.load(DEBUG="1", SECRET_KEY="")


def manage(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run([sys.executable, "manage.py", *words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)


class TestManage:
    """The program itself, as a person runs it who has set nothing."""

    def test_settings_that_are_missing_are_told_in_words(self, tmp_path: Path) -> None:
        done = manage("cancel", "x", SPECWEB_HOME=str(tmp_path))
        assert done.returncode == 2
        assert done.stderr.startswith("manage.py: SECRET_KEY is not set.")
        assert "make demo" in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_database_that_is_away(self, tmp_path: Path) -> None:
        settings = {"SECRET_KEY": "x", "DATABASE_URL": "postgres://nobody@127.0.0.1:9/x", "BROKER_URL": "redis://x"}
        (tmp_path / "environment.json").write_text(json.dumps(settings))
        done = manage("enrolment_code", SPECWEB_HOME=str(tmp_path))
        assert done.returncode == 1
        assert done.stderr.startswith("manage.py: the database can't be used: ")
        assert "Traceback" not in done.stderr


def test_no_migration_is_missing(db: Any) -> None:
    call_command("makemigrations", "--check", "--dry-run", stdout=StringIO())


def test_health(db: Any) -> None:
    assert Client().get("/healthz").json() == {"ok": True}


@pytest.mark.parametrize("path", ["/", "/login/", "/healthz", "/nonsense"])
def test_every_page_has_the_content_policy(world: World, path: str) -> None:
    policy = Client().get(path).headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "*" not in policy


def test_only_plotlys_script_is_collected(tmp_path: Path, settings: Any) -> None:
    settings.STATIC_ROOT = tmp_path
    call_command("collectstatic", "--noinput", stdout=StringIO())
    assert [p.name for p in (tmp_path / "vendor").iterdir()] == ["plotly.min.js"]

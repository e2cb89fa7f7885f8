"""The commands against the real views: what a person reads, what a program reads, and what each refusal says."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from specclient import cli_base, cli_files
from specclient.cli import main, parser
from specclient.client import Client
from specclient.config import config_path, read_profiles

from specweb.accounts.services import create_token
from specweb.experiments.models import Experiment, Workload
from specweb.reported.models import Report
from specweb.results.services.archives import compute_numbers
from tests.client.conftest import Carrier, Tell
from tests.web import sample
from tests.web.pages import SMALL
from tests.web.test_archives import another_server

pytestmark = pytest.mark.django_db

EXPERIMENT = """\
name: Does a small draft pay?
target: {model: demo-target}
engine: {context: 2048}
arms:
  - {name: "off", mode: "off"}
  - {name: draft-4, mode: draft, draft_model: demo-draft, draft_limit: 4}
points:
  - {workload: count, max_tokens: 64}
blocks: 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    return tmp_path / "experiment.yaml"


@pytest.fixture
def ready(people: sample.People) -> sample.People:
    """A host that can run it, and the built-in workloads."""
    sample.host_with_inventory(people.team)
    for content in {w.content_hash(): w for w in sample.workloads.builtin().values()}.values():
        sample.seed_workload(content)
    return people


@pytest.fixture
def run(people: sample.People) -> sample.Run:
    return sample.finished(people.team, people.owner, sample.spec(**SMALL))


class TestSubmit:
    def test_it_is_stored_and_its_address_told(self, tell: Tell, ready: sample.People, file: Path) -> None:
        code, said, _ = tell("submit", file)
        made = Experiment.objects.get()
        assert (code, said.splitlines()) == (0, [str(made.pk), f"http://127.0.0.1:8000/experiments/{made.pk}/"])
        assert (made.created_by, made.team) == (ready.owner, ready.team)

    def test_the_same_key_is_the_same_experiment(self, tell: Tell, ready: sample.People, file: Path) -> None:
        key = "5f0c6d1e-3b1f-4c52-9d0e-0d8f6f2d7a11"
        assert tell("submit", file, "--key", key) == tell("submit", file, "--key", key)
        assert Experiment.objects.count() == 1
        file.write_text(EXPERIMENT.replace("blocks: 3", "blocks: 4"))
        code, _, complaint = tell("submit", file, "--key", key)
        assert code == 3
        assert "came before with another experiment" in complaint

    def test_a_lost_answer_stores_nothing_twice(self, tell: Tell, ready: sample.People, file: Path, carrier: Carrier) -> None:
        carrier.loses = 1
        code, said, told = tell("submit", file)
        assert (code, len(said.splitlines())) == (0, 2)
        assert "trying again" in told
        assert Experiment.objects.count() == 1

    def test_after_no_answer_at_all_the_key_is_told(self, tell: Tell, ready: sample.People, file: Path, carrier: Carrier) -> None:
        carrier.loses = 99
        code, said, complaint = tell("submit", file)
        assert (code, said) == (3, "")
        key = re.search(r"--key ([0-9a-f-]{36})", complaint)
        assert key
        carrier.loses = 0
        assert tell("submit", file, "--key", key[1])[0] == 0
        assert Experiment.objects.count() == 1

    def test_faults_are_told_with_their_lines_before_anything_is_sent(self, tell: Tell, file: Path, carrier: Carrier) -> None:
        file.write_text(EXPERIMENT.replace("draft_limit: 4", "draft_limit: 0").replace("blocks: 3", "blcoks: 3"))
        code, said, complaint = tell("submit", file)
        assert (code, said) == (2, "")
        assert "line 6, arms.1.draft_limit" in complaint
        assert "line 9, blcoks" in complaint
        file.write_text("name: [")
        assert tell("submit", file)[0] == 2
        assert carrier.asked == []

    def test_what_only_the_service_knows_is_told_with_its_line_too(self, tell: Tell, ready: sample.People, file: Path) -> None:
        file.write_text(EXPERIMENT.replace("demo-draft", "demo-drat").replace("workload: count", "workload: cuont"))
        for command in (("submit", file), ("submit", file, "--check")):
            code, _, complaint = tell(*command)
            assert code == 2
            assert "line 6, arms.1.draft_model: no host of this team ever had a model demo-drat; near: demo-draft" in complaint.replace(
                "'", ""
            )
            assert "line 8, points.0.workload" in complaint
        assert not Experiment.objects.exists()

    def test_a_check_stores_nothing(self, tell: Tell, ready: sample.People, file: Path) -> None:
        assert tell("submit", file, "--check")[:2] == (0, "sound: it can be submitted\n")
        assert not Experiment.objects.exists()

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--expect", "draft-5=keep"), "no arm 'draft-5'"),
            (("--expect", "maybe"), "'maybe' is nothing to expect"),
            (("--key", "x"), "is no UUID"),
            (("--timeout", "soon"), "is no time"),
        ],
    )
    def test_options_that_cannot_be_meant_store_nothing(
        self, tell: Tell, ready: sample.People, file: Path, options: Any, words: str
    ) -> None:
        code, _, complaint = tell("submit", file, "--watch", *options)
        assert (code, words in complaint) == (2, True), complaint
        assert not Experiment.objects.exists()

    def test_a_file_that_is_not_there(self, tell: Tell, tmp_path: Path) -> None:
        code, _, complaint = tell("submit", tmp_path / "no.yaml")
        assert code == 2
        assert "no.yaml can't be read: No such file" in complaint


class TestWatch:
    def test_a_finished_one_is_told_with_its_table_and_its_code(self, tell: Tell, run: sample.Run) -> None:
        code, said, told = tell("watch", run.experiment.pk, "--expect", "any")
        assert code == 0, said
        assert "processed on xeon" in told
        assert re.search(r"^count/c1/ctx0/t0 +draft-3 +\d\.\d\d× +\d\.\d\d–\d\.\d\d +3 ", said, re.MULTILINE)
        assert re.search(r"^holds: expected any, draft-3 at count/c1/ctx0/t0: \w+", said, re.MULTILINE)
        assert said.rstrip().endswith(f"/experiments/{run.experiment.pk}/")

    def test_the_code_follows_the_verdict(self, tell: Tell, run: sample.Run) -> None:
        code, said, _ = tell("watch", run.experiment.pk, "--expect", "draft-3=keep", "--json")
        told = json.loads(said)
        (arm,) = [c for c in told["comparisons"] if c["arm"] == "draft-3"]
        by_word = {"keep": 0, "shorten": 10, "disable": 10, "inconclusive": 11, "invalid": 12, "not engaged": 12}
        assert code == told["gate"]["exit_code"] == by_word[arm["verdict"]["word"]]
        (finding,) = told["gate"]["findings"]
        assert (finding["arm"], finding["expected"], finding["exit_code"]) == ("draft-3", "draft-3=keep", code)

    def test_a_cancelled_one_is_not_measured(self, tell: Tell, ready: sample.People, file: Path) -> None:
        made = tell("submit", file)[1].splitlines()[0]
        assert tell("cancel", made)[:2] == (0, "any host · cancelled · owner asked for it\n") or "cancelled" in tell("show", made)[1]
        code, said, _ = tell("watch", made)
        assert code == 13
        assert "not measured: expected measured: the job was cancelled" in said

    def test_the_time_that_was_given_is_kept_to(
        self, tell: Tell, ready: sample.People, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("specclient.following.time.sleep", lambda s: None)
        code, said, told = tell("submit", file, "--watch", "--timeout", "0.2s")
        assert (code, said) == (14, "")
        assert "the experiment goes on" in told
        assert f"specweb watch {Experiment.objects.get().pk}" in told
        assert Experiment.objects.get().jobs.get().state in ("waiting", "queued")


class TestReading:
    def test_lists_and_what_programs_get_of_them(self, tell: Tell, run: sample.Run, client: Client) -> None:
        code, said, _ = tell("list", "--q", "demo")
        assert (code, str(run.experiment.pk) in said) == (0, True)
        for command, path, name in (
            (("list",), "experiments/", "experiments"),
            (("compare",), "compare/", "rows"),
            (("hosts",), "hosts/", "hosts"),
            (("workloads", "list"), "workloads/", "workloads"),
            (("reported", "list"), "reported/", "reports"),
        ):
            code, said, _ = tell(*command, "--json")
            assert (code, json.loads(said)[name]) == (0, client.get(path)[name]), command
        code, said, _ = tell("show", run.experiment.pk, "--json")
        assert json.loads(said) == client.get(f"experiments/{run.experiment.pk}")

    def test_show_tells_jobs_verdicts_and_the_page(self, tell: Tell, run: sample.Run) -> None:
        for name in (run.experiment.pk, f"http://127.0.0.1:8000/experiments/{run.experiment.pk}/?x=1"):
            code, said, _ = tell("show", name)
            assert code == 0
            assert run.experiment.question in said
            assert f"job {run.job.pk}: xeon · processed" in said
            assert re.search(r"^\w+: draft-3 at count/c1/ctx0/t0: .*the baseline's speed", said, re.MULTILINE)

    def test_compare_filters_as_the_page_does(self, tell: Tell, run: sample.Run) -> None:
        code, said, _ = tell("compare", "--mode", "draft")
        assert code == 0
        assert "CPU · Intel Xeon" in said
        assert tell("compare", "--mode", "mtp")[:2] == (0, "")
        code, _, complaint = tell("compare", "--concurrency", "0")
        assert (code, "no whole number" in complaint) == (2, True)

    def test_hosts_workloads_and_open(self, tell: Tell, run: sample.Run) -> None:
        said = tell("hosts")[1]
        assert re.search(r"^xeon +ours +\w+ +CPU · Intel Xeon.* llama-server .*demo-target, demo-draft", said, re.MULTILINE)
        assert re.search(r"^count@\d+ .*built in +everybody$", tell("workloads", "list")[1], re.MULTILINE)
        assert tell("open", run.experiment.pk)[:2] == (0, f"http://127.0.0.1:8000/experiments/{run.experiment.pk}/\n")

    def test_what_is_not_there_or_another_s(self, tell: Tell, people: sample.People) -> None:
        sample.host_with_inventory(people.other, "theirs")
        foreign = sample.submitted(people.other, people.stranger, sample.spec(**SMALL))
        told = [tell("show", name) for name in (foreign.pk, "0198f3c2-7d1e-7000-8000-3f2a91c4b5d6")]
        assert told[0] == told[1]
        assert told[0][0] == 2
        assert tell("show", "nothing")[0] == 2
        code, said, _ = tell("show", foreign.pk, "--json")
        assert (code, json.loads(said)["error"]["code"]) == (2, "not_found")

    def test_names_cannot_steer_a_terminal(self, tell: Tell, ready: sample.People) -> None:
        made = sample.submitted(ready.team, ready.owner, sample.spec(**SMALL))
        Experiment.objects.filter(pk=made.pk).update(name="\x1b[2J\u202eevil\x07 name", question="two\nlines\u009b31m")
        for command in (("list",), ("show", made.pk), ("list", "--json")):
            said = tell(*command)[1]
            assert not re.search(r"[\x1b\x07\u009b\u202e]", said), command
        assert json.loads(tell("show", made.pk, "--json")[1])["name"] == "\x1b[2J\u202eevil\x07 name"


class TestDocuments:
    def test_a_job_is_asked_again_elsewhere(self, tell: Tell, run: sample.Run, tmp_path: Path) -> None:
        code, said, _ = tell("reproduce", run.experiment.pk)
        assert (code, "b" * 64 in said, "count@" in said) == (0, True, True)
        assert tell("reproduce", run.job.pk, "-o", tmp_path / "again.yaml")[0] == 0
        assert (tmp_path / "again.yaml").read_text() == said
        code, told, complaint = tell("reproduce", run.experiment.pk, "--on", "xeon")
        assert code == 0, complaint
        made = Experiment.objects.get(pk=told.splitlines()[0])
        assert made.name.endswith("(reproduced)")
        assert made.parsed_spec.placement.hosts == ["xeon"]
        code, _, complaint = tell("reproduce", run.experiment.pk, "--on", "nowhere")
        assert code == 2
        assert "this team has no host" in complaint

    def test_a_report_is_that_of_the_page(self, tell: Tell, run: sample.Run, tmp_path: Path) -> None:
        code, said, _ = tell("report", run.experiment.pk)
        assert (code, said.startswith("## Demo pair\n")) == (0, True)
        assert tell("report", run.experiment.pk, "-o", tmp_path / "r.md")[:2] == (0, "")
        assert (tmp_path / "r.md").read_text() == said
        assert list(tmp_path.glob(".r.md-*")) == []
        assert tell("report", run.experiment.pk, "-o", tmp_path / "no" / "r.md")[0] == 2

    def test_prompts_become_a_workload_once(self, tell: Tell, people: sample.People, tmp_path: Path) -> None:
        prompts = tmp_path / "sea.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": f"Write {n} lines about the sea."}) + "\n" for n in range(12)))
        code, said, told = tell("workloads", "push", prompts)
        assert code == 0, told
        assert said.startswith("sea@1: 9 prompts, yours alone\n")
        assert "note: No line says" in told
        assert tell("workloads", "push", prompts)[1] == said
        assert Workload.objects.get(name="sea").private
        prompts.write_text('{"prompt": 3}\n{"prompt"')
        code, _, complaint = tell("workloads", "push", prompts)
        assert (code, "line 1" in complaint, "line 2" in complaint) == (2, True, True)

    def test_other_tools_results_are_reported(self, tell: Tell, people: sample.People, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text("card,baseline,with,acceptance\nRTX 3090,24.1,45.2*,0.56-0.94\n")
        (tmp_path / "m.json").write_text('{"columns": {"card": {"as": "hardware"}, "acceptance": {"as": "number", "unit": "share"}}}')
        line = ("reported", "push", tmp_path / "t.csv", "--mapping", tmp_path / "m.json")
        code, said, _ = tell(*line, "--public-table", "--source-url", "https://example.org/t")
        assert (code, said.splitlines()[0]) == (0, "t.csv: 1 runs of table, reported, not verified")
        assert Report.objects.get().source_url == "https://example.org/t"
        assert "t.csv" in tell("reported", "list")[1]
        (tmp_path / "t.csv").write_text("card,baseline\nRTX 3090,NaN\n")
        code, _, complaint = tell(*line)
        assert (code, "fault" in complaint) == (2, True)

    def test_tables_and_an_archive_are_written(self, tell: Tell, run: sample.Run, tmp_path: Path) -> None:
        code, said, complaint = tell("export", "comparisons", "--where", "mode=draft")
        assert code == 0, complaint
        rows = list(csv.DictReader(io.StringIO(said)))
        assert {r["arm"] for r in rows} == {"draft-3"}
        assert tell("export", "comparisons", "-o", tmp_path / "c.json")[0] == 0
        assert len(json.loads((tmp_path / "c.json").read_text())) >= len(rows)
        code, _, complaint = tell("export", "comparisons", "--where", "colour=red")
        assert (code, "colour" in complaint) == (2, True)
        code, _, told = tell("export", run.experiment.pk, "-o", tmp_path / "e.zip")
        assert code == 0, told
        assert zipfile.ZipFile(tmp_path / "e.zip").testzip() is None
        assert tell("export", "nothing")[0] == 2

    def test_an_archive_goes_to_another_service_and_tells_whether_its_numbers_hold(
        self, tell: Tell, run: sample.Run, tmp_path: Path, client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        archive = tmp_path / "e.zip"
        assert tell("export", run.experiment.pk, "-o", archive)[0] == 0
        settings.SPECWEB_EVIDENCE_DIR = tmp_path / "second"
        there = another_server()
        client._http._http.headers["Authorization"] = f"Bearer {create_token(there.owner, 'there')[1]}"
        at_work = lambda s: compute_numbers(Experiment.objects.get(), timezone.now())  # noqa: E731  what a worker does meanwhile
        monkeypatch.setattr(cli_files.time, "sleep", at_work)
        code, said, told = tell("import", archive)
        assert code == 0, said + told
        assert told == f"imported: {run.experiment.pk}\n"
        assert said.startswith("the numbers computed here are those of the archive\n")
        assert tell("import", archive)[2] == f"was imported before: {run.experiment.pk}\n"
        (tmp_path / "no.zip").write_text("nothing of the kind")
        code, said, complaint = tell("import", tmp_path / "no.zip")
        assert (code, said) == (2, ""), complaint
        assert complaint.startswith("error: ")
        assert tell("import", tmp_path / "gone.zip")[0] == 2


class TestWhoAsks:
    """With tokens of their own, read from the environment as a program has them."""

    @pytest.fixture
    def called(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
        """The command with the real configuration; only the road to the server is the test's."""
        real = Client.__init__

        def carried(self: Client, url: str, token: str, **options: Any) -> None:
            real(self, url, token, transport=Carrier(), sleep=lambda s: None)

        monkeypatch.setattr(cli_base.Client, "__init__", carried)

        def call(*line: object, token: str = "", stdin: str = "") -> tuple[int, str, str]:
            for name, value in (("SPECWEB_URL", "http://127.0.0.1:8000"), ("SPECWEB_TOKEN", token)):
                monkeypatch.setenv(name, value) if token else monkeypatch.delenv(name, raising=False)
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            code = main(list(map(str, line)))
            said = capsys.readouterr()
            return code, said.out, said.err

        return call

    def test_login_keeps_a_token_that_works_for_its_owner_alone(self, called: Any, people: sample.People) -> None:
        secret = create_token(people.owner, "laptop", scopes=["read"])[1]
        code, said, told = called("login", "http://127.0.0.1:8000/", stdin=f"{secret}\n")
        assert code == 0, told
        assert said.splitlines()[0] == "logged in at http://127.0.0.1:8000 as owner: ours (maintainer)"
        assert said.splitlines()[1].startswith("token laptop: read, until ")
        assert config_path().stat().st_mode & 0o777 == 0o600
        assert secret not in said + told
        assert called("hosts")[0] == 0
        assert called("logout")[0] == 0
        code, _, complaint = called("hosts")
        assert (code, "specweb login ADDRESS" in complaint) == (2, True)

    def test_a_token_that_does_not_work_is_not_kept(self, called: Any, people: sample.People) -> None:
        code, _, complaint = called("login", "http://127.0.0.1:8000", stdin="sw_nonsense\n")
        assert (code, "the token is unknown here" in complaint) == (3, True)
        assert not config_path().exists()

    def test_unknown_expired_and_small_tokens_say_what_to_do(self, called: Any, ready: sample.People, file: Path) -> None:
        expired = create_token(ready.owner, "old", life=timedelta(seconds=0.001))[1]
        for token, words in (("sw_nonsense", "unknown"), (expired, "expired")):
            code, said, complaint = called("hosts", token=token)
            assert (code, said) == (3, "")
            assert words in complaint
            assert "/account/" in complaint
        reader = create_token(ready.owner, "reader", scopes=["read"])[1]
        code, _, complaint = called("submit", file, token=reader)
        assert code == 3
        assert "this needs the scope submit" in complaint
        viewer = create_token(ready.mate, "viewer")[1]
        code, _, complaint = called("submit", file, "--team", "ours", token=viewer)
        assert (code, "role" in complaint) == (3, True)
        assert not Experiment.objects.exists()

    def test_profiles_stand_beside_each_other(self, called: Any, people: sample.People) -> None:
        for user, name in ((people.owner, "one"), (people.stranger, "two")):
            code, *told = called("login", "http://127.0.0.1:8000", "--profile", name, stdin=create_token(user, name)[1])
            assert code == 0, told
        assert set(read_profiles(config_path())) == {"one", "two"}
        sample.host_with_inventory(people.other, "theirs")
        assert "theirs" not in called("hosts", "--profile", "one")[1]
        assert "theirs" in called("hosts", "--profile", "two")[1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(tell: Tell, shell: str) -> None:
    code, said, _ = tell("completion", shell)
    assert code == 0
    actions = next(
        a for a in parser()._actions if a.dest == "==SUPPRESS==" or (getattr(a, "choices", None) and "submit" in (a.choices or {}))
    )
    for name in actions.choices or {}:
        assert name in said
    assert "--expect" in said

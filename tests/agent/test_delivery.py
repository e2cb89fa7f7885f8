"""From a finished attempt to the server's word that it has it: spool, client, sinks; the network is replaced, nothing else."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from specagent import connection
from specagent.attempt_files import AttemptDone
from specagent.client import Client, Refused, Unreachable
from specagent.sinks import Delivery, ServerSink, deliver_waiting
from specagent.spool import Spool, decompressed
from speccore.errors import HostError, ServerError
from speccore.protocol import AttemptReport, PollRequest
from speccore.workload import Workload

from tests.agent.fake_server import FakeServer, refusal


@pytest.fixture
def done(job: Callable) -> AttemptDone:
    """A real attempt, as it stands in its work folder when it has ended."""
    ran = job()
    kept: list[AttemptDone] = []

    def take(done: AttemptDone) -> None:
        kept.append(done)
        ran.stop.set()

    ran.sink.attempt = take
    ran.run()
    return kept[0]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


@pytest.fixture
def client(fake_server: FakeServer) -> Client:
    return make_client(fake_server)


def make_client(server: FakeServer, token: str = "agent-token") -> Client:
    return Client("https://specweb.test", token, transport=server.transport, sleep=lambda seconds: None)


def raw(done: AttemptDone) -> dict[str, bytes]:
    return {ref.sha256: (done.folder / ref.name).read_bytes() for ref in done.report.evidence}


def broken_network(request: httpx.Request) -> None:
    raise httpx.ConnectError("no route to host", request=request)


def test_a_spooled_attempt_holds_every_byte_and_frees_its_work_folder(spool: Spool, done: AttemptDone) -> None:
    files = raw(done)
    spooled = spool.store(done, "secret")
    assert not done.folder.exists()
    assert {ref.sha256: decompressed(spooled.blob(ref)) for ref in spooled.report.evidence} == files
    assert (spool.waiting()[0].report, spool.waiting()[0].lease_token) == (done.report, "secret")
    assert 0 < spool.n_bytes() < sum(len(data) for data in files.values())


def test_another_agent_process_finds_what_waits(tmp_path: Path, done: AttemptDone) -> None:
    Spool(tmp_path / "s").store(done, "secret")
    assert [w.report.attempt_id for w in Spool(tmp_path / "s").waiting()] == [done.report.attempt_id]


def test_the_lease_token_is_for_the_owner_only(spool: Spool, done: AttemptDone) -> None:
    spooled = spool.store(done, "secret")
    assert spooled.folder.stat().st_mode & 0o077 == 0


def test_a_disk_that_fails_while_spooling_loses_nothing(spool: Spool, done: AttemptDone, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="No space"):
        spool.store(done, "secret")
    monkeypatch.undo()
    assert (done.folder / "records.jsonl").exists()
    assert spool.waiting() == []


def test_unfinished_work_is_put_aside_and_kept(spool: Spool) -> None:
    (spool.work / "half").mkdir()
    (spool.work / "half" / "server.log").write_text("x")
    (moved,) = spool.put_unfinished_aside()
    assert (moved / "server.log").read_text() == "x"
    assert list(spool.work.iterdir()) == []
    assert spool.waiting() == []


def test_unfinished_work_does_not_pile_up(spool: Spool, tmp_path: Path) -> None:
    for i in range(30):
        (spool.work / f"half-{i:02}").mkdir()
        os.utime(spool.work / f"half-{i:02}", (i, i))
        spool.put_unfinished_aside()
    assert [f.name for f in sorted((tmp_path / "spool" / "unfinished").iterdir())] == [f"half-{i}" for i in range(10, 30)]


def test_attempts_are_counted_over_restarts(tmp_path: Path) -> None:
    assert [Spool(tmp_path).next_attempt("j", "b1-off") for _ in range(2)] == [1, 2]
    assert Spool(tmp_path).next_attempt("j", "b1-other") == 1
    assert Spool(tmp_path).next_attempt("k", "b1-off") == 1


def test_delivery_sends_each_blob_once_then_the_report(spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client) -> None:
    files = raw(done)
    spool.store(done, "secret")
    assert deliver_waiting(spool, client) == 1
    assert fake_server.blobs == files
    assert fake_server.reports == {done.report.attempt_id: done.report}
    assert spool.waiting() == []
    assert sum(method == "PUT" for method, _ in fake_server.requests) == len(files)
    assert fake_server.requests[-1][1].endswith("/report")


def test_blobs_that_are_there_are_not_sent_again(spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client) -> None:
    fake_server.blobs = raw(done)
    spool.store(done, "secret")
    deliver_waiting(spool, client)
    assert not any(method == "PUT" for method, _ in fake_server.requests)
    assert len(fake_server.reports) == 1


def test_a_network_that_breaks_for_a_moment_is_tried_again(
    spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client
) -> None:
    n = 0

    def flaky(request: httpx.Request) -> None:
        nonlocal n
        n += 1
        if n % 2:
            broken_network(request)

    fake_server.faults.append(flaky)
    spool.store(done, "secret")
    assert deliver_waiting(spool, client) == 1
    assert len(fake_server.reports) == 1


def test_a_network_that_stays_broken_keeps_all_in_the_spool(
    spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client
) -> None:
    fake_server.faults.append(broken_network)
    spool.store(done, "secret")
    with pytest.raises(Unreachable, match="no route"):
        deliver_waiting(spool, client)
    assert len(spool.waiting()) == 1
    fake_server.faults.clear()
    assert deliver_waiting(spool, client) == 1


def test_a_reply_that_was_lost_makes_no_second_attempt(spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client) -> None:
    def lose_first_reply(request: httpx.Request) -> None:
        if request.url.path.endswith("/report") and not fake_server.reports:
            fake_server._attempts(request, done.report.attempt_id, "report")
            raise httpx.ReadError("connection reset", request=request)

    fake_server.faults.append(lose_first_reply)
    spool.store(done, "secret")
    assert deliver_waiting(spool, client) == 1
    assert list(fake_server.reports) == [done.report.attempt_id]


def test_bytes_damaged_on_the_way_are_sent_again(spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client) -> None:
    damaged: list[str] = []

    def damage(request: httpx.Request) -> httpx.Response | None:
        if request.method == "PUT" and not damaged:
            damaged.append(request.url.path)
            return refusal(422, "hash_mismatch")
        return None

    fake_server.faults.append(damage)
    spool.store(done, "secret")
    assert deliver_waiting(spool, client) == 1
    assert len(damaged) == 1


def test_bytes_damaged_on_this_disk_are_not_sent_for_ever(
    spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client, tmp_path: Path
) -> None:
    spooled = spool.store(done, "secret")
    first, second = (spooled.blob(ref) for ref in spooled.report.evidence[:2])
    first.write_bytes(second.read_bytes())
    assert deliver_waiting(spool, client) == 0
    assert fake_server.reports == {}
    (kept,) = (tmp_path / "spool" / "refused").iterdir()
    assert (kept / "reason.txt").read_text().startswith("hash_mismatch")


def test_a_blob_lost_between_upload_and_report_is_sent_then(
    spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client
) -> None:
    lost: list[str] = []

    def lose(request: httpx.Request) -> None:
        if request.url.path.endswith("/report") and not lost:
            lost.append(fake_server.blobs.popitem()[0])

    fake_server.faults.append(lose)
    files = raw(done)
    spool.store(done, "secret")
    assert deliver_waiting(spool, client) == 1
    assert fake_server.blobs == files


def test_what_the_server_will_never_take_is_kept_and_not_in_the_way(
    spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client, tmp_path: Path
) -> None:
    fake_server.faults.append(
        lambda r: refusal(403, "not_allowed", "the job is another host's") if r.url.path.endswith("/report") else None
    )
    spool.store(done, "secret")
    assert deliver_waiting(spool, client) == 0
    assert spool.waiting() == []
    (kept,) = (tmp_path / "spool" / "refused").iterdir()
    assert "another host's" in (kept / "reason.txt").read_text()
    assert (kept / "report.json").exists()


def test_what_clashed_with_another_request_is_sent_again(spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client) -> None:
    error = {"code": "conflict", "message": "another request was first", "blame": "server", "retry": True}
    fake_server.faults.append(lambda r: httpx.Response(409, json={"error": error}) if r.url.path.endswith("/report") else None)
    spool.store(done, "secret")
    with pytest.raises(Refused):
        deliver_waiting(spool, client)
    assert len(spool.waiting()) == 1
    fake_server.faults.clear()
    assert deliver_waiting(spool, client) == 1


def test_an_agent_killed_while_it_clears_a_delivered_attempt_away_leaves_nothing_for_ever(
    spool: Spool, done: AttemptDone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(folder: Path) -> None:
        (folder / "report.json").unlink()
        raise KeyboardInterrupt

    spooled = spool.store(done, "secret")
    with monkeypatch.context() as patched:
        patched.setattr("specagent.spool.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            spool.remove(spooled)
    again = Spool(tmp_path / "spool")
    again.put_unfinished_aside()
    assert (again.waiting(), again.n_bytes()) == ([], 0)


def test_a_server_that_is_down_does_not_end_the_job(spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client) -> None:
    fake_server.faults.append(lambda r: httpx.Response(502, text="<html>bad gateway</html>"))
    sink = ServerSink(spool, Delivery(spool, client), done.report.job_id, "secret", threading.Event())
    sink.attempt(done)
    assert len(spool.waiting()) == 1
    fake_server.faults.clear()
    assert sink.finish()
    assert spool.waiting() == []


def test_a_stop_does_not_wait_for_a_server_that_is_down(spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client) -> None:
    fake_server.faults.append(broken_network)
    spool.store(done, "secret")
    stop = threading.Event()
    stop.set()
    assert not ServerSink(spool, Delivery(spool, client), done.report.job_id, "secret", stop).finish()
    assert len(spool.waiting()) == 1


def test_enrolment(fake_server: FakeServer) -> None:
    reply = make_client(fake_server, token="").enrol("good-code", "box")
    assert (reply.agent_token, reply.host_name) == ("agent-token", "box")
    with pytest.raises(Refused, match="not known") as caught:
        make_client(fake_server, token="").enrol("bad", "box")
    assert caught.value.status == 403


def test_refusals_keep_the_servers_own_words(fake_server: FakeServer) -> None:
    with pytest.raises(Refused, match="unknown token") as caught:
        make_client(fake_server, token="old").poll(PollRequest(inventory_hash="x"))
    assert caught.value.is_final_for_agent
    assert caught.value.body().code == "not_authenticated"


@pytest.mark.parametrize("text", ["<html>login</html>", "[]", '{"protocol": "x"}'])
def test_an_answer_that_is_no_protocol_is_an_error_in_words(fake_server: FakeServer, client: Client, text: str) -> None:
    fake_server.faults.append(lambda r: httpx.Response(200, text=text))
    with pytest.raises(ServerError, match="no protocol v1"):
        client.poll(PollRequest(inventory_hash="x"))


def test_unknown_fields_of_a_newer_server_are_ignored(fake_server: FakeServer, client: Client) -> None:
    fake_server.faults.append(lambda r: httpx.Response(200, json={"protocol": 1, "poll_after_s": 3, "news": {"a": 1}}))
    assert client.poll(PollRequest(inventory_hash="x")).poll_after_s == 3


def test_a_workload_that_is_another_one_is_refused(fake_server: FakeServer, client: Client, workload: Workload) -> None:
    assert client.workload(workload.content_hash(), "j", "t") == workload
    changed = workload.model_copy(update={"title": "other"})
    fake_server.workloads[workload.content_hash()] = changed
    with pytest.raises(ServerError, match="another workload"):
        client.workload(workload.content_hash(), "j", "t")


def test_a_report_is_what_the_contract_says(done: AttemptDone) -> None:
    again = AttemptReport.model_validate(json.loads(done.report.model_dump_json()))
    assert again == done.report


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(connection, "PART_BYTES", 64)
    return 64


def ranges(fake_server: FakeServer) -> list[str]:
    """Every Content-Range that is sent from now on."""
    seen: list[str] = []
    fake_server.faults.append(lambda r: seen.append(r.headers["Content-Range"]) if "Content-Range" in r.headers else None)
    return seen


def test_a_large_file_goes_in_parts(spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client, small_parts: int) -> None:
    files, sent = raw(done), ranges(fake_server)
    spooled = spool.store(done, "secret")
    sizes = [spooled.blob(ref).stat().st_size for ref in spooled.report.evidence]
    assert deliver_waiting(spool, client) == 1
    assert fake_server.blobs == files
    assert len(sent) == sum(-(-size // small_parts) for size in sizes if size > small_parts)


def test_a_killed_agent_goes_on_with_its_upload(
    spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client, small_parts: int
) -> None:
    """What the first agent sent before it was killed is not sent again by the next."""
    files, sent = raw(done), ranges(fake_server)
    spooled = spool.store(done, "secret")
    largest = max(spooled.report.evidence, key=lambda ref: spooled.blob(ref).stat().st_size)
    encoded = spooled.blob(largest).read_bytes()
    n_there = len(encoded) // 2 // small_parts * small_parts
    assert n_there > small_parts
    fake_server.partials[largest.sha256] = encoded[:n_there]
    assert deliver_waiting(spool, client) == 1
    assert fake_server.blobs == files
    assert f"bytes {n_there}-{n_there + small_parts - 1}/{len(encoded)}" in sent
    assert not any(r.startswith("bytes 0-") and r.endswith(f"/{len(encoded)}") for r in sent)


def test_a_part_whose_reply_was_lost_is_not_added_twice(
    spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client, small_parts: int
) -> None:
    files = raw(done)
    lost: list[str] = []

    def lose_one_reply(request: httpx.Request) -> None:
        if request.headers.get("Content-Range", "").startswith("bytes 64-") and not lost:
            lost.append(request.url.path)
            fake_server._blobs(request, request.url.path.rsplit("/", 1)[1])
            raise httpx.ReadError("connection reset", request=request)

    fake_server.faults.append(lose_one_reply)
    spool.store(done, "secret")
    assert deliver_waiting(spool, client) == 1
    assert lost
    assert fake_server.blobs == files


def test_parts_that_came_to_another_file_are_sent_anew(
    spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client, small_parts: int
) -> None:
    files = raw(done)
    spooled = spool.store(done, "secret")
    for ref in spooled.report.evidence:
        if spooled.blob(ref).stat().st_size > small_parts:
            fake_server.partials[ref.sha256] = b"x" * small_parts
    # one that is longer than what there is to send can't be gone on with at all
    fake_server.partials[spooled.report.evidence[0].sha256] = b"x" * 10_000_000
    assert deliver_waiting(spool, client) == 1
    assert fake_server.blobs == files


def test_the_order_of_delivery_follows_no_clock(spool: Spool, done: AttemptDone, tmp_path: Path) -> None:
    for i, day in enumerate((5, 1, 9)):
        folder = tmp_path / f"copy-{i}"
        shutil.copytree(done.folder, folder)
        report = done.report.model_copy(update={"attempt_id": f"a{i}", "ended_at": done.report.ended_at.replace(day=day)})
        spool.store(AttemptDone(report, folder), "secret")
    assert [w.report.attempt_id for w in spool.waiting()] == ["a0", "a1", "a2"]


def test_a_stop_leaves_a_server_that_hangs(spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client) -> None:
    hangs, stop = threading.Event(), threading.Event()
    fake_server.faults.append(lambda r: refusal(503, "busy") if hangs.wait(20) else None)
    spool.store(done, "secret")
    sink = ServerSink(spool, Delivery(spool, client), done.report.job_id, "secret", stop)
    threading.Timer(0.2, stop.set).start()
    began = time.monotonic()
    assert not sink.finish()
    assert time.monotonic() - began < 15  # it hangs for 20
    hangs.set()


def test_a_server_that_is_away_costs_no_time_between_trials(
    spool: Spool, done: AttemptDone, fake_server: FakeServer, client: Client
) -> None:
    sink = ServerSink(spool, Delivery(spool, client), done.report.job_id, "secret", threading.Event(), lambda: True)
    sink.attempt(done)
    assert fake_server.requests == []
    assert len(spool.waiting()) == 1


def test_a_spooled_file_that_was_damaged_is_put_aside_and_keeps_nothing_up(
    spool: Spool, client: Client, fake_server: FakeServer, done: AttemptDone
) -> None:
    spooled = spool.store(done, "secret")
    spooled.blob(spooled.report.evidence[0]).write_bytes(b"no zstd")
    fake_server.faults.append(lambda r: refusal(422, "hash_mismatch") if r.method == "PUT" and r.content == b"no zstd" else None)
    assert Delivery(spool, client).run(threading.Event(), 10)
    assert spool.waiting() == []
    assert [f.name for f in (spool.work.parent / "refused").iterdir()] == [spooled.folder.name]


def test_a_report_that_cannot_be_read_keeps_no_other_from_delivery(
    spool: Spool, client: Client, fake_server: FakeServer, done: AttemptDone
) -> None:
    spooled = spool.store(done, "secret")
    damaged = spooled.folder.with_name("00000000-damaged")
    shutil.copytree(spooled.folder, damaged)
    (damaged / "report.json").write_text('{"attempt_id": 5')
    assert Delivery(spool, client).run(threading.Event(), 10)
    assert list(fake_server.reports) == [done.report.attempt_id]
    assert [f.name for f in (spool.work.parent / "refused").iterdir()] == [damaged.name]


def test_a_fault_in_the_sending_thread_is_told(spool: Spool, client: Client, done: AttemptDone, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.store(done, "secret")

    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(client, "blob_offset", broken)
    with pytest.raises(HostError, match="RuntimeError: a fault"):
        Delivery(spool, client).run(threading.Event(), 10)
    assert len(spool.waiting()) == 1


def test_a_body_that_was_cut_short_is_sent_again(spool: Spool, client: Client, fake_server: FakeServer, done: AttemptDone) -> None:
    spool.store(done, "secret")
    cut = [True]
    fake_server.faults.append(lambda r: refusal(400, "bad_range") if r.method == "PUT" and cut and cut.pop() else None)
    assert deliver_waiting(spool, client) == 1


def test_a_refused_token_is_told_in_words_where_the_answer_has_none(fake_server: FakeServer, spool: Spool, done: AttemptDone) -> None:
    spool.store(done, "secret")
    fake_server.faults.append(lambda request: httpx.Response(401))  # to HEAD no server may say more
    with pytest.raises(Refused) as caught:
        deliver_waiting(spool, make_client(fake_server))
    assert caught.value.is_final_for_agent
    assert "token" in caught.value.message
    assert "enrol again" in caught.value.remedy_text

"""Files in parts: gone on with after a cut, checked as a whole, apart for each host, swept when forgotten."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard
from django.conf import settings
from django.db import connection
from specagent.client import Client as AgentClient
from specagent.client import Unreachable
from speccore.protocol import JobOffer

from specweb.experiments.models import Host
from specweb.experiments.services.hosts import create_host
from specweb.experiments.services.submission import submit
from specweb.results import partials
from specweb.results.models import Blob
from specweb.results.partials import PART_BYTES, BadRange, Part, WrongOffset, offset_of, receive_part, sweep_incoming
from tests.worlds import Agent, World, dispatch, make_world, report, spec

CONTENT = random.Random(1).randbytes(50_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
BODY = zstandard.ZstdCompressor().compress(CONTENT)
STEP = 20_000
PARTS = [(first, min(first + STEP, len(BODY)) - 1) for first in range(0, len(BODY), STEP)]


def claimed(world: World) -> JobOffer:
    world.agent.poll()
    world.agent.send_inventory()
    submit(spec(), world.team, world.owner)
    dispatch()
    return world.agent.offer()


@pytest.fixture
def offer(world: World) -> JobOffer:
    return claimed(world)


def put(
    agent: Agent, lease: str, first: int, last: int, *, total: int = len(BODY), sha256: str = DIGEST, body: bytes = BODY, **more: Any
) -> Any:
    headers = agent.headers(lease) | {"Content-Encoding": "zstd", "Content-Range": f"bytes {first}-{last}/{total}"} | more
    content = body[first : last + 1]
    return agent.client.put(f"/agent/v1/blobs/{sha256}", content, content_type="application/octet-stream", headers=headers)


def code(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


def incoming() -> list[Path]:
    root = Path(settings.SPECWEB_EVIDENCE_DIR) / "incoming"
    return [p for p in root.rglob("*") if p.is_file()]


def test_part_by_part(world: World, offer: JobOffer) -> None:
    assert len(PARTS) == 3
    for first, last in PARTS[:-1]:
        reply = put(world.agent, offer.lease_token, first, last)
        assert (reply.status_code, reply.headers["Upload-Offset"]) == (202, str(last + 1))
        asked = world.agent.head(DIGEST, offer.lease_token)
        assert (asked.status_code, asked.headers["Upload-Offset"]) == (404, str(last + 1))
    assert put(world.agent, offer.lease_token, *PARTS[-1]).status_code == 201
    assert world.agent.head(DIGEST, offer.lease_token).status_code == 200
    assert Blob.objects.get().bytes == len(CONTENT)
    assert incoming() == []
    assert world.agent.report(report(offer, offer.plan.trials[0].id, {"server.log": CONTENT}), offer.lease_token).json()["counted"]


def test_one_part_may_be_the_whole_file(world: World, offer: JobOffer) -> None:
    assert put(world.agent, offer.lease_token, 0, len(BODY) - 1).status_code == 201


def test_a_part_that_comes_out_of_turn_names_where_to_go_on(world: World, offer: JobOffer) -> None:
    for first, last, there in ((STEP, 2 * STEP - 1, 0), (0, STEP - 1, None), (0, STEP - 1, STEP), (2 * STEP, len(BODY) - 1, STEP)):
        reply = put(world.agent, offer.lease_token, first, last)
        if there is None:
            assert reply.status_code == 202
            continue
        assert code(reply) == (409, "wrong_offset")
        assert reply.json()["error"]["details"]["offset"] == there
    assert "Upload-Offset" in world.agent.head(DIGEST, offer.lease_token).headers
    assert "Upload-Offset" not in world.agent.head("0" * 64, offer.lease_token).headers


def test_goes_on_under_the_next_lease(world: World, offer: JobOffer) -> None:
    put(world.agent, offer.lease_token, *PARTS[0])
    renewed = world.agent.offer()
    assert world.agent.head(DIGEST, renewed.lease_token).headers["Upload-Offset"] == str(STEP)
    assert [put(world.agent, renewed.lease_token, *p).status_code for p in PARTS[1:]] == [202, 201]


def test_a_whole_file_ends_what_was_begun_in_parts(world: World, offer: JobOffer) -> None:
    put(world.agent, offer.lease_token, *PARTS[0])
    assert world.agent.put(CONTENT, offer.lease_token).status_code == 201
    assert incoming() == []


def test_another_hash_drops_all_parts(world: World, offer: JobOffer) -> None:
    wrong = "0" * 64
    for p in PARTS[:-1]:
        assert put(world.agent, offer.lease_token, *p, sha256=wrong).status_code == 202
    assert code(put(world.agent, offer.lease_token, *PARTS[-1], sha256=wrong)) == (422, "hash_mismatch")
    assert incoming() == []
    assert "Upload-Offset" not in world.agent.head(wrong, offer.lease_token).headers


def test_a_file_that_is_there_already_is_not_sent_again(world: World, offer: JobOffer) -> None:
    world.agent.put(CONTENT, offer.lease_token)
    assert put(world.agent, offer.lease_token, *PARTS[1]).status_code == 200
    assert incoming() == []


@pytest.mark.parametrize(
    "given", ["bytes 0-9", "bytes */10", "bytes 5-4/10", "bytes 0-10/10", "bytes 0-9/20", "items 0-9/10", "bytes -1-9/10"]
)
def test_ranges_that_cannot_be(world: World, offer: JobOffer, given: str) -> None:
    sent = put(world.agent, offer.lease_token, 0, 4, **{"Content-Range": given})
    assert code(sent) == (400, "bad_range")
    assert incoming() == []


def test_sizes_are_limited(world: World, offer: JobOffer, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SPECWEB_MAX_BLOB_BYTES = 40_000
    assert code(put(world.agent, offer.lease_token, *PARTS[0])) == (413, "blob_too_large")  # by what it says that it will be
    assert code(put(world.agent, offer.lease_token, 0, len(BODY) - 1, total=39_000)) == (413, "blob_too_large")
    monkeypatch.setattr(partials, "PART_BYTES", 1000)
    assert code(put(world.agent, offer.lease_token, *PARTS[0], total=30_000)) == (413, "part_too_large")
    assert incoming() == []


def test_a_small_file_that_grows_without_end(world: World, offer: JobOffer, settings: Any) -> None:
    settings.SPECWEB_MAX_BLOB_BYTES = 1_000_000
    bomb = zstandard.ZstdCompressor().compress(bytes(50_000_000))
    half = len(bomb) // 2
    assert put(world.agent, offer.lease_token, 0, half - 1, total=len(bomb), body=bomb).status_code == 202
    assert code(put(world.agent, offer.lease_token, half, len(bomb) - 1, total=len(bomb), body=bomb)) == (413, "blob_too_large")
    assert incoming() == []


def test_parts_are_apart_for_each_host(world: World, offer: JobOffer) -> None:
    put(world.agent, offer.lease_token, *PARTS[0])
    mate, token = create_host(world.team, "mate")
    assert (offset_of(DIGEST, world.host), offset_of(DIGEST, mate)) == (STEP, 0)
    assert code(put(Agent(token), offer.lease_token, *PARTS[1])) == (403, "not_allowed")  # another host's lease
    assert code(put(world.agent, "", *PARTS[1])) == (403, "not_allowed")


@pytest.fixture
def host(world: World) -> Host:
    return world.host


def send(host: Host, first: int, last: int, body: Any = None) -> Any:
    source = body or io.BytesIO(BODY[first : last + 1])
    return receive_part(DIGEST, source, host, Part(first, last, len(BODY)), zstd=True, max_bytes=10**6)


def test_a_line_cut_within_a_part_leaves_what_was_there(host: Host) -> None:
    send(host, *PARTS[0])
    with pytest.raises(BadRange, match="ended after 100 of 20,000 bytes"):
        send(host, *PARTS[1], io.BytesIO(BODY[STEP : STEP + 100]))
    assert offset_of(DIGEST, host) == STEP
    assert len(incoming()) == 1


def test_no_room_for_the_last_part_leaves_the_others(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for p in PARTS[:-1]:
        send(host, *p)
    with monkeypatch.context() as full:

        def no_room(*args: Any, **kwargs: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        full.setattr(partials, "store_blob", no_room)  # as a service that is killed here
        with pytest.raises(OSError, match="No space"):
            send(host, *PARTS[-1])
    assert offset_of(DIGEST, host) == 2 * STEP
    assert isinstance(send(host, *PARTS[-1]), Blob)


def test_no_room_is_told_by_code(world: World, offer: JobOffer, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("specweb.api.blobs.receive_part", no_room)
    reply = put(world.agent, offer.lease_token, *PARTS[0])
    assert code(reply) == (507, "storage_full")
    assert reply.json()["error"]["retry"] is True


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("n_there", [0, 1, 2])
def test_of_many_at_once_one_part_counts(servers: None, n_there: int) -> None:
    host = make_world().host
    for p in PARTS[:n_there]:
        send(host, *p)
    gate, got, refused = threading.Barrier(8), [], []

    def one() -> None:
        try:
            gate.wait()
            got.append(send(host, *PARTS[n_there]))
        except WrongOffset as error:
            refused.append(error.details["offset"])
        finally:
            connection.close()

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if n_there < 2:
        assert (got, refused) == ([PARTS[n_there][1] + 1], [PARTS[n_there][1] + 1] * 7)
    else:  # the last one: the others find the file and are content
        assert (len(got), refused) == (8, [])
        assert incoming() == []
    assert Blob.objects.count() == (n_there == 2)


def test_files_under_way_are_limited(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partials, "MAX_PARTIALS", 3)
    for n in range(5):
        name = hashlib.sha256(str(n).encode()).hexdigest()
        receive_part(name, io.BytesIO(b"x"), host, Part(0, 0, 2), zstd=False, max_bytes=10)
        os.utime(partials._path(name, host), (n, n))
    assert sorted(p.stat().st_mtime for p in incoming()) == [2, 3, 4]


def test_what_was_forgotten_for_a_day_is_swept(host: Host) -> None:
    send(host, *PARTS[0])
    forgotten = partials._path("0" * 64, host)
    killed = forgotten.parent.parent / "killed.part"
    for path in (forgotten, killed):
        path.write_bytes(b"x")
        an_age = (datetime.now(UTC) - timedelta(hours=25)).timestamp()
        os.utime(path, (an_age, an_age))
    assert sweep_incoming(datetime.now(UTC)) == 2
    assert [p.name for p in incoming()] == [f"{DIGEST}.partial"]
    assert sweep_incoming(datetime.now(UTC) + timedelta(hours=25)) == 1


class CutLine(httpx.HTTPTransport):
    """Carries so many uploads, and then none."""

    def __init__(self, n_uploads: int) -> None:
        super().__init__()
        self.n_left = n_uploads

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            self.n_left -= 1
            if self.n_left < 0:
                raise httpx.WriteError("the line is cut", request=request)
        return super().handle_request(request)


@pytest.mark.django_db(transaction=True)
def test_the_agents_own_client_goes_on_after_a_cut(servers: None, live_server: Any, tmp_path: Path) -> None:
    world = make_world()
    offer = claimed(world)
    content = random.Random(2).randbytes(20 * 1024**2)  # can't be compressed, so it takes three parts
    digest, path = hashlib.sha256(content).hexdigest(), tmp_path / "log.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(content))
    lease = (offer.job_id, offer.lease_token)
    cut = AgentClient(live_server.url, world.token, transport=CutLine(2), sleep=lambda s: None)
    with pytest.raises(Unreachable):
        cut.put_blob(digest, path, *lease)
    client = AgentClient(live_server.url, world.token)
    there = client.blob_offset(digest, *lease)
    assert there == 2 * PART_BYTES
    client.put_blob(digest, path, *lease, offset=there)
    assert client.blob_offset(digest, *lease) is None
    assert (Blob.objects.get().bytes, incoming()) == (len(content), [])
    for opened in (cut, client):
        opened.close()

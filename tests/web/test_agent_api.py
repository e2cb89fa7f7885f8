"""The agent's addresses: who may do what, each refusal by its code, each message answered as the protocol says."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any

import pytest
import zstandard
from django.conf import settings
from speccore.canonical import sha256_of
from speccore.protocol import JobOffer

from specweb.experiments.models import Host, HostInventory, HostModel, Job, JobMove, Lease, Model, Runtime
from specweb.experiments.services.hosts import create_enrolment_code
from specweb.experiments.services.jobs import request_cancel
from specweb.experiments.services.submission import submit
from specweb.results.models import Attempt, Blob, EvidenceFile
from tests.worlds import NOW, Agent, World, dispatch, inventory, report, spec

FILES = {"server.log": b"a log\n", "texts.jsonl": b'{"private": true}\n'}


def refusal(reply: Any) -> tuple[int, str]:
    """Status and code; the reply must have the one shape of errors."""
    body = reply.json()
    assert set(body) == {"error"}, body
    assert body["error"]["message"]
    assert "Traceback" not in reply.content.decode()
    return reply.status_code, body["error"]["code"]


@pytest.fixture
def offer(world: World) -> JobOffer:
    """A submitted experiment whose job ``world.agent`` has claimed."""
    for agent in (world.agent, world.other_agent):
        assert agent.poll().json()["send_inventory"]
        assert agent.send_inventory().status_code == 200
    submit(spec(), world.team, world.owner)
    assert dispatch() == 1
    return world.agent.offer()


def stored_files() -> list[str]:
    root = settings.SPECWEB_EVIDENCE_DIR
    return sorted(p.name for p in root.rglob("*") if p.is_file()) if root.exists() else []


class TestEnrolment:
    def test_a_code_makes_a_host_of_its_team_once(self, world: World) -> None:
        code = create_enrolment_code(world.team, NOW)
        message = {"protocol": 1, "code": code, "hostname": "box", "agent_version": "0.1"}
        from unittest.mock import patch

        with patch("specweb.api.agent_views.timezone.now", return_value=NOW):  # the clock
            first = Agent("").post("enrol", message)
            second = Agent("").post("enrol", message)
        assert first.status_code == 201
        assert first.json()["host_name"] == "box-2"  # "box" is taken
        host = Host.objects.get(pk=first.json()["host_id"])
        assert host.team == world.team
        assert Agent(first.json()["agent_token"]).poll().status_code == 200
        assert refusal(second) == (403, "not_allowed")

    def test_an_old_code_is_refused(self, world: World) -> None:
        code = create_enrolment_code(world.team, NOW.replace(year=2020))
        assert refusal(Agent("").post("enrol", {"code": code, "hostname": "x", "agent_version": "0"})) == (403, "not_allowed")


class TestWhoSpeaks:
    def test_no_token_and_a_wrong_one(self, world: World) -> None:
        assert refusal(Agent("").poll()) == (401, "not_authenticated")
        assert refusal(Agent("agent_wrong").poll()) == (401, "not_authenticated")
        assert Agent("").poll().headers["WWW-Authenticate"] == "Bearer"

    def test_a_revoked_host(self, world: World) -> None:
        Host.objects.filter(pk=world.host.pk).update(revoked_at=NOW)
        assert refusal(world.agent.poll()) == (401, "host_revoked")
        assert refusal(world.agent.send_inventory()) == (401, "host_revoked")

    def test_a_person_who_is_logged_in_is_no_agent(self, world: World) -> None:
        agent = Agent("")
        agent.client.force_login(world.owner)
        assert refusal(agent.poll()) == (401, "not_authenticated")

    def test_unknown_address_and_method(self, world: World) -> None:
        assert refusal(world.agent.post("nonsense", {})) == (404, "not_found")
        assert refusal(world.agent.client.get("/agent/v1/poll", headers=world.agent.headers())) == (405, "method_not_allowed")

    def test_messages_that_cannot_be_read(self, world: World) -> None:
        status, code = refusal(world.agent.post("poll", {"protocol": 1}))
        assert (status, code) == (400, "invalid_message")
        broken = world.agent.client.post("/agent/v1/poll", "{", content_type="application/json", headers=world.agent.headers())
        assert refusal(broken) == (400, "parse_error")
        assert refusal(world.agent.post("poll", [1])) == (400, "invalid_message")

    @pytest.mark.parametrize("body", ["[" * 200_000, '{"a":' * 900 + "1" + "}" * 900, '{"inventory_hash": "", "a": 1e999}'])
    @pytest.mark.parametrize("address", ["enrol", "poll", "inventory"])
    def test_endless_nesting_and_endless_numbers(self, world: World, address: str, body: str) -> None:
        agent = world.agent
        reply = agent.client.post(f"/agent/v1/{address}", body, content_type="application/json", headers=agent.headers())
        assert refusal(reply) == (400, "parse_error")

    def test_a_message_that_is_too_large(self, world: World, settings: Any) -> None:
        settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
        assert refusal(world.agent.poll(noise="x" * 1000)) == (413, "message_too_large")
        assert refusal(Agent("").post("enrol", {"code": "x" * 1000})) == (413, "message_too_large")

    def test_another_protocol(self, world: World) -> None:
        assert refusal(world.agent.post("poll", {"protocol": 9, "inventory_hash": ""})) == (426, "protocol_not_supported")

    def test_unknown_fields_of_a_newer_agent_are_ignored(self, world: World) -> None:
        assert world.agent.poll(mood="good").status_code == 200


class TestInventory:
    def test_fills_the_catalogues_and_is_kept_once(self, world: World) -> None:
        world.agent.send_inventory()
        world.agent.send_inventory()
        assert HostInventory.objects.filter(host=world.host).count() == 1
        assert Runtime.objects.visible_to(world.owner).count() == 1
        assert set(HostModel.objects.values_list("alias", flat=True)) == {"target", "draft"}
        assert Model.objects.visible_to(world.stranger).count() == 0
        assert world.agent.poll().json()["send_inventory"] is False

    def test_text_that_postgresql_cannot_store(self, world: World) -> None:
        world.agent.inventory = inventory(problems=["bad\x00text"])
        assert world.agent.send_inventory().status_code == 200
        assert HostInventory.objects.get().content["problems"] == ["bad\ufffdtext"]
        assert world.agent.poll().json()["send_inventory"] is False

    def test_an_agent_of_another_release_is_understood_and_not_asked_again(self, world: World) -> None:
        sent = inventory().model_dump(mode="json") | {"field_of_2031": 1}
        del sent["sensors"]
        assert world.agent.post("inventory", {"protocol": 1, "inventory": sent}).status_code == 200
        reply = world.agent.post("poll", {"protocol": 1, "inventory_hash": sha256_of(sent)})
        assert reply.json()["send_inventory"] is False

    def test_numbers_and_text_that_cannot_be_stored(self, world: World) -> None:
        body = {"protocol": 1, "inventory": {**inventory().model_dump(mode="json"), "problems": ["half a character \ud800"]}}
        assert refusal(world.agent.post("inventory", body)) == (400, "invalid_message")
        huge = world.agent.inventory.models[0].model_copy(update={"size_bytes": 2**70})
        world.agent.inventory = inventory(models=[huge])
        assert refusal(world.agent.send_inventory()) == (400, "invalid_message")
        assert not HostInventory.objects.exists()

    @pytest.mark.parametrize("nonsense", [{"devices": []}, {"n_cores": 0}, {"memory_bytes": -1}, {"engine_threads": -3}])
    def test_a_machine_that_can_not_be(self, world: World, nonsense: dict[str, Any]) -> None:
        body = {"protocol": 1, "inventory": inventory().model_dump(mode="json") | nonsense}
        assert refusal(world.agent.post("inventory", body)) == (400, "invalid_message")
        assert not HostInventory.objects.exists()

    @pytest.mark.parametrize("identity", ["", "../../x", "a/b", "<script>", "x" * 65])
    @pytest.mark.parametrize("of", ["runtimes", "models"])
    def test_an_identity_that_no_address_could_hold_is_refused(self, of: str, identity: str, world: World) -> None:
        """Pages link to it: one that can't be linked to would take them from the whole team."""
        sent = inventory().model_dump(mode="json")
        sent[of][0]["manifest_hash"] = identity
        assert refusal(world.agent.post("inventory", {"protocol": 1, "inventory": sent})) == (400, "invalid_message")

    def test_a_changed_inventory_sends_a_queued_job_back(self, world: World) -> None:
        world.agent.poll()
        world.agent.send_inventory()
        experiment = submit(spec(), world.team, world.owner)
        dispatch()
        world.agent.inventory = inventory(n_cores=8)
        world.agent.send_inventory()
        job = experiment.jobs.get()
        assert (job.state, job.host) == ("waiting", None)
        assert dispatch() == 1
        assert "7" in experiment.jobs.get().commands["off"]  # threads: all cores but one, rendered anew


class TestPoll:
    def test_offers_the_whole_job(self, world: World, offer: JobOffer) -> None:
        assert offer.lease == 1
        assert [t.index for t in offer.plan.trials] == list(range(6))
        assert offer.draft_hashes.keys() == {"draft-4"}
        assert offer.commands.keys() == {"off", "draft-4"}
        assert "{target}" in offer.commands["off"]
        assert offer.done_trials == []
        assert Job.objects.get().state == "claimed"

    def test_a_lost_reply_heals_itself_with_a_newer_lease(self, world: World, offer: JobOffer) -> None:
        again = world.agent.offer()
        assert (again.job_id, again.lease) == (offer.job_id, 2)
        assert again.lease_token != offer.lease_token
        assert Lease.objects.filter(released_at=None).count() == 1

    def test_progress_makes_it_running(self, world: World, offer: JobOffer) -> None:
        running = {"job_id": offer.job_id, "lease": 1, "trial": offer.plan.trials[0].id, "phase": "probing", "probe": 1, "n_probes": 2}
        reply = world.agent.poll(running=running).json()
        job = Job.objects.get()
        assert (reply["job"], reply["cancel"], job.state) == (None, [], "running")
        assert job.progress["phase"] == "probing"
        assert reply["poll_after_s"] == settings.SPECWEB_POLL_RUNNING_S

    def test_an_older_lease_is_told_to_stop(self, world: World, offer: JobOffer) -> None:
        world.agent.offer()
        assert world.agent.poll(running={"job_id": offer.job_id, "lease": 1}).json()["cancel"] == [offer.job_id]
        assert Job.objects.get().state == "claimed"

    def test_another_hosts_job(self, world: World, offer: JobOffer) -> None:
        running = {"job_id": offer.job_id, "lease": 1}
        assert refusal(world.other_agent.poll(running=running)) == (403, "not_allowed")
        assert refusal(world.other_agent.poll(finished=[{**running, "outcome": "completed"}])) == (403, "not_allowed")
        assert Job.objects.get().state == "claimed"

    def test_no_worker_is_woken_for_what_is_no_job(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        woken: list[str] = []
        monkeypatch.setattr("specweb.queue.send", lambda task, *args: woken.extend(args))
        job_id = str(uuid.uuid4())
        words = [{"job_id": j, "lease": 1, "outcome": "completed"} for j in ("no job", job_id, job_id)]
        assert world.agent.poll(finished=words).json()["acknowledged"] == ["no job", job_id, job_id]
        assert woken == [job_id]

    def test_an_unknown_job_is_stopped_and_acknowledged(self, world: World, offer: JobOffer) -> None:
        ghost = {"job_id": str(uuid.uuid4()), "lease": 1}
        reply = world.agent.poll(running=ghost, finished=[{**ghost, "outcome": "completed"}]).json()
        assert reply["cancel"] == reply["acknowledged"] == [ghost["job_id"]]

    @pytest.mark.parametrize(("outcome", "state"), [("completed", "completed"), ("failed", "failed"), ("cancelled", "cancelled")])
    def test_the_last_word_is_taken_once(self, world: World, offer: JobOffer, outcome: str, state: str) -> None:
        error = {"code": "command_differs", "message": "other command", "blame": "host"} if outcome == "failed" else None
        finished = [{"job_id": offer.job_id, "lease": 1, "outcome": outcome, "error": error}]
        for _ in range(2):
            assert world.agent.poll(finished=finished).json()["acknowledged"] == [offer.job_id]
        job = Job.objects.get()
        assert job.state == state
        assert JobMove.objects.filter(dst=state).count() == 1
        assert Lease.objects.get().released_at is not None
        if error:
            assert (job.reason, job.error["code"]) == ("other command", "command_differs")

    def test_a_person_cancels(self, world: World, offer: JobOffer) -> None:
        assert request_cancel(Job.objects.get(), now=NOW, by="owner")
        assert world.agent.poll(running={"job_id": offer.job_id, "lease": 1}).json()["cancel"] == [offer.job_id]

    def test_a_draining_host_gets_nothing(self, world: World) -> None:
        world.agent.poll()
        world.agent.send_inventory()
        submit(spec(), world.team, world.owner)
        dispatch()
        assert world.agent.poll(draining=True).json()["job"] is None


class TestCost:
    def test_a_heartbeat_is_a_few_statements_however_many_trials(
        self, world: World, offer: JobOffer, django_assert_max_num_queries: Any
    ) -> None:
        running = {"job_id": offer.job_id, "lease": 1}
        for trial in offer.plan.trials:
            world.agent.deliver(offer, trial.id, FILES)
        with django_assert_max_num_queries(12):
            assert world.agent.poll(running=running).status_code == 200
        with django_assert_max_num_queries(8):
            assert world.other_agent.poll().status_code == 200


class TestWorkload:
    def test_is_given_under_the_lease_of_a_job_that_uses_it(self, world: World, offer: JobOffer) -> None:
        digest = offer.plan.workloads["tiny"]
        headers = world.agent.headers(offer.lease_token)
        assert world.agent.client.get(f"/agent/v1/workloads/{digest}", headers=headers).json()["name"] == "tiny"
        assert refusal(world.agent.client.get(f"/agent/v1/workloads/{digest}", headers=world.agent.headers())) == (403, "not_allowed")
        assert refusal(world.agent.client.get(f"/agent/v1/workloads/{'0' * 64}", headers=headers)) == (403, "not_allowed")


class TestBlobs:
    @pytest.mark.parametrize("zstd", [True, False])
    def test_kept_once_and_compressed(self, world: World, offer: JobOffer, zstd: bool) -> None:
        content = b"line\n" * 100_000
        digest = hashlib.sha256(content).hexdigest()
        assert world.agent.head(digest, offer.lease_token).status_code == 404
        assert world.agent.put(content, offer.lease_token, zstd=zstd).status_code == 201
        assert world.agent.put(content, offer.lease_token, zstd=zstd).status_code == 200
        assert world.agent.head(digest, offer.lease_token).status_code == 200
        blob = Blob.objects.get()
        assert (blob.bytes, blob.path) == (500_000, f"{digest[:2]}/{digest[2:4]}/{digest}.zst")
        kept = settings.SPECWEB_EVIDENCE_DIR / blob.path
        assert zstandard.ZstdDecompressor().stream_reader(kept.read_bytes()).read() == content
        assert kept.stat().st_size == blob.stored_bytes < 5_000

    def test_several_frames_are_one_content(self, world: World, offer: JobOffer) -> None:
        body = b"".join(zstandard.ZstdCompressor().compress(part) for part in (b"one\n", b"two\n"))
        digest = hashlib.sha256(b"one\ntwo\n").hexdigest()
        headers = world.agent.headers(offer.lease_token) | {"Content-Encoding": "zstd"}
        url = f"/agent/v1/blobs/{digest}"
        assert world.agent.client.put(url, body, content_type="application/octet-stream", headers=headers).status_code == 201

    def test_an_empty_file(self, world: World, offer: JobOffer) -> None:
        assert world.agent.put(b"", offer.lease_token).status_code == 201

    @pytest.mark.parametrize("zstd", [True, False])
    def test_a_wrong_hash_keeps_nothing(self, world: World, offer: JobOffer, zstd: bool) -> None:
        reply = world.agent.put(b"damaged", offer.lease_token, sha256="0" * 64, zstd=zstd)
        assert refusal(reply) == (422, "hash_mismatch")
        assert reply.json()["error"]["details"]["got"] == hashlib.sha256(b"damaged").hexdigest()
        assert not Blob.objects.exists()
        assert stored_files() == []

    def test_bytes_that_are_no_zstd(self, world: World, offer: JobOffer) -> None:
        headers = world.agent.headers(offer.lease_token) | {"Content-Encoding": "zstd"}
        reply = world.agent.client.put(f"/agent/v1/blobs/{'0' * 64}", b"plain", content_type="application/octet-stream", headers=headers)
        assert refusal(reply) == (422, "hash_mismatch")
        assert stored_files() == []

    def test_a_small_body_that_grows_without_end(self, world: World, offer: JobOffer, settings: Any) -> None:
        settings.SPECWEB_MAX_BLOB_BYTES = 1_000_000
        assert refusal(world.agent.put(bytes(50_000_000), offer.lease_token)) == (413, "blob_too_large")
        assert refusal(world.agent.put(bytes(2_000_000), offer.lease_token, zstd=False)) == (413, "blob_too_large")
        assert stored_files() == []

    def test_needs_a_lease_of_this_host(self, world: World, offer: JobOffer) -> None:
        assert refusal(world.agent.put(b"x", "")) == (403, "not_allowed")
        assert refusal(world.other_agent.put(b"x", offer.lease_token)) == (403, "not_allowed")
        assert world.other_agent.head("0" * 64, offer.lease_token).status_code == 403

    def test_no_hash_in_the_address(self, world: World, offer: JobOffer) -> None:
        assert refusal(world.agent.put(b"x", offer.lease_token, sha256="../../etc")) == (404, "not_found")
        assert refusal(world.agent.put(b"x", offer.lease_token, sha256="ABC")) == (404, "not_found")

    def test_a_file_that_was_lost_is_sent_again(self, world: World, offer: JobOffer) -> None:
        digest = hashlib.sha256(b"x").hexdigest()
        world.agent.put(b"x", offer.lease_token)
        (settings.SPECWEB_EVIDENCE_DIR / Blob.objects.get().path).unlink()
        assert world.agent.head(digest, offer.lease_token).status_code == 404
        assert world.agent.put(b"x", offer.lease_token).status_code == 201

    def test_knowing_a_hash_is_not_enough_to_get_at_another_teams_bytes(self, world: World, offer: JobOffer) -> None:
        world.agent.put(b"secret", offer.lease_token)
        submit(spec(), world.other_team, world.stranger)
        dispatch()
        theirs = world.other_agent.offer()
        digest = hashlib.sha256(b"secret").hexdigest()
        assert world.other_agent.head(digest, theirs.lease_token).status_code == 404
        files = {"server.log": b"secret"}
        stolen = world.other_agent.report(report(theirs, theirs.plan.trials[0].id, files), theirs.lease_token)
        assert refusal(stolen) == (409, "blobs_missing")
        assert world.other_agent.put(b"secret", theirs.lease_token).status_code == 201  # who has the bytes may store them


class TestReports:
    def test_is_stored_once_however_often_it_comes(self, world: World, offer: JobOffer) -> None:
        trial = offer.plan.trials[0].id
        for content in FILES.values():
            world.agent.put(content, offer.lease_token)
        message = report(offer, trial, FILES)
        for _ in range(2):
            reply = world.agent.report(message, offer.lease_token)
            assert (reply.status_code, reply.json()) == (200, {"protocol": 1, "stored": True, "counted": True, "missing": []})
        attempt = Attempt.objects.get()
        assert (str(attempt.pk), attempt.trial.plan_id, attempt.accepted) == (message.attempt_id, trial, True)
        assert {f.name: f.private for f in EvidenceFile.objects.all()} == {"server.log": False, "texts.jsonl": True}

    @pytest.mark.parametrize(("verbosity", "private"), [(4, False), (5, True)])
    def test_a_log_with_prompts_and_answers_in_it_is_for_the_team(self, world: World, verbosity: int, private: bool) -> None:
        world.agent.poll()
        world.agent.send_inventory()
        submit(spec(engine={"context": 1024, "log_verbosity": verbosity}), world.team, world.owner)
        dispatch()
        offer = world.agent.offer()
        assert world.agent.deliver(offer, offer.plan.trials[0].id, FILES).status_code == 200
        assert EvidenceFile.objects.get(name="server.log").private is private

    def test_missing_blobs_are_named_and_nothing_is_stored(self, world: World, offer: JobOffer) -> None:
        reply = world.agent.report(report(offer, offer.plan.trials[0].id, FILES), offer.lease_token)
        assert refusal(reply) == (409, "blobs_missing")
        assert set(reply.json()["error"]["details"]["missing"]) == {hashlib.sha256(c).hexdigest() for c in FILES.values()}
        assert not Attempt.objects.exists()

    def test_a_size_that_differs(self, world: World, offer: JobOffer) -> None:
        message = report(offer, offer.plan.trials[0].id, FILES)
        world.agent.deliver(offer, offer.plan.trials[1].id, FILES)
        lying = message.model_copy(update={"evidence": [r.model_copy(update={"bytes": 1}) for r in message.evidence]})
        assert refusal(world.agent.report(lying, offer.lease_token)) == (422, "hash_mismatch")

    def test_one_accepted_attempt_of_a_trial(self, world: World, offer: JobOffer) -> None:
        trial = offer.plan.trials[0].id
        answers = [world.agent.deliver(offer, trial, FILES, n=n).json() for n in (1, 2)]
        assert [a["counted"] for a in answers] == [True, False]
        assert all(a["stored"] for a in answers)
        assert Attempt.objects.filter(accepted=True).count() == 1

    def test_a_failed_attempt_is_kept_and_never_accepted(self, world: World, offer: JobOffer) -> None:
        trial = offer.plan.trials[0].id
        error = {"code": "engine_died", "message": "gone\x00", "blame": "engine", "retry": True}
        from speccore.errors import ErrorBody

        failed = world.agent.deliver(offer, trial, FILES, outcome="failed", error=ErrorBody.model_validate(error))
        good = world.agent.deliver(offer, trial, FILES, n=2)
        assert (failed.json()["counted"], good.json()["counted"]) == (True, True)
        assert list(Attempt.objects.order_by("received_at").values_list("accepted", "error__code")) == [
            (False, "engine_died"),
            (True, None),
        ]

    def test_a_stale_lease_is_kept_and_not_counted(self, world: World, offer: JobOffer) -> None:
        world.agent.offer()  # the host asked again
        reply = world.agent.deliver(offer, offer.plan.trials[0].id, FILES)
        assert (reply.status_code, reply.json()["stored"], reply.json()["counted"]) == (200, True, False)
        assert not Attempt.objects.get().accepted

    def test_a_report_that_the_last_word_overtook_still_counts(self, world: World, offer: JobOffer) -> None:
        world.agent.poll(finished=[{"job_id": offer.job_id, "lease": 1, "outcome": "completed"}])
        assert world.agent.deliver(offer, offer.plan.trials[0].id, FILES).json()["counted"] is True

    def test_a_cancelled_job_counts_nothing_more(self, world: World, offer: JobOffer) -> None:
        world.agent.poll(finished=[{"job_id": offer.job_id, "lease": 1, "outcome": "cancelled"}])
        assert world.agent.deliver(offer, offer.plan.trials[0].id, FILES).json() | {"protocol": 1} == {
            "protocol": 1,
            "stored": True,
            "counted": False,
            "missing": [],
        }

    def test_done_trials_come_with_a_renewed_offer(self, world: World, offer: JobOffer) -> None:
        trial = offer.plan.trials[0].id
        world.agent.deliver(offer, trial, FILES)
        assert world.agent.offer().done_trials == [trial]

    def test_what_does_not_belong_together(self, world: World, offer: JobOffer) -> None:
        first = offer.plan.trials[0].id
        message = report(offer, first, {})
        wrong = [
            (world.other_agent, message, offer.lease_token),
            (world.agent, message, "lease_wrong"),
            (world.agent, message, ""),
            (world.agent, message.model_copy(update={"lease": 7}), offer.lease_token),
            (world.agent, message.model_copy(update={"job_id": str(uuid.uuid4())}), offer.lease_token),
            (world.agent, message.model_copy(update={"trial": "b9-none"}), offer.lease_token),
        ]
        for agent, sent, lease in wrong:
            assert refusal(agent.report(sent, lease)) == (403, "not_allowed")
        elsewhere = world.agent.post(f"attempts/{uuid.uuid4()}/report", message.model_dump(mode="json"), offer.lease_token)
        assert refusal(elsewhere) == (403, "not_allowed")
        assert not Attempt.objects.exists()

    @pytest.mark.parametrize(
        "nonsense",
        [
            {"started_at": "0001-01-01T00:00:00+14:00"},
            {"ended_at": "9999-12-31T23:59:59-12:00"},
            {"n": 0},
            {"durations_s": {"start": float("inf")}},
            {"error": {"code": "x", "message": "x", "blame": "engine", "details": json.loads('{"a":' * 300 + "1" + "}" * 300)}},
        ],
    )
    def test_values_that_no_reader_could_hold(self, world: World, offer: JobOffer, nonsense: dict[str, Any]) -> None:
        message = report(offer, offer.plan.trials[0].id, {})
        body = json.dumps(message.model_dump(mode="json") | nonsense).replace("Infinity", "1e999")
        headers = world.agent.headers(offer.lease_token)
        address = f"/agent/v1/attempts/{message.attempt_id}/report"
        reply = world.agent.client.post(address, body, content_type="application/json", headers=headers)
        assert reply.status_code == 400
        assert refusal(reply)[1] in ("invalid_message", "parse_error")
        assert not Attempt.objects.exists()

    def test_another_hosts_attempt_id(self, world: World, offer: JobOffer) -> None:
        mine = report(offer, offer.plan.trials[0].id, {})
        world.agent.report(mine, offer.lease_token)
        submit(spec(), world.other_team, world.stranger)
        dispatch()
        theirs = world.other_agent.offer()
        copied = report(theirs, theirs.plan.trials[0].id, {}, attempt_id=mine.attempt_id)
        assert refusal(world.other_agent.report(copied, theirs.lease_token)) == (403, "not_allowed")

    @pytest.mark.parametrize("name", ["../server.log", "a/b", "", "x" * 121, ".hidden", "a\nb"])
    def test_a_file_name_that_is_none(self, world: World, offer: JobOffer, name: str) -> None:
        world.agent.put(b"x", offer.lease_token)
        message = report(offer, offer.plan.trials[0].id, {"server.log": b"x"})
        odd = message.model_copy(update={"evidence": [message.evidence[0].model_copy(update={"name": name})]})
        assert refusal(world.agent.report(odd, offer.lease_token)) == (403, "not_allowed")

    def test_a_name_given_twice(self, world: World, offer: JobOffer) -> None:
        world.agent.put(b"x", offer.lease_token)
        message = report(offer, offer.plan.trials[0].id, {"server.log": b"x"})
        twice = message.model_copy(update={"evidence": message.evidence * 2})
        assert refusal(world.agent.report(twice, offer.lease_token)) == (403, "not_allowed")


def test_an_unforeseen_error_shows_no_traceback(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("inner secret")

    monkeypatch.setattr("specweb.api.agent_views.poll", broken)
    reply = world.agent.poll()
    assert refusal(reply) == (500, "server_error")
    assert "inner secret" not in json.dumps(reply.json())

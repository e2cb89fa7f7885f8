"""Small worlds for the tests: teams, people, hosts with a recorded engine, workloads, and evidence as an agent sends it."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import zstandard
from django.test import Client
from speccore import engines
from speccore.inventory import Device, HostInventory, ModelInfo, RuntimeInfo
from speccore.protocol import AttemptReport, EvidenceRef, JobOffer
from speccore.spec import ExperimentSpec, parse_spec
from speccore.workload import Item, Workload

from specweb.accounts.models import Membership, Role, Team, User
from specweb.experiments.models import Host
from specweb.experiments.services.dispatch import dispatch_waiting
from specweb.experiments.services.hosts import create_host
from specweb.experiments.services.submission import seed_workload
from specweb.results.services.reports import create_trials

LOGS = Path(__file__).parent / "logs" / "llamacpp"
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
ONLINE = timedelta(seconds=30)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def inventory(**changes: Any) -> HostInventory:
    """A host without a GPU whose engine is the recorded b10434, with a target and a draft."""
    help_text = (LOGS / "b10434.help.txt").read_text()
    runtime = RuntimeInfo(
        engine="llama-server",
        version="0.1.0-dev (build 1, commit 7e4c0a9)",
        source_commit="7e4c0a9",
        backend="cpu",
        manifest_hash=sha("runtime"),
        executable="/opt/llama/llama-server",
        capabilities=engines.engine("llama-server").capabilities(help_text),
    )
    models = [ModelInfo(alias=a, manifest_hash=sha(a), path=f"/models/{a}.gguf", size_bytes=1000) for a in ("target", "draft")]
    base = HostInventory(
        agent_version="0.1.0",
        hostname="box",
        os={"system": "Linux"},
        boot_id="boot-1",
        cpu_model="Some CPU",
        n_cores=4,
        memory_bytes=8 << 30,
        devices=[Device(uuid="cpu-1", kind="cpu", name="Some CPU", memory_bytes=8 << 30)],
        runtimes=[runtime],
        models=models,
    )
    return base.model_copy(update=changes)


def workload(name: str = "tiny", version: int = 1) -> Workload:
    items = [Item(id=f"i{n}", prompt=f"{n} is where {name} {version} begins, and then it goes on") for n in range(20)]
    return Workload(name=name, version=version, title=name.title(), items=items[:16], warmup=items[16:])


def spec(**changes: Any) -> ExperimentSpec:
    data: dict[str, Any] = {
        "name": "Does it pay?",
        "target": {"model": "target"},
        "arms": [
            {"name": "off", "mode": "off"},
            {"name": "draft-4", "mode": "draft", "draft_model": "draft", "draft_limit": 4},
        ],
        "points": [{"workload": "tiny", "max_tokens": 32, "probes": 2}],
        "blocks": 3,
        "warmup": {"mode": "fixed"},
        **changes,
    }
    parsed, problems = parse_spec(data)
    assert parsed is not None, problems
    return parsed


@dataclass
class World:
    """One team with its people and a host, another team with a stranger and a host of their own."""

    team: Team
    owner: User
    teammate: User
    stranger: User
    other_team: Team
    host: Host
    token: str
    other_host: Host
    other_token: str
    agent: Agent = field(init=False)
    other_agent: Agent = field(init=False)

    def __post_init__(self) -> None:
        self.agent, self.other_agent = Agent(self.token), Agent(self.other_token)


def make_world() -> World:
    team, other = Team.objects.create(slug="ours", name="Ours"), Team.objects.create(slug="theirs", name="Theirs")
    people = {}
    for name, of, role in (("owner", team, Role.MAINTAINER), ("teammate", team, Role.VIEWER), ("stranger", other, Role.MAINTAINER)):
        people[name] = User.objects.create(username=name)
        Membership.objects.create(user=people[name], team=of, role=role)
    seed_workload(workload())
    host, token = create_host(team, "box")
    other_host, other_token = create_host(other, "their-box")
    return World(team, people["owner"], people["teammate"], people["stranger"], other, host, token, other_host, other_token)


def dispatch(now: datetime | None = None) -> int:
    """What the worker's task does; returns the number of jobs queued."""
    return len(dispatch_waiting(now or datetime.now(UTC), online_within=ONLINE, on_queued=create_trials))


class Agent:
    """An agent as far as HTTP goes. Each call returns Django's response."""

    def __init__(self, token: str, held: HostInventory | None = None) -> None:
        self.token = token
        self.inventory = held or inventory()
        self.client = Client(raise_request_exception=False)

    def headers(self, lease: str = "") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} | ({"X-Lease-Token": lease} if lease else {})

    def post(self, path: str, message: Any, lease: str = "") -> Any:
        return self.client.post(f"/agent/v1/{path}", json.dumps(message), content_type="application/json", headers=self.headers(lease))

    def send_inventory(self) -> Any:
        return self.post("inventory", {"protocol": 1, "inventory": self.inventory.model_dump(mode="json")})

    def poll(self, **fields: Any) -> Any:
        return self.post("poll", {"protocol": 1, "inventory_hash": self.inventory.content_hash(), **fields})

    def offer(self) -> JobOffer:
        reply = self.poll()
        assert reply.status_code == 200, reply.content
        assert reply.json()["job"], reply.json()
        return JobOffer.model_validate(reply.json()["job"])

    def head(self, sha256: str, lease: str) -> Any:
        return self.client.head(f"/agent/v1/blobs/{sha256}", headers=self.headers(lease))

    def put(self, content: bytes, lease: str, *, sha256: str = "", zstd: bool = True) -> Any:
        body = zstandard.ZstdCompressor().compress(content) if zstd else content
        headers = self.headers(lease) | ({"Content-Encoding": "zstd"} if zstd else {})
        digest = sha256 or hashlib.sha256(content).hexdigest()
        return self.client.put(f"/agent/v1/blobs/{digest}", body, content_type="application/octet-stream", headers=headers)

    def report(self, message: AttemptReport, lease: str) -> Any:
        return self.post(f"attempts/{message.attempt_id}/report", message.model_dump(mode="json"), lease)

    def deliver(self, offer: JobOffer, trial: str, files: Mapping[str, bytes], **changes: Any) -> Any:
        """Uploads the files and reports them as an attempt."""
        for content in files.values():
            assert self.put(content, offer.lease_token).status_code in (200, 201)
        return self.report(report(offer, trial, files, **changes), offer.lease_token)


def report(offer: JobOffer, trial: str, files: Mapping[str, bytes], **changes: Any) -> AttemptReport:
    now = datetime.now(UTC)
    base = AttemptReport(
        attempt_id=str(uuid.uuid4()),
        job_id=offer.job_id,
        lease=offer.lease,
        trial=trial,
        n=1,
        outcome="ok",
        boot_id="boot-1",
        started_at=now - timedelta(seconds=5),  # long ago would be a gap that tears its block apart
        ended_at=now,
        durations_s={"start": 1.0},
        evidence=[
            EvidenceRef(
                name=name, kind=_kind(name), sha256=hashlib.sha256(content).hexdigest(), bytes=len(content), private=name == "texts.jsonl"
            )
            for name, content in files.items()
        ],
    )
    return base.model_copy(update=changes)


def _kind(name: str) -> Any:
    kinds = {"server.log": "log", "launch.json": "launch", "manifest.json": "manifest", "attempt.json": "attempt"}
    return kinds.get(name, name.removesuffix(".jsonl"))

"""What serves at an address that somebody else set up: engine, interface, model, and how to ask it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

import httpx
from speccore.engines import llamacpp, openai_stream, vllm_stream
from speccore.errors import EngineError, SpecError
from speccore.survey import ServerFacts

from .asking import Target

Api = Literal["llama", "chat", "completions"]
PATHS: dict[Api, str] = {"llama": "/completion", "chat": "/v1/chat/completions", "completions": "/v1/completions"}

_TIMEOUT = httpx.Timeout(15.0, connect=5.0)


class NoSuchServer(EngineError):
    code = "no_such_server"
    remedy = "Look at the address: is the server up, and is this its port?"


class NotLetIn(SpecError):
    code = "not_let_in"
    remedy = "Name the environment variable that holds the key: --api-key-env VAR."


class WrongAddress(SpecError):
    code = "wrong_address"
    remedy = "Give the server's address, such as http://127.0.0.1:8080"


class WhichModel(SpecError):
    code = "which_model"


@dataclass(frozen=True)
class Served:
    """A server, looked at. ``extras`` are options of this interface that bring exact counts, until it has refused them."""

    facts: ServerFacts
    target: Target
    metrics_url: str  # '' where it has none
    dialect: ModuleType
    notes: list[str] = field(default_factory=list)


class Door:
    """The server's small questions: GET with the key, answers as they are."""

    def __init__(self, url: str, headers: Mapping[str, str], transport: httpx.BaseTransport | None = None) -> None:
        self.parts = _parts(url)
        self.base = f"{self.parts.scheme}://{self.parts.netloc}{self.parts.path}"
        self._http = httpx.Client(headers=dict(headers), timeout=_TIMEOUT, transport=transport)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str) -> httpx.Response:
        """Raises :class:`NoSuchServer` if nothing answers there."""
        try:
            return self._http.get(self.base + path)
        except httpx.HTTPError as error:
            raise NoSuchServer(f"{self.base} can't be reached: {error or type(error).__name__}") from error

    def json(self, path: str) -> dict[str, Any] | None:
        """None for what is no JSON object. Raises :class:`NotLetIn`."""
        answer = self.get(path)
        if answer.status_code in (401, 403):
            raise NotLetIn(f"{self.base}{path} answered {answer.status_code}: it wants another key, or one at all")
        try:
            data = answer.json() if answer.is_success else None
        except ValueError:
            return None
        return data if isinstance(data, dict) else None


def look(door: Door, headers: Mapping[str, str], *, api: Api | None, model: str | None) -> Served:
    """Finds out what serves. Raises :class:`NoSuchServer`, :class:`NotLetIn`, :class:`WhichModel`."""
    props = door.json("/props") or {}
    models = _models(door.json("/v1/models"))
    version = door.json("/version") or {}
    metrics = door.get("/metrics")
    text = metrics.text if metrics.is_success else ""
    if props.get("role") == "router":
        raise WhichModel("llama-server runs without a model (router mode)", remedy="Start it with -m, then probe again.")
    notes = [] if text else [f"/metrics answered {metrics.status_code}: the engine's own counters can't be read"]
    if "default_generation_settings" in props or "total_slots" in props:
        facts = _llama(door, props, models, api, model)
    else:
        engine: Literal["vllm", "unknown"] = "vllm" if "vllm:" in text or (set(version) == {"version"} and models) else "unknown"
        if not models and model is None:
            raise NoSuchServer(
                f"{door.base} answers, and neither /props nor /v1/models says what it serves",
                remedy="Is this the address of llama-server, vLLM or another server of OpenAI's interface? If it lists no models, name one: --model.",
            )
        said = str(version.get("version", ""))
        facts = ServerFacts(url=door.base, engine=engine, api=api or "chat", version=said, model=_choose(models, model))
    if api == "llama" and facts.engine != "llama-server":
        raise SpecError(f"--api llama: {door.base} is no llama-server", remedy="Take --api chat or --api completions.")
    target = Target(
        host=door.parts.hostname or "",
        port=door.parts.port or (443 if door.parts.scheme == "https" else 80),
        path=door.parts.path + PATHS[facts.api],
        tls=door.parts.scheme == "https",
        headers=dict(headers),
    )
    dialects: dict[str, ModuleType] = {"llama-server": llamacpp, "vllm": vllm_stream}
    dialect = dialects.get(facts.engine, openai_stream)
    return Served(facts, target, "/metrics" if text else "", dialect, notes)


def _llama(door: Door, props: dict[str, Any], models: list[str], api: Api | None, model: str | None) -> ServerFacts:
    """Of /props. Its settings say "none" of speculation also where there is some, so an answer's own are waited for."""
    settings = props.get("default_generation_settings")
    settings = settings if isinstance(settings, dict) else {}
    path = str(props.get("model_path") or "").rsplit("/", 1)[-1]
    name = _choose([path, str(props.get("model_alias") or ""), *models], model) if model else path or (models[0] if models else "")
    slots, context = props.get("total_slots"), settings.get("n_ctx")
    return ServerFacts(
        url=door.base,
        engine="llama-server",
        api=api or "llama",
        version=str(props.get("build_info") or ""),
        model=name,
        slots=slots if isinstance(slots, int) else None,
        context=context if isinstance(context, int) else None,
    )


def _models(listing: dict[str, Any] | None) -> list[str]:
    data = (listing or {}).get("data")
    return [str(m["id"]) for m in data if isinstance(m, dict) and m.get("id")] if isinstance(data, list) else []


def _choose(models: list[str], wanted: str | None) -> str:
    known = ", ".join(dict.fromkeys(m for m in models if m))
    if wanted:
        if models and wanted not in models:
            raise WhichModel(f"--model {wanted!r} is not served here; served: {known}", remedy="Name one of them.")
        return wanted
    if len(models) > 1:
        raise WhichModel(f"several models are served here: {known}", remedy="Name one with --model.")
    return models[0]


def _parts(url: str) -> SplitResult:
    """The address without what belongs to a single question of it."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise WrongAddress(f"{url!r} is no address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise WrongAddress(f"{url!r} is no http:// or https:// address")
    if parts.username or parts.password:
        raise WrongAddress(f"the address {parts.hostname} holds a name or a password", remedy="Give a key with --api-key-env VAR instead.")
    path = parts.path.rstrip("/")
    for ending in (*PATHS.values(), "/v1"):
        path = path.removesuffix(ending)
    return parts._replace(path=path, query="", fragment="")

"""Answers that are not JSON: an experiment as YAML, a report as Markdown, prompts as lines of JSON, and stored bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from .people_auth import PeopleView


class Yaml(BaseRenderer):
    media_type = "application/yaml"
    format = "yaml"
    charset = "utf-8"

    def render(self, data: str, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None) -> str:
        return data


class Text(Yaml):
    """Lines of JSON."""

    media_type = "application/jsonl"
    format = "jsonl"


class Markdown(Yaml):
    media_type = "text/markdown"
    format = "md"


class Bytes(BaseRenderer):
    """Only names the type: the answer is a stream of its own."""

    media_type = "application/octet-stream"
    format = "bin"
    charset = None


class OtherThanJson(PeopleView):
    """Base of what answers in another form than JSON; its errors are JSON all the same."""

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(response, Response) and response.exception:
            request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
        return super().finalize_response(request, response, *args, **kwargs)

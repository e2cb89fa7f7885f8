"""The OpenAPI schema, for programs, and the page of it, for people. Both are open: they tell of the program, not of what is in it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_cache_control
from django.views.decorators.http import require_safe
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from . import schema_page
from .people_auth import OpenView
from .schema import schema


class _PlainJson(OpenApiJsonRenderer):
    """The same for who asks for JSON of any kind, as most programs do."""

    media_type = "application/json"


class SchemaView(OpenView):
    """YAML, or JSON for who accepts only that or asks for ``?format=json``; errors are JSON all the same."""

    renderer_classes = [OpenApiYamlRenderer, OpenApiJsonRenderer, _PlainJson]

    def get(self, request: Request) -> Response:
        answer = Response(schema())
        patch_cache_control(answer, public=True, max_age=300)
        return answer

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(response, Response) and response.exception:
            request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
        return super().finalize_response(request, response, *args, **kwargs)


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """Every address with what it takes and answers, as plain HTML."""
    told: dict[str, Any] = schema_page.context(schema())
    return render(request, "api/docs.html", told)

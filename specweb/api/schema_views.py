"""The OpenAPI schema, for programs, and the page of it, for people. Both are open: they tell of the program, not of what is in it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_cache_control
from django.views.decorators.http import require_safe
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from . import schema_page
from .people_auth import OpenView
from .schema import schema


class SchemaView(OpenView):
    """YAML, or JSON for who accepts only that or asks for ``?format=json``."""

    renderer_classes = [OpenApiYamlRenderer, OpenApiJsonRenderer]

    def get(self, request: Request) -> Response:
        answer = Response(schema())
        patch_cache_control(answer, public=True, max_age=300)
        return answer


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """Every address with what it takes and answers, as plain HTML."""
    told: dict[str, Any] = schema_page.context(schema())
    return render(request, "api/docs.html", told)

"""The OpenAPI schema of the people's API, made from what its views say of themselves (:mod:`specweb.api.describing`)."""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any

from django.urls import include, path
from drf_spectacular.contrib.pydantic import PydanticExtension
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from pydantic.json_schema import JsonSchemaMode, model_json_schema

ROOT = "/api/v1"


class Described(AutoSchema):
    """Only methods that describe themselves are part of the schema."""

    def is_excluded(self) -> bool:
        return not hasattr(getattr(self.view, self.method.lower(), None), "scope")


class TokenScheme(OpenApiAuthenticationExtension):
    target_class = "specweb.api.people_auth.PersonToken"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A token from the account page."}


class Models(PydanticExtension):
    """A body is described as it is read, an answer as it is written."""

    target_class = "pydantic.BaseModel"
    match_subclasses = True
    priority = 1

    def map_serializer(self, auto_schema: Any, direction: str) -> dict[str, Any]:
        mode: JsonSchemaMode = "validation" if direction == "request" else "serialization"
        told = model_json_schema(self.target, ref_template="#/components/schemas/{model}", mode=mode)
        for name, part in told.pop("$defs", {}).items():
            component = ResolvedComponent(name=name, type=ResolvedComponent.SCHEMA, object=name, schema=part)
            auto_schema.registry.register_on_missing(component)
        return told


_making = Lock()


def schema() -> dict[str, Any]:
    """The whole schema as plain values. It depends on the code alone, so it is made once for each process."""
    with _making:  # the generator is not made for several threads at once
        return _schema()


@cache
def _schema() -> dict[str, Any]:
    generator = SchemaGenerator(patterns=[path(f"{ROOT.strip('/')}/", include("specweb.api.people_urls"))])
    told: dict[str, Any] = generator.get_schema(request=None, public=True)
    return told

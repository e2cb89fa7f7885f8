"""What one person may read is no other's: unless a view says otherwise, no cache on the way keeps it, and a browser asks anew."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase
from django.utils.cache import patch_cache_control

Handler = Callable[[HttpRequest], HttpResponseBase]


def private_by_default(get_response: Handler) -> Handler:
    def answer(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if not response.has_header("Cache-Control"):
            patch_cache_control(response, private=True, no_cache=True)  # type: ignore[arg-type]
        return response

    return answer

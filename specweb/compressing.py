"""Pages travel compressed: a table of results is a tenth of its size then."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.middleware.gzip import GZipMiddleware


class CompressedPages(GZipMiddleware):
    """Whole pages alone. Django pads them by a random length, so that their size tells nothing of a secret in them.

    Files go as they are stored, since parts of them can be asked for; what has a tag of its own keeps it.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        page = response.get("Content-Type", "").startswith("text/html") and not response.streaming and not response.has_header("ETag")
        return super().process_response(request, response) if page else response

"""HEAD tells of a file what GET would, without making it: a server would read all of it only to send none of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse

Handler = Callable[[HttpRequest], HttpResponseBase]


def nothing_is_streamed(get_response: Handler) -> Handler:
    def answer(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if request.method == "HEAD" and response.streaming:
            cast(StreamingHttpResponse, response).streaming_content = iter(())
        return response

    return answer

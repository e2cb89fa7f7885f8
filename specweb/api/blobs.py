"""Evidence files as they come, from agents and from people: asked for by hash, sent whole or in parts."""

from __future__ import annotations

import re

from django.conf import settings
from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response
from speccore.errors import BlobTooLarge, NotAllowed

from specweb.results.models import Blob
from specweb.results.partials import Sender, forget_parts, offset_of, part_of, receive_part
from specweb.results.store import held_blob, store_blob

from .errors import LengthRequired


def refuse_what_is_no_hash(sha256: str) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise Http404


def answer_head(sha256: str, sender: Sender) -> Response:
    """200 for a file that the sender's team has sent; else 404, with how much of it came so far."""
    if held_blob(sha256, sender.team):
        return Response(status=200)
    there = offset_of(sha256, sender)
    return Response(status=404, headers={"Upload-Offset": str(there)} if there else None)


def receive(request: Request, sha256: str, sender: Sender) -> Response:
    """Takes a file or a part of it; nothing is kept whose uncompressed bytes have another hash."""
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "zstd"):
        raise NotAllowed(f"Content-Encoding {encoding!r} is none that is taken", remedy="Send identity or zstd.")
    length = request.headers.get("Content-Length", "")
    if not length.isdecimal():
        raise LengthRequired
    limit = settings.SPECWEB_MAX_BLOB_BYTES
    if int(length) > limit:
        raise BlobTooLarge(f"the body has {int(length):,} bytes", max_bytes=limit)
    part = part_of(request.headers["Content-Range"], int(length)) if "Content-Range" in request.headers else None
    zstd = encoding == "zstd"
    if known := held_blob(sha256, sender.team):
        return _stored(known, 200)
    # The body is read below the framework's parsers, in pieces; WSGI bounds it by Content-Length.
    if part is None:
        blob = store_blob(sha256, request._request, sender.team, zstd=zstd, max_bytes=limit)
        forget_parts(sha256, sender)
        return _stored(blob, 201)
    kept = receive_part(sha256, request._request, sender, part, zstd=zstd, max_bytes=limit)
    if isinstance(kept, int):
        return Response({"sha256": sha256, "offset": kept}, status=202, headers={"Upload-Offset": str(kept)})
    return _stored(kept, 201)


def _stored(blob: Blob, status: int) -> Response:
    return Response({"sha256": blob.sha256, "bytes": blob.bytes}, status=status)

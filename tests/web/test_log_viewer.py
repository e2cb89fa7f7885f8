"""Reading big logs: only what lies near a line is decompressed, search is bounded, and what is shown can't mislead."""

from __future__ import annotations

import hashlib
import html
import io
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from django.urls import reverse

from specweb.results import evidence_search, evidence_text, frames, store
from specweb.results.models import Blob, EvidenceFile
from tests.web import sample
from tests.web.pages import as_user, small

MIB = 1024**2
#: 200 MB: three million lines, one of 50 MB among them, and a needle behind it.
LINE = b"slot update: n_decoded = 1234, n_accepted = 56789\n"
BEFORE, BEHIND = 2_000_000, 1_000_000
LONG = 50_000_000
SHA256 = "b59bb96741e5c96eea51f956097bb20f52d1955bd749f8721fb7788ce18f238e"


class Repeated(io.RawIOBase):
    """Pieces of which each is read so many times, without ever being held together."""

    def __init__(self, *parts: tuple[bytes, int]) -> None:
        self._parts = list(parts)

    def read(self, n: int = -1) -> bytes:
        if not self._parts:
            return b""
        piece, times = self._parts[0]
        now = min(times, max(1, n // len(piece)))
        self._parts[0] = (piece, times - now)
        if now == times:
            self._parts.pop(0)
        return piece * now


def great_log() -> Repeated:
    blank = b"x" * 1000
    return Repeated((LINE, BEFORE), (blank, LONG // 1000), (b"\n", 1), (LINE, BEHIND), (b"a Needle <b>here</b>\n", 1), (b"the end", 1))


@pytest.fixture
def people(db, settings, tmp_path: Path) -> sample.People:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path
    return sample.people()


def stored(people: sample.People, body, *, max_bytes: int = 1024 * MIB, digest: str = "") -> Blob:
    content = body if digest else io.BytesIO(body)
    return store.store_blob(digest or hashlib.sha256(body).hexdigest(), content, people.team, zstd=False, max_bytes=max_bytes)


# --- frames and their index ---


def written(content: bytes) -> io.BytesIO:
    out = io.BytesIO()
    writer = frames.FrameWriter(out, 1)
    for start in range(0, len(content), 70_001):
        writer.write(content[start : start + 70_001])
    writer.finish()
    return out


def reading_from(out: io.BytesIO, offset: int) -> bytes:
    out.seek(offset)
    return zstandard.ZstdDecompressor().stream_reader(out, read_across_frames=True, closefd=False).read()


@pytest.mark.parametrize("end", [b"", b"no newline"])
def test_reading_begins_in_the_frame_of_the_line(monkeypatch, end):
    monkeypatch.setattr(frames, "FRAME_BYTES", 1000)
    content = b"".join(b"line %d %s\n" % (i, b"y" * (i % 97 * (50 if i % 100 == 0 else 1))) for i in range(1, 501)) + end
    out = written(content)
    assert reading_from(out, 0) == content
    index = frames.read_index(out)
    assert index is not None
    assert index.n_lines == 500 + bool(end)
    for line in range(1, index.n_lines + 3):
        offset, at = index.begin(line)
        found = evidence_text.read_lines(io.BytesIO(reading_from(out, offset)), line, 2, at=at)
        assert found == evidence_text.read_lines(io.BytesIO(content), line, 2)
        if 300 < line <= 500:
            assert offset > 0


@pytest.mark.parametrize("content", [b"", b"a\nb\n", b"x" * 4096])
def test_a_file_of_one_frame_or_of_none_needs_no_index(content):
    out = written(content)
    assert frames.read_index(out) is None
    assert reading_from(out, 0) == content


def test_an_index_that_does_not_fit_its_file_is_none(monkeypatch):
    monkeypatch.setattr(frames, "FRAME_BYTES", 1000)
    whole = written(b"line\n" * 5000).getvalue()
    assert frames.read_index(io.BytesIO(whole)) is not None
    for broken in (whole[1:], whole[:-1], whole + b"x", whole[:-9] + b"\xff" + whole[-8:], whole[-20:], whole[-12:]):
        assert frames.read_index(io.BytesIO(broken)) is None


def test_what_was_stored_as_one_frame_before_is_read_as_ever(people, tmp_path):
    content = b"".join(b"line %d\n" % i for i in range(1, 2001))
    blob = stored(people, content)
    (tmp_path / blob.path).write_bytes(zstandard.ZstdCompressor().compress(content))
    stream, at, n_lines = store.open_at_line(blob, 1990)
    with stream:
        assert evidence_text.read_lines(stream, 1990, 1, at=at).lines == [evidence_text.Line(1990, "line 1990")]
    assert n_lines is None


# --- search ---


def found_in(content: bytes, text: str, current: int = 0, **more: float) -> evidence_search.Found:
    return evidence_search.search(io.BytesIO(content), text, current, **more)


def test_search_counts_lines_and_knows_the_neighbours():
    content = b"Error one error\nnothing\nan \x1b[31merr\x1b[0mor\n\nERROR last"
    found = found_in(content, "error", 3)
    assert (found.n, found.n_to_current, found.first, found.previous, found.following, found.more) == (3, 2, 1, 1, 5, False)
    assert (found_in(content, "error").current, found_in(content, "error").following) == (1, 3)
    assert found_in(content, "absent").n == 0
    assert found_in(content, "").n == 0
    assert found_in("größe\n".encode(), "größe").n == 1
    assert found_in(content, "error", since=2).first == 3


def test_a_count_ends_and_neighbours_are_still_found_behind_it():
    content = b"hit\nmiss\n" * 200_000
    found = found_in(content, "hit")
    assert (found.n, found.more, found.first, found.following) == (evidence_search.MOST_HITS, True, 1, 3)
    deep = found_in(content, "hit", 300_000)
    assert (deep.previous, deep.following, deep.n, deep.n_to_current, deep.more) == (299_999, 300_001, 1000, 0, True)
    last = found_in(content, "hit", 400_000)
    assert (last.previous, last.following) == (399_999, 0)


def test_a_hit_over_the_seam_of_two_blocks_is_found_once():
    for shift in range(-8, 3):
        content = b"x" * (MIB + shift) + b"needle" + b"y" * MIB + b"\nnext needle"
        found = found_in(content, "needle")
        assert (found.n, found.first, found.following) == (2, 1, 2)


def test_a_search_that_takes_too_long_says_how_far_it_came():
    found = found_in(b"line\n" * 1_000_000 + b"needle\n", "needle", seconds=-1)
    assert found.more
    assert 0 < found.searched_to < 1_000_000


# --- what is shown ---


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("a\x1bZ\x00\x07b", "a␛Z␀␇b"),
        ("50%\r100%", "50%␍100%"),
        ("tab\tstays", "tab\tstays"),
        ("abc\u202etxt.exe\u2069", "abc<202E>txt.exe<2069>"),
        ("\x9b31m", "<009B>31m"),
        ("ünïcode 日本 🎈", "ünïcode 日本 🎈"),
    ],
)
def test_codes_are_left_out_and_controls_made_visible(text, shown):
    assert evidence_text.visible(text) == shown


def test_a_page_of_long_lines_stays_a_page():
    content = (b"z" * 5000 + b"\n") * 2000
    found = evidence_text.read_lines(io.BytesIO(content), 1, 2000, whole=1500)
    assert len(found.lines) == 2000
    assert sum(len(line.text) for line in found.lines) < 1.5 * evidence_text.MAX_PAGE_CHARS
    assert len(found.lines[1499].text) == evidence_text.MAX_LINE_CHARS
    assert all(len(line.text) + line.n_cut == 5000 for line in found.lines)


# --- the page ---


@pytest.fixture
def great(people: sample.People) -> tuple[sample.People, EvidenceFile]:
    """A trial whose log has 200 MB."""
    blob = stored(people, great_log(), digest=SHA256)
    file = EvidenceFile.objects.get(attempt=small(people).attempts[0], name="server.log")
    file.blob = blob
    file.save()
    return people, file


def page(user, file: EvidenceFile, query: str = "") -> str:
    answer = as_user(user).get(reverse("evidence", args=[file.attempt_id, file.name]) + query)
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_log_of_200_mb_is_read_near_its_line_in_little_memory(great, monkeypatch):
    """The last page, the line of 50 MB, a search through it all and a line that a number came from."""
    people, file = great
    assert file.blob.bytes > 199_000_000
    n_lines = BEFORE + 1 + BEHIND + 2
    reads: list[int] = []
    opened = store.open_at_line

    class Counting:
        def __init__(self, stream):
            self._stream = stream

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self._stream.close()

        def read(self, n):
            piece = self._stream.read(n)
            reads.append(len(piece))
            return piece

    def counted(blob, line):
        stream, at, n = opened(blob, line)
        return Counting(stream), at, n

    monkeypatch.setattr("specweb.dashboard.log_page.open_at_line", counted)
    tracemalloc.start()
    last = page(people.owner, file, f"?line={n_lines}")
    assert sum(reads) < 3 * frames.FRAME_BYTES
    assert f'id="L{n_lines}" class="hit"' in last
    assert f"{n_lines:,} lines" in html.unescape(last)
    reads.clear()
    hit = page(people.owner, file, "?q=needle")
    assert sum(reads) >= file.blob.bytes  # from the first to the last byte
    assert f'id="L{n_lines - 1}" class="hit"' in hit
    assert "a <mark>Needle</mark> &lt;b&gt;here&lt;/b&gt;" in hit
    dense = html.unescape(page(people.owner, file, f"?q=n_decoded&line={BEFORE + 5}"))
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "1,000 lines or more" in dense
    assert "47.7 MiB more in the raw file" in dense
    assert taken < 40 * MIB
    assert f"?q=n_decoded&line={BEFORE + 4}#L{BEFORE + 4}" in dense

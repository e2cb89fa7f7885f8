"""Model files, folders and standing servers whose makers meant no good, or nothing: named and left out, and the agent goes on."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from specagent import attached
from specagent.asking import Address
from specagent.config import Config, RuntimeEntry
from specagent.filecache import FileCache
from specagent.gguf_shape import memory_shape
from specagent.inventory import Host, take_inventory
from specagent.ready import fetch

Make = Callable[[Path], object]


def taken(folder: Path, **more: object) -> Host:
    config = Config(state_dir=folder.parent / "state", model_folders=[folder], **more)
    host = take_inventory(config, FileCache(folder.parent / "files.json"))
    json.dumps(host.inventory.model_dump(mode="json"), ensure_ascii=False, allow_nan=False).encode()  # as it is sent
    assert len(host.inventory.content_hash()) == 64
    assert all(p == p.replace("\x1b", "").replace("\n", "") for p in host.inventory.problems)
    return host


def weights(path: Path, header: bytes = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}') -> None:
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 8)


def model(config: str = "{}", tokenizer: str = "", header: bytes | None = None) -> Make:
    def make(folder: Path) -> None:
        (folder / "m").mkdir()
        (folder / "m/config.json").write_text(config)
        if tokenizer:
            (folder / "m/tokenizer.json").write_text(tokenizer)
        weights(folder / "m/model.safetensors", *([header] if header else []))

    return make


def vocabulary(vocab: object, **more: object) -> Make:
    return model(tokenizer=json.dumps({"model": {"vocab": vocab, **more}, **more}))


def link_to_itself(folder: Path) -> None:
    model()(folder)
    (folder / "m/more.safetensors").symlink_to("more.safetensors")


def pipe_among_weights(folder: Path) -> None:
    model()(folder)
    os.mkfifo(folder / "m/more.safetensors")


def no_utf8(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.gguf")).write_bytes(b"GGUF")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(lambda d: (d / "a.gguf").symlink_to("a.gguf"), "Too many levels of symbolic links", id="a link to itself"),
        pytest.param(link_to_itself, "Too many levels of symbolic links", id="one among the weights"),
        pytest.param(lambda d: os.mkfifo(d / "a.gguf"), "no plain file", id="a pipe"),
        pytest.param(pipe_among_weights, "no plain file", id="a pipe among the weights"),
        pytest.param(no_utf8, "is no UTF-8", id="a name of other bytes"),
        pytest.param(lambda d: (d / "\x1b]0;hi\n[ ok ].gguf").write_bytes(b"GGUF"), "a control character", id="a name for terminals"),
        pytest.param(lambda d: (d / f"{'x' * 220}.gguf").write_bytes(b"GGUF"), "220 characters", id="a long name"),
        pytest.param(model("[" * 100_000), "nested too deeply", id="deep settings"),
        pytest.param(model(header=b"[" * 200_000), "header can't be read", id="a deep header"),
        pytest.param(model(header=b'{"a":{"dtype":"F","shape":[1e999]}}'), "header can't be read", id="a size without end"),
        pytest.param(vocabulary({"a": None}), "holds what can't be read", id="a token of no number"),
        pytest.param(vocabulary([1]), "holds what can't be read", id="a vocabulary of numbers"),
        pytest.param(vocabulary([[]]), "holds what can't be read", id="a vocabulary of nothing"),
        pytest.param(vocabulary({"a": 0}, merges=5), "holds what can't be read", id="merges of no list"),
        pytest.param(vocabulary({"a": 0}, added_tokens=5), "holds what can't be read", id="added tokens of no list"),
    ],
)
def test_a_bad_file_is_named_and_the_others_are_offered(make: Make, said: str, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    make(folder)
    (folder / "good").mkdir()
    model()(folder / "good")
    (folder / "good/m").rename(folder / "good/sound")
    inventory = taken(folder).inventory
    assert [m.alias for m in inventory.models] == ["sound"]
    assert any(said in problem for problem in inventory.problems), inventory.problems


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(model('{"architectures": ["\\ud800"], "limit": [0.0, Infinity]}'), id="half of a character, and no number"),
        pytest.param(model(tokenizer="[" * 100_000), id="a tokenizer that can't be read"),
        pytest.param(vocabulary({"\ud800": 0}), id="half of a character in the vocabulary"),
    ],
)
def test_what_matters_to_nobody_stops_nobody(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    make(folder)
    assert [m.alias for m in taken(folder).inventory.models] == ["m"]


def test_names_in_a_file_move_no_cursor_and_forge_no_line(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    model(json.dumps({"architectures": ["x\n[ ok ] engine: fine\x1b[2J" + "y" * 500]}))(folder)
    (found,) = taken(folder).inventory.models
    assert found.architecture.startswith("x [ ok ] engine: fine\ufffd[2J")
    assert len(found.architecture) == 80


def test_a_split_model_that_promises_very_many_parts_holds_nobody_up(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "a-00001-of-99999.gguf").write_bytes(b"GGUF")
    assert any("a-00002-of-99999.gguf can't be read" in p for p in taken(folder).inventory.problems)


def test_a_file_that_promises_very_many_blocks_is_refused() -> None:
    class Field:
        def contents(self) -> int:
            return 2**40

    class Reader:
        tensors = ()

        def get_field(self, name: str) -> Field | None:
            return Field() if name == "llama.block_count" else None

    with pytest.raises(ValueError, match="1,099,511,627,776 blocks"):
        memory_shape([Reader()], "llama")


# --- servers that stand already ---

Answer = Callable[[socket.socket], object]


def said(body: str) -> Answer:
    data = body.encode("utf-8", "surrogatepass")
    return lambda client: client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data))


@pytest.fixture
def lying() -> Iterator[Callable[[Answer], str]]:
    """A server that answers every request as it is told, byte by byte."""
    listening: list[socket.socket] = []

    def answer(server: socket.socket, give: Answer) -> None:
        while True:
            try:
                client, _ = server.accept()
                with client:
                    client.recv(1 << 16)
                    give(client)
            except OSError:
                if server.fileno() < 0:
                    return

    def stand(give: Answer) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)
        threading.Thread(target=answer, args=(server, give), daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}"

    yield stand
    for server in listening:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


@pytest.mark.parametrize(
    ("give", "words"),
    [
        pytest.param(said("[" * 100_000), "nested too deeply", id="deep"),
        pytest.param(said('{"build_info": "b", "x": NaN}'), "no number of JSON", id="no number"),
        pytest.param(said('{"build_info": "' + "b" * 5000 + '"}'), "calls its build by a name of 5,000 characters", id="long"),
        pytest.param(said('{"build_info": "b", "model_path": "' + "m" * 5000 + '"}'), "calls its model by a name", id="long model"),
        pytest.param(
            lambda c: c.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"),
            "answers 302",
            id="sends on",
        ),
    ],
)
def test_a_server_that_says_what_can_t_be_kept_is_no_runtime(
    lying: Callable[[Answer], str], give: Answer, words: str, tmp_path: Path
) -> None:
    (tmp_path / "models").mkdir()
    inventory = taken(tmp_path / "models", runtimes=[RuntimeEntry(servers={"off": lying(give)})]).inventory
    assert inventory.runtimes == []
    (broken,) = inventory.broken_runtimes
    assert words in broken.why
    assert "the server of 'off'" in broken.why


def test_a_server_of_odd_names_is_told_in_one_line(lying: Callable[[Answer], str], tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    url = lying(said('{"build_info": "b\\n\\u001b[2J\\ud800", "model_path": "/x/\\u202e<b>"}'))
    inventory = taken(tmp_path / "models", runtimes=[RuntimeEntry(servers={"off": url})]).inventory
    (found,), (served,) = inventory.runtimes, inventory.models
    assert found.version == "b \ufffd[2J?"
    assert served.alias == "\ufffd<b>"


def test_an_answer_that_never_ends_is_given_up(lying: Callable[[Answer], str]) -> None:
    def drip(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(200):
            client.sendall(b" ")
            time.sleep(0.02)

    def flood(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(200):
            client.sendall(b" " * (1 << 20))

    for give, words in ((drip, r"only a part of one"), (flood, r"more than 32 MiB")):
        at: Address = attached.address_of(lying(give))
        with pytest.raises(OSError, match=words):
            fetch(at, "/props", timeout_s=0.5 if give is drip else 30)

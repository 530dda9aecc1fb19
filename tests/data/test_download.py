"""Downloads from a server on this machine: whole, resumed, wrong, refused."""

import dataclasses
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from manyhands.data import catalog, download
from manyhands.errors import DataError

CONTENT = {"adult.data": bytes(range(256)) * 2000, "adult.test": b"test" * 1000}


class Server(ThreadingHTTPServer):
    """Serves CONTENT; can ignore ranges, and can hang up after some bytes."""

    ranges, stop_after = True, 1 << 60

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str | None]] = []
        self.address = f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name, asked = self.path[1:], self.headers["Range"]
        self.server.asked.append((name, asked))
        if name not in CONTENT:
            self.send_error(404)
            return
        content = CONTENT[name]
        begin = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranges else 0
        if begin >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:][: self.server.stop_after])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adult, with the checksum of what this server has."""
    first = catalog.Remote("adult.data", hashlib.sha256(CONTENT["adult.data"]).hexdigest())
    entry = dataclasses.replace(catalog.KNOWN["adult"], files=(first, catalog.Remote("adult.test")))
    monkeypatch.setitem(catalog.KNOWN, "adult", entry)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if each.name != ".lock")


def test_whole(server: Server, home: Path) -> None:
    folder = download.get("adult", address=server.address)
    assert folder == home / "downloads" / "adult"
    assert names(folder) == ["adult.data", "adult.test"]
    assert all((folder / name).read_bytes() == content for name, content in CONTENT.items())
    asked = len(server.asked)
    assert download.get("adult", address=server.address) == folder
    assert len(server.asked) == asked, "what is here is not fetched again"


@pytest.mark.parametrize("ranges", [True, False])
def test_interrupted_then_resumed(server: Server, tmp_path: Path, ranges: bool) -> None:
    server.ranges, server.stop_after = ranges, 300_000
    with pytest.raises(DataError, match=r"adult.data .*300,000 of 512,000.*run it again"):
        download.get("adult", tmp_path / "set", server.address)
    assert names(tmp_path / "set") == ["adult.data.part"]
    server.stop_after = 1 << 60
    download.get("adult", tmp_path / "set", server.address)
    assert server.asked[1] == ("adult.data", "bytes=300000-")
    assert all((tmp_path / "set" / name).read_bytes() == content for name, content in CONTENT.items())


def test_half_a_set_is_not_taken_for_a_whole_one(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(CONTENT, "adult.test")
    with pytest.raises(DataError, match=r"adult.test \(Not Found\).*put adult.data, adult.test into"):
        download.get("adult", tmp_path / "set", server.address)
    assert names(tmp_path / "set") == ["adult.data.part"]
    monkeypatch.undo()


@pytest.mark.parametrize(("extra", "asked"), [(b"", 1), (b"too much", 2)])
def test_a_part_that_is_long_enough_already(server: Server, tmp_path: Path, extra: bytes, asked: int) -> None:
    (tmp_path / "adult.data").write_bytes(CONTENT["adult.data"])
    (tmp_path / "adult.test.part").write_bytes(CONTENT["adult.test"] + extra)
    download.get("adult", tmp_path, server.address)
    assert (tmp_path / "adult.test").read_bytes() == CONTENT["adult.test"]
    assert len(server.asked) == asked


def test_a_wrong_checksum_is_removed(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONTENT, "adult.data", b"something else")
    with pytest.raises(DataError, match=r"adult.data has the SHA-256 .*was removed"):
        download.get("adult", tmp_path / "set", server.address)
    assert names(tmp_path / "set") == []


def test_the_server_is_gone(tmp_path: Path) -> None:
    with Server() as gone:
        address = gone.address
    with pytest.raises(DataError, match=r"cannot download .*refused.*put adult.data, adult.test into") as caught:
        download.get("adult", tmp_path / "set", address)
    assert "\n" not in str(caught.value)


def test_what_cannot_or_need_not_be_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataError, match=r"put train.zip into .*Kaggle asks for a login"):
        download.get("dogs-vs-cats")
    with pytest.raises(DataError, match="unknown data set 'mnits': did you mean 'mnist'"):
        download.get("mnits")
    download.get("digits")
    assert "made here" in capsys.readouterr().err
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.csv").touch()
    monkeypatch.setenv("MANYHANDS_DATA", str(tmp_path))
    assert download.get("adult") == tmp_path / "adult"

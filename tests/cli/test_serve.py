"""`manyhands serve` as a process: what it says, how it ends, and its errors."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

Start = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts the command and gives its process and its first line."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: object) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "manyhands", "serve", *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline()

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_interrupted(start: Start, tmp_path: Path, how: signal.Signals) -> None:
    process, line = start(tmp_path, "--port", 0, "--json")
    told = json.loads(line)
    assert told == {
        "url": f"http://127.0.0.1:{told['port']}/",
        "folder": str(tmp_path.resolve()),
        "host": "127.0.0.1",
        "port": told["port"],
    }
    with httpx.Client() as client, client.stream("GET", f"{told['url']}events") as events:
        lines = events.iter_lines()
        assert next(lines).startswith("retry")  # a page is open
        process.send_signal(how)
        list(lines)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")


def test_it_says_where_it_is(start: Start, tmp_path: Path) -> None:
    _, line = start(tmp_path, "--port", 0)
    assert line.startswith(f"the runs in {tmp_path} are at http://127.0.0.1:")
    _, line = start(tmp_path, "--port", 0, "--quiet")
    assert httpx.get(line.strip()).status_code == 200


def test_bound_elsewhere_its_address_has_the_token(start: Start, tmp_path: Path) -> None:
    _, line = start(tmp_path, "--host", "0.0.0.0", "--port", 0, "--json")
    told = json.loads(line)
    here = f"http://127.0.0.1:{told['port']}/api/runs"
    assert httpx.get(here).status_code == 401
    assert httpx.get(f"{here}?{told['url'].partition('?')[2]}").status_code == 200


def test_a_port_that_is_taken(manyhands: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = manyhands("serve", tmp_path, "--port", port)
    assert said.code == 2
    assert said.error == f"port {port} of 127.0.0.1 is taken: choose another with --port, or --port 0 for a free one"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing"], "there is no folder missing: "),
        ([".", "--port", "70000"], "--port 70000: allowed are 0 to 65535"),
        ([".", "--port", "-1"], "--port -1: allowed are 0 to 65535"),
        ([".", "--port", "http"], "Invalid value for '--port'"),
        ([".", "--host", "192.0.2.1"], "--host 192.0.2.1 is no address of this machine"),
        ([".", "--host", "no such host"], "--host no such host is no address of this machine"),
        ([".", "--host", "a..b"], "--host a..b is no address of this machine"),
    ],
)
def test_errors_are_one_line(
    manyhands: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = manyhands("serve", *arguments)
    assert said.code == 2
    assert said.error.startswith(words)
    as_json = manyhands("serve", *arguments, "--json")
    assert as_json.json["exit_code"] == 2

"""The live page's server: what it answers, to whom, and what it refuses."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import fake_study
from live_server import Start, begin, start
from manyhands.runs import run_folder

MakeRun = Any
__all__ = ["start"]  # a fixture


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Of one server for all tests that change nothing; its folder has one run, which has just begun."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "one").mkdir()
    run_folder.create(folder / "one", {"plan_words": "plain"})
    served = begin(folder)
    yield served.client
    served.end()


def ids(client: httpx.Client) -> dict[str, str]:
    return {row["name"]: row["id"] for row in client.get("/api/runs").json()["rows"]}


def test_the_page_and_its_parts_come_from_here_with_strict_headers(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.status_code == 200
    parts = [part.split('"')[0] for part in page.text.split('="/')[1:]]
    assert {"live.css", "app.js"} <= set(parts)
    for address in ("/", *(f"/{part}" for part in parts), "/api/runs", "/nothing"):
        headers = client.get(address).headers
        assert "default-src 'none'; script-src 'self'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert not [name for name in headers if name.startswith("access-control")]
        assert "server" not in headers
    assert "http://" not in page.text.replace("http://www.w3.org", "")
    assert "https://" not in page.text


def test_plotly_comes_small_and_once(client: httpx.Client) -> None:
    small = client.get("/plotly.js", headers={"accept-encoding": "gzip"})
    assert small.headers["content-encoding"] == "gzip"
    assert "immutable" in small.headers["cache-control"]
    assert small.text == client.get("/plotly.js", headers={"accept-encoding": "identity"}).text
    again = client.get("/plotly.js", headers={"if-none-match": small.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_list_a_run_and_a_comparison(start: Start, make_run: MakeRun) -> None:
    make_run("one", 1000.0)
    make_run("two", 2000.0)
    client = start().client
    known = ids(client)
    assert known.keys() == {"one", "two"}
    detail = client.get(f"/api/runs/{known['one']}").json()
    assert detail["row"]["samples_per_s"] == 1000.0
    assert len(detail["curve"]["loss"]) == 40
    assert [layer["name"] for layer in detail["record"]["layers"]] == ["conv1", "flatten", "dense"]
    compared = client.get("/api/compare", params={"run": [known["two"], known["one"]]}).json()
    assert [row["name"] for row in compared["rows"]] == ["two", "one"]
    for address in ("/", "/api/runs", "/events", "/plotly.js"):
        assert client.head(address).status_code == 200


@pytest.mark.parametrize("count", [0, 51])
def test_too_few_or_too_many_cannot_be_compared(client: httpx.Client, count: int) -> None:
    answer = client.get("/api/compare", params={"run": [f"r{number}" for number in range(count)]})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(f"{count} runs cannot be compared")


@pytest.mark.parametrize(
    "address",
    [
        "/api/runs/unknown",
        "/api/compare?run=unknown",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/api/runs/..",
        "/api/runs/%2e%2e",
        "/api/runs/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/api/runs/%2Fetc%2Fpasswd",
        "/api/runs//etc/passwd",
        "/api/runs/one%00",
        "/api/runs/one/run.json",
        "/one/run.json",
        "/index.html",
        "/live/app.js",
        "/__init__.py",
    ],
)
def test_no_address_leads_to_a_file(client: httpx.Client, address: str) -> None:
    request = client.build_request("GET", "/")
    request.url = request.url.copy_with(raw_path=address.encode())  # as it stands, not made tidy
    answer = client.send(request)
    assert answer.status_code == 404
    assert set(answer.json()) == {"error"}
    assert "root:" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "MADEUP"])
@pytest.mark.parametrize("address", ["/", "/api/runs", "/events"])
def test_it_only_reads(client: httpx.Client, method: str, address: str) -> None:
    answer = client.request(method, address)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1234", 200),
        ("127.0.0.1:8400", 200),
        ("[::1]:8400", 200),
        ("evil.example", 421),
        ("evil.example:8400", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("[::1].evil.example", 421),
        ("evil.example:[::1]", 421),
        ("[evil.example]", 421),
        ("", 421),
    ],
)
def test_on_loopback_only_its_names_are_answered(client: httpx.Client, host: str, status: int) -> None:
    """A web site whose name leads to 127.0.0.1 must not read runs through a visitor's browser."""
    for address in ("/", "/api/runs", "/plotly.js"):
        assert client.get(address, headers={"host": host}).status_code == status


def test_elsewhere_a_token_opens_and_becomes_a_cookie(start: Start) -> None:
    served = start(host="0.0.0.0")
    client, address = served.client, served.server.address
    assert address.token is not None
    assert len(address.token) >= 32
    assert address.url.endswith(f":{address.port}/?token={address.token}")
    for path in ("/", "/api/runs", "/events", "/plotly.js", "/nothing"):
        assert client.get(path).status_code == 401
        for wrong in ("wrong", address.token[:-1], f"{address.token}x", "é", ""):
            answer = client.get(path, params={"token": wrong}, headers={"cookie": f"manyhands-{address.port}=wrong"})
            assert answer.status_code == 401
            assert "set-cookie" not in answer.headers
    opened = client.get("/", params={"token": address.token})
    assert opened.status_code == 200
    assert opened.headers["set-cookie"].endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert client.get("/api/runs").status_code == 200  # by the cookie
    assert client.get("/api/runs", headers={"host": "any.example"}).status_code == 200
    assert client.post("/api/runs").status_code == 405


def test_a_token_is_another_one_each_time(start: Start) -> None:
    assert start(host="0.0.0.0").server.address.token != start(host="0.0.0.0").server.address.token


def test_whatever_a_run_says_is_said_as_json(start: Start, make_run: MakeRun) -> None:
    evil = "<script>alert(1)</script>\ud800"
    make_run("<img src=x onerror=alert(1)>", config={"model": {"name": evil}}, command=evil, case=evil)
    make_run("failed", speed=None, error=evil)
    client = start().client
    for address in ("/api/runs", *(f"/api/runs/{id}" for id in ids(client).values())):
        answer = client.get(address)
        assert answer.headers["content-type"] == "application/json"
        assert answer.status_code == 200
    assert {row["error"] for row in client.get("/api/runs").json()["rows"]} == {None, evil}
    (name,) = (row["name"] for row in client.get("/api/runs").json()["rows"] if row["model"] == evil)
    assert name.startswith("<img")


def test_the_name_of_the_folder_is_text(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / '"><script>alert(1)<'
    folder.mkdir()
    page = start(folder=folder).client.get("/").text
    assert "<script>alert" not in page
    assert "&quot;&gt;&lt;script&gt;alert(1)&lt;" in page


def test_studies_and_those_that_cannot_be_read(start: Start, tmp_path: Path) -> None:
    client = start().client
    before = client.get("/api/runs").json()
    assert client.get("/api/studies").json() == {"studies": []}
    fake_study.write(tmp_path / "one", **fake_study.simulated())
    fake_study.write(tmp_path / "bad", rows=[1])
    time.sleep(0.3)
    after = client.get("/api/runs").json()
    assert after["studies"] != before["studies"]
    assert after["tag"] != before["tag"]
    bad, one = client.get("/api/studies").json()["studies"]
    assert (bad["name"], one["name"], one["error"]) == ("bad", "one", None)
    assert "study.json cannot be read" in bad["error"]
    assert one["columns"] == ["case", "samples a second", "step ms", "found"]
    assert one["lines"][1] == ["Small, batch 32, auto", "3,200", "10", "owt:4"]
    assert one["finding"].startswith("The source's finding")


def test_a_study_is_not_read_through_a_link(start: Start, tmp_path: Path) -> None:
    served = tmp_path / "served"
    (served / "one").mkdir(parents=True)
    (served / "one" / "study.json").symlink_to(fake_study.write(tmp_path / "elsewhere") / "study.json")
    assert start(folder=served).client.get("/api/studies").json() == {"studies": []}


def test_it_stays_up_beside_damaged_runs(start: Start, make_run: MakeRun, tmp_path: Path) -> None:
    one = make_run("one")
    client = start().client
    known = ids(client)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("[" * 100_000)
    (one.folder / "run.json").write_text("{")
    time.sleep(0.3)
    answer = client.get("/api/runs").json()
    assert answer["rows"] == []
    assert [warning.split(":")[0] for warning in answer["warnings"]] == ["bad", "one"]
    gone = client.get(f"/api/runs/{known['one']}")
    assert gone.status_code == 404
    assert "run.json is no JSON" in gone.json()["error"]

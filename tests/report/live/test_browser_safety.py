"""The live page in a real browser when runs are hostile, damaged or very many, and when the server goes away."""

import json
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from browser import MakePage, pages
from live_server import Start, begin, start
from manyhands.runs import run_folder

MakeRun = Any
__all__ = ["pages", "start"]  # fixtures

EVIL = "<img src=x onerror=\"alert('in')\"><script>alert(1)</script><b>&amp;%{x}</b>"


def test_what_a_run_says_is_never_more_than_text(
    pages: MakePage, start: Start, make_run: MakeRun, tmp_path: Path
) -> None:
    """Names, cases, config values, plan words, layers, lanes, logs and errors, in every view and in the plots."""
    layers = [{"name": EVIL, "kind": EVIL, "parameters": 1, "forward_ms": 1.0, "backward_ms": 1.0}]
    evil: dict[str, Any] = {
        "config": {"model": {"name": EVIL, EVIL: EVIL}, "data": {"name": EVIL}},
        "plan": {EVIL: EVIL},
        "versions": {EVIL: EVIL},
        "layers": layers,
        "trials": [{"plan": EVIL, "error": EVIL}],
        **dict.fromkeys(("case", "plan_words", "command", "machine_words"), EVIL),
    }
    one = make_run("<i onclick=alert(1)>one", **evil)
    lane = {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": EVIL}}
    span = {"ph": "X", "name": EVIL, "cat": EVIL, "pid": 0, "tid": 0, "ts": 0.0, "dur": 9.0}
    (one.folder / "timeline.json").write_text(json.dumps({"traceEvents": [lane, span]}))
    (one.folder / "log.txt").write_text(EVIL)
    make_run("failed", None, error=EVIL)
    (tmp_path / EVIL.replace("/", "")).mkdir()
    (tmp_path / EVIL.replace("/", "") / "run.json").write_text("{")
    served = start()
    watched = pages()
    page = watched.page
    page.goto(f"http://127.0.0.1:{served.server.address.port}/")
    expect(page.get_by_text("1 warning")).to_be_visible()
    page.get_by_text("1 warning").click()
    for box in page.locator("#list input[type=checkbox]").all():
        box.check()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("#compare .main-svg").first).to_be_visible()
    page.get_by_role("link", name="<i onclick=alert(1)>one").click()
    expect(page.locator("#run .gantt .bars path").first).to_be_visible()
    page.locator("#run .gantt .bars path").first.hover(force=True)
    expect(page.locator("#run .hovertext").first).to_contain_text("<b>&amp;%{x}</b>")
    expect(page.locator("#run .log")).to_have_text(EVIL)
    assert page.locator("main img, main b[onclick], main i[onclick], main script").count() == 0
    page.get_by_role("link", name="← All runs").click()
    page.get_by_role("link", name="failed").click()
    expect(page.locator("#run .error")).to_have_text(EVIL)
    assert page.locator("main img, main script").count() == 0
    assert watched.problems == []  # dialogs count among them
    assert watched.outside(f"http://127.0.0.1:{served.server.address.port}/") == []


def test_damaged_files_are_told_and_the_page_stays_up(
    pages: MakePage, start: Start, make_run: MakeRun, tmp_path: Path
) -> None:
    one = make_run("one")
    with (one.folder / "metrics.jsonl").open("a") as file:
        file.write("no metrics\n" * 3)
    (one.folder / "timeline.json").write_text("{}")
    (tmp_path / "bad").mkdir()
    with (tmp_path / "bad" / "run.json").open("wb") as file:  # type: ignore[assignment]
        file.truncate(20_000_000)
    watched = pages()
    page = watched.page
    page.goto(f"http://127.0.0.1:{start().server.address.port}/")
    page.get_by_text("1 warning: some files are skipped").click()
    expect(page.get_by_text("bad: run.json has 20 MB: more than 16 are not read")).to_be_visible()
    page.get_by_role("link", name="one", exact=True).click()
    expect(page.get_by_text("3 lines of metrics.jsonl are no metrics and were passed over")).to_be_visible()
    expect(page.get_by_text("timeline.json is no timeline")).to_be_visible()
    expect(page.locator("#run .scatterlayer path.js-line").first).to_be_visible()
    (tmp_path / "bad" / "run.json").unlink()
    expect(page.get_by_text("1 warning")).to_have_count(0)
    assert watched.problems == []


def test_a_thousand_runs_are_drawn_by_and_by(pages: MakePage, start: Start, tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"run-{number:04}").mkdir()
        (tmp_path / f"run-{number:04}" / "run.json").write_text('{"status": "interrupted", "plan_words": "plain"}')
    served = start()
    watched = pages()
    page = watched.page
    page.goto(f"http://127.0.0.1:{served.server.address.port}/")
    names = page.locator("#list td.name a")
    expect(names).to_have_count(200)
    page.get_by_role("button", name="Show more of 1,000 runs").click()
    expect(names).to_have_count(400)
    page.get_by_label("Filter runs").fill("run-0999")
    expect(names).to_have_text(["run-0999"])
    page.get_by_label("Compare run-0999").check()
    page.get_by_label("Compare run-0999").focus()
    run_folder.load(tmp_path / "run-0999").update(status="failed", error="out of memory")
    expect(page.locator("#list .chip.failed")).to_be_visible()
    expect(page.get_by_label("Compare run-0999")).to_be_checked()
    expect(page.get_by_label("Compare run-0999")).to_be_focused()  # the row was changed in its place
    assert watched.problems == []


def test_a_page_finds_its_server_again(pages: MakePage, make_run: MakeRun, tmp_path: Path) -> None:
    make_run("one")
    first = begin(tmp_path)
    port = first.server.address.port
    page = pages().page
    page.goto(f"http://127.0.0.1:{port}/")
    expect(page.locator("#sign")).to_have_text("live")
    first.end()
    expect(page.locator("#sign")).to_have_text("reconnecting")
    make_run("two")
    second = begin(tmp_path, port=port)
    try:
        expect(page.locator("#sign")).to_have_text("live", timeout=20_000)
        expect(page.locator("#list td.name a")).to_have_text(["two", "one"])
    finally:
        page.close()
        second.end()


def test_a_token_is_taken_out_of_the_address(pages: MakePage, start: Start, make_run: MakeRun) -> None:
    make_run("one")
    address = start(host="0.0.0.0").server.address
    here = f"http://127.0.0.1:{address.port}/"
    watched = pages()
    page = watched.page
    page.goto(f"{here}?token={address.token}")
    page.get_by_role("link", name="one", exact=True).click()
    expect(page.locator("#run .main-svg").first).to_be_visible()
    assert page.url.startswith(f"{here}#run=")
    page.reload()
    expect(page.get_by_role("heading", name="one")).to_be_visible()
    assert page.evaluate("document.cookie") == ""  # no script can read it
    assert watched.problems == []


def test_it_can_be_used_without_a_mouse(pages: MakePage, start: Start, make_run: MakeRun) -> None:
    make_run("one")
    watched = pages()
    page = watched.page
    page.goto(f"http://127.0.0.1:{start().server.address.port}/")
    expect(page.locator("#list td.name a")).to_have_count(1)
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Filter runs")).to_be_focused()
    deadline = time.monotonic() + 20
    while page.evaluate("document.activeElement.textContent") != "one" and time.monotonic() < deadline:
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="one")).to_be_focused()
    assert watched.problems == []

"""The live page in a real browser: runs appear, train and end before one's eyes, on a desk and on a phone."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import fake_study
from browser import MakePage, Watched, pages
from live_server import Served, Start, start
from manyhands.timeline import Event, Timeline

MakeRun = Any
__all__ = ["pages", "start"]  # fixtures

TRAIN = [
    *("train", "mlp", "--data", "synthetic:1x10x10,4", "--epochs", "60", "--quiet"),
    *("--plan", "serial,precision=fp32,layout=contiguous,compile=off,threads=1"),
]
SIZES = {"desk": (1280, 900), "phone": (390, 844)}
SOON = 120_000  # milliseconds: a busy machine takes long to import torch


def own(served: Served) -> str:
    return f"http://127.0.0.1:{served.server.address.port}/"


def opened(pages: MakePage, served: Served, size: str = "desk", scheme: str = "light") -> Watched:
    width, height = SIZES[size]
    watched = pages(width=width, height=height, scheme=scheme)
    watched.page.goto(own(served))
    expect(watched.page.locator("#sign")).to_have_text("live")
    return watched


def well(watched: Watched, served: Served) -> None:
    """Nothing went wrong, nothing was asked of others, and the page is no wider than its window."""
    assert watched.problems == []
    assert watched.outside(own(served)) == []
    assert watched.overflow == 0


def row(page: Page, name: str) -> Any:
    return page.locator("#list tbody tr").filter(has=page.get_by_role("link", name=name, exact=True))


def range_of(page: Page) -> list[float]:
    found: list[float] = page.evaluate("document.querySelector('#run .gantt')._fullLayout.xaxis.range")
    return found


def test_a_real_training_is_seen_from_an_empty_folder_to_its_end(pages: MakePage, start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    served = start(folder=folder)
    watched = {size: opened(pages, served, size) for size in SIZES}
    for size, each in watched.items():
        expect(each.page.get_by_role("heading", name="No runs yet")).to_be_visible()
        expect(each.page.locator("pre").first).to_have_text(f"manyhands train convnet --out {folder}/first")
        each.page.evaluate("window.loadedOnce = true")
        each.shot(f"live-empty-{size}")
    command = [sys.executable, "-m", "manyhands", *TRAIN, "--out", str(folder / "first")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as training:
        wait_for_steps(folder / "first")
        training.send_signal(signal.SIGSTOP)  # so that it is still training when the slowest page has looked
        for size, each in watched.items():
            expect(row(each.page, "first").locator(".chip.running")).to_be_visible(timeout=SOON)
            expect(row(each.page, "first").get_by_role("progressbar")).to_be_visible()
            each.shot(f"live-running-{size}")
            each.page.get_by_role("link", name="first", exact=True).click()
            expect(each.page.locator("#run .wide", has_text="of 2,280")).to_be_visible()
            expect(each.page.locator("#run .scatterlayer path.js-line").first).to_be_visible()
            each.shot(f"live-training-{size}")
        training.send_signal(signal.SIGCONT)
        for each in watched.values():
            expect(each.page.locator("#run .chip.finished")).to_be_visible(timeout=SOON)
        assert training.wait() == 0
    for size, each in watched.items():
        page = each.page
        expect(page.locator("#run .tile", has_text="test accuracy")).to_be_visible()
        expect(page.locator("#run .gantt .bars path").first).to_be_visible()
        expect(page.get_by_role("region", name="Layers, and what each costs in a step")).to_be_visible()
        zoom(page, size)
        each.shot(f"live-finished-{size}")
        page.get_by_role("link", name="← All runs").click()
        expect(row(page, "first").locator(".chip.finished")).to_be_visible()
        assert page.evaluate("window.loadedOnce")  # it was never loaded again
        well(each, served)


def wait_for_steps(folder: Path) -> None:
    deadline = time.monotonic() + SOON / 1000
    while not ((metrics := folder / "metrics.jsonl").exists() and metrics.stat().st_size > 1000):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def zoom(page: Page, size: str) -> None:
    """Into the timeline: by dragging over a part of it, or, with a finger, by the buttons."""
    plot = page.locator("#run .gantt").first
    plot.scroll_into_view_if_needed()
    before = range_of(page)
    if size == "phone":
        plot.locator("[data-attr=zoom][data-val=in]").click()
    else:
        box = plot.locator(".nsewdrag").bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 0.3 * box["width"], middle)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=5)
        page.mouse.up()
    page.wait_for_function(
        "before => { const [low, high] = document.querySelector('#run .gantt')._fullLayout.xaxis.range;"
        " return high - low < 0.9 * (before[1] - before[0]); }",
        arg=before,
    )


@pytest.mark.parametrize("size", SIZES)
def test_a_study_without_runs_appears_by_itself(pages: MakePage, start: Start, tmp_path: Path, size: str) -> None:
    served = start()
    watched = opened(pages, served, size)
    page = watched.page
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    fake_study.write(tmp_path / "methods", **fake_study.simulated(), title="Methods <b onclick=alert(1)>")
    summary = page.locator("#list summary", has_text="Methods <b onclick=alert(1)>")
    expect(summary).to_contain_text("study by simulation · methods")
    expect(page.get_by_role("heading", name="No runs yet")).to_be_hidden()
    summary.click()
    expect(page.get_by_role("cell", name="owt:4").first).to_be_visible()
    expect(page.get_by_text("The source's finding that adam is best holds here")).to_be_visible()
    assert page.locator("main b[onclick]").count() == 0
    watched.shot(f"live-study-{size}")
    well(watched, served)


@pytest.mark.parametrize(("size", "scheme"), [("desk", "light"), ("desk", "dark"), ("phone", "light")])
def test_runs_are_filtered_sorted_and_compared(
    pages: MakePage, start: Start, make_run: MakeRun, size: str, scheme: str
) -> None:
    make_run("slow", 1000.0, 0.98)
    make_run("fast", 3000.0, 0.97, plan_words="serial,precision=bf16", plan={"axes": ["serial"], "precision": "bf16"})
    make_run("broken", None, error="out of memory at batch 256")
    served = start()
    watched = opened(pages, served, size, scheme)
    page = watched.page
    names = page.locator("#list td.name a")
    expect(names).to_have_count(3)
    page.get_by_role("button", name="Samples/s").click()
    expect(names).to_have_text(["fast", "slow", "broken"])
    page.get_by_role("button", name="Samples/s").press("Enter")
    expect(names).to_have_text(["slow", "fast", "broken"])  # what is unknown is last either way
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Samples/s")
    watched.shot(f"live-list-{size}-{scheme}")
    page.get_by_label("Filter runs").fill("BF16 serial")
    expect(names).to_have_text(["fast"])
    page.get_by_label("Filter runs").fill("nothing like it")
    expect(page.get_by_text("No run matches the filter.")).to_be_visible()
    page.get_by_label("Filter runs").fill("")
    page.get_by_role("button", name="1 failed").click()
    expect(names).to_have_text(["broken"])
    expect(page.get_by_text("out of memory at batch 256")).to_be_visible()
    page.get_by_role("button", name="3 runs").click()
    page.get_by_label("Compare slow").check()
    expect(page.get_by_role("button", name="Compare", exact=True)).to_be_disabled()
    page.get_by_label("Compare fast").press("Space")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("heading", name="2 runs compared")).to_be_focused()
    figures = page.get_by_role("region", name="Figures of the runs").locator("tbody tr")
    expect(figures.nth(1)).to_contain_text("3.0x")
    differing = page.get_by_role("region", name="Keys of plan and config in which the runs differ").locator("tbody tr")
    expect(differing).to_have_text(["plan.axesplainserial", "plan.precisionfp32bf16"])
    expect(page.locator("#compare [aria-label='Training loss'] .scatterlayer path.js-line")).to_have_count(2)
    page.get_by_role("button", name="by seconds").click()
    expect(page.locator("#compare .xtitle").first).to_have_text("seconds of training")
    expect(page.locator("#compare .main-svg").first).to_be_visible()
    assert page.locator("[data-title*=Share]").count() == 0  # Plotly offers to send plots to its own host
    watched.shot(f"live-compare-{size}-{scheme}")
    page.reload()  # the address names the view
    expect(page.get_by_role("heading", name="2 runs compared")).to_be_visible()
    page.go_back()
    expect(names).to_have_count(3)
    well(watched, served)


def test_predicted_and_measured_lie_on_one_axis(pages: MakePage, start: Start, make_run: MakeRun) -> None:
    run = make_run("one")
    for name, length in (("timeline", 2_000_000), ("predicted", 1_500_000)):
        events = (Event("step 1", "step", "rank 0", 0, length), Event("sum", "collective", "link", length // 2, length))
        Timeline.of(events).save(run.folder / f"{name}.json")
    served = start()
    watched = opened(pages, served)
    watched.page.get_by_role("link", name="one", exact=True).click()
    lanes = watched.page.locator("#run .gantt .ytick text")
    expect(lanes).to_have_count(4)
    assert set(lanes.all_text_contents()) == {"rank 0", "link", "rank 0, predicted", "link, predicted"}
    expect(watched.page.locator("#run .gantt .bars path")).to_have_count(4)
    well(watched, served)

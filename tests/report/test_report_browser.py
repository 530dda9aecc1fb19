"""The report in a real browser: drawn, zoomed, switched, in light and dark, on a desk and on a phone, offline."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import fake_study
from browser import MakePage, Watched, pages
from manyhands.report.gather import gather
from manyhands.report.page.page import page
from manyhands.runs.run_folder import Run
from manyhands.timeline import Event, Timeline

__all__ = ["pages"]  # a fixture

SECOND, MILLI = 10**9, 10**6
RANGE = "[...document.querySelectorAll('.plot')].find(plot => plot.ariaLabel === 'Timeline').layout.xaxis.range[0]"
PHONE = {"width": 390, "height": 844}
EVIL = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    '<a href="http://evil.example/">x</a>',
    "<b>bold</b> &amp; %{x}",
)


def with_timeline(run: Run, name: str = "steps") -> Run:
    lanes = [Event(f"{name} {at}", "train", "rank 0", at * SECOND, (at + 1) * SECOND) for at in range(9)]
    step = [Event("conv1", "forward", "layers of one step", 0, 20 * MILLI)]
    Timeline.of([*lanes, *step]).save(run.folder / "timeline.json")
    Timeline.of([Event("conv1", "forward", "cpu 0", 0, 25 * MILLI)]).save(run.folder / "predicted.json")
    return run


@pytest.fixture
def report(make_run: Any, tmp_path: Path) -> Path:
    """The page of a comparison of three, two runs each."""
    for at, (case, speed) in enumerate({"plain": 1000.0, "serial": 3000.0, "data:2": 3500.0}.items()):
        for repeat in range(2):
            with_timeline(make_run(f"{at}-{repeat}", speed + 20 * repeat, 0.97 + 0.01 * at, case=case))
    return written(tmp_path)


def written(folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(page(gather([folder], "manyhands report .")))
    return path


def opened(pages: MakePage, path: Path, **options: Any) -> Watched:
    """The page from a file, drawn, without a complaint and without asking for anything else."""
    watched = pages(**options)
    watched.page.goto(path.as_uri())
    watched.page.wait_for_function(
        "document.querySelectorAll('.js-plotly-plot .main-svg').length && "
        "[...document.querySelectorAll('.plot')].every(plot => plot.querySelector('.plot-container svg'))"
    )
    assert watched.problems == []
    assert watched.requests == [path.as_uri()]
    return watched


def panel(watched: Watched, title: str) -> Any:
    return watched.page.locator("figure", has=watched.page.get_by_role("heading", name=title, exact=True))


def axis_range(watched: Watched, title: str) -> list[float]:
    found: list[float] = panel(watched, title).locator(".plot").evaluate("plot => plot.layout.xaxis.range")
    return found


def test_everything_is_drawn(pages: MakePage, report: Path) -> None:
    watched = opened(pages, report)
    assert watched.page.locator("h1").inner_text().startswith("data:2 trained 3.5x as fast as plain PyTorch")
    assert watched.page.locator(".js-plotly-plot").count() == 6
    assert panel(watched, "Samples a second").locator(".bars .point > path").count() == 3
    assert panel(watched, "Training loss").locator(".scatterlayer path.js-line").count() == 6
    assert panel(watched, "Time and accuracy").locator(".points path").count() == 6
    watched.shot("report-desk-light")
    assert (watched.problems, watched.overflow) == ([], 0)


def test_the_timeline_can_be_zoomed_and_shown_whole_again(pages: MakePage, report: Path) -> None:
    watched = opened(pages, report)
    plot = panel(watched, "Timeline").locator(".nsewdrag")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    before = axis_range(watched, "Timeline")
    assert before[0] <= 0
    assert before[1] >= 9
    middle = box["y"] + box["height"] / 2
    watched.page.mouse.move(box["x"] + box["width"] * 0.3, middle)
    watched.page.mouse.down()
    watched.page.mouse.move(box["x"] + box["width"] * 0.5, middle, steps=8)
    watched.page.mouse.up()
    watched.page.wait_for_function(f"{RANGE} > {before[0] + 0.1}")
    after = axis_range(watched, "Timeline")
    assert after[1] - after[0] == pytest.approx(0.2 * (before[1] - before[0]), rel=0.05)
    watched.shot("report-timeline-zoomed", whole=False)
    panel(watched, "Timeline").locator("[data-title='Reset axes']").click()
    watched.page.wait_for_function(f"{RANGE} < {before[0] + 0.1}")
    assert axis_range(watched, "Timeline") == pytest.approx(before)
    assert watched.problems == []


def test_measured_and_predicted_lie_on_one_clock(pages: MakePage, report: Path) -> None:
    watched = opened(pages, report)
    timeline = panel(watched, "Timeline")
    timeline.get_by_role("button", name="plain: one step").click()
    names = timeline.locator(".yaxislayer-above text").all_text_contents()
    assert names == ["measured: layers of one step", "predicted: cpu 0"]
    widths = [bar.bounding_box()["width"] for bar in timeline.locator(".bars .point path").all()]
    assert widths[1] / widths[0] == pytest.approx(25 / 20, rel=0.05)


def test_the_legend_switches_a_case_with_all_its_runs(pages: MakePage, report: Path) -> None:
    watched = opened(pages, report)
    loss = panel(watched, "Training loss")
    lines = loss.locator(".scatterlayer path.js-line")
    expect(lines).to_have_count(6)
    loss.locator(".legendtoggle").nth(1).click()
    expect(lines).to_have_count(4)
    loss.locator(".legendtoggle").nth(1).click()
    expect(lines).to_have_count(6)
    assert watched.problems == []


def test_a_tab_shows_epochs_instead_of_seconds(pages: MakePage, report: Path) -> None:
    watched = opened(pages, report)
    loss = panel(watched, "Training loss")
    assert loss.locator(".xtitle").text_content() == "seconds of training"
    loss.get_by_role("button", name="by epoch").click()
    assert loss.locator(".xtitle").text_content() == "epochs"
    assert axis_range(watched, "Training loss")[1] == pytest.approx(2.0, rel=0.1)
    assert loss.get_by_role("button", name="by epoch").get_attribute("aria-pressed") == "true"


def test_tables_are_sorted_by_a_click(pages: MakePage, report: Path) -> None:
    watched = opened(pages, report)
    table = watched.page.locator("section", has=watched.page.get_by_role("heading", name="Side by side")).locator(
        "table"
    )

    def cases() -> list[str]:
        return [words.strip() for words in table.locator("tbody td:first-child").all_inner_texts()]

    assert cases() == ["plain", "serial", "data:2"]
    table.get_by_role("button", name="samples/s").click()
    assert cases() == ["data:2", "serial", "plain"]
    assert table.locator("th[aria-sort=descending]").inner_text().startswith("samples/s")
    table.get_by_role("button", name="samples/s").click()
    assert cases() == ["plain", "serial", "data:2"]


def test_a_plot_can_be_kept_as_a_picture(pages: MakePage, report: Path, tmp_path: Path) -> None:
    watched = opened(pages, report)
    with watched.page.expect_download() as kept:
        panel(watched, "Timeline").locator("[data-title='Download plot as a PNG']").click()
    assert kept.value.suggested_filename == "timeline-0-the-run.png"
    kept.value.save_as(tmp_path / "kept.png")
    assert (tmp_path / "kept.png").read_bytes().startswith(b"\x89PNG")
    assert (watched.problems, watched.outside(report.as_uri())) == ([], [])


def test_a_phone(pages: MakePage, report: Path) -> None:
    watched = opened(pages, report, **PHONE)
    assert watched.overflow == 0
    assert watched.page.evaluate(
        "[...document.querySelectorAll('.plot')].every(plot => plot.getBoundingClientRect().right <= innerWidth)"
    )
    watched.shot("report-phone-light")
    assert watched.problems == []


def test_dark_and_a_change_to_light(pages: MakePage, report: Path) -> None:
    watched = opened(pages, report, scheme="dark")

    def looks() -> tuple[int, str]:
        ground = watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
        words = panel(watched, "Training loss").locator(".xtitle").evaluate("node => getComputedStyle(node).fill")
        return sum(map(int, ground.removeprefix("rgb(").rstrip(")").split(","))), words

    dark, pale = looks()
    assert dark < 100
    watched.shot("report-desk-dark")
    assert pale == "rgb(230, 237, 243)"
    watched.page.emulate_media(color_scheme="light")
    expect(panel(watched, "Training loss").locator(".xtitle")).to_have_css("fill", "rgb(31, 35, 40)")
    assert looks()[0] > 700
    assert watched.problems == []


def test_paper_is_light_and_holds_the_plots(pages: MakePage, report: Path) -> None:
    watched = opened(pages, report, scheme="dark", width=720, height=1000)
    watched.page.emulate_media(media="print")
    watched.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    expect(panel(watched, "Training loss").locator(".main-svg").first).to_have_css("width", "640px")
    assert watched.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert watched.overflow == 0
    watched.shot("report-print")
    assert len(watched.page.pdf()) > 50_000


def test_without_javascript_all_tables_are_there(pages: MakePage, report: Path) -> None:
    watched = pages(javascript=False)
    watched.page.goto(report.as_uri())
    assert watched.page.locator("table").count() >= 4
    assert watched.page.get_by_text("The plots need JavaScript").is_visible()
    assert not watched.page.locator("figure").first.is_visible()


def test_a_study_with_all_its_plots(pages: MakePage, make_run: Any, tmp_path: Path) -> None:
    make_run("a", case="sgd")
    for name, changes in (("one", {}), ("two", fake_study.scaling()), ("three", fake_study.learning_rates())):
        fake_study.write(tmp_path / name, **changes)
    watched = opened(pages, written(tmp_path))
    scaling = panel(watched, "Scaling")
    assert scaling.locator(".scatterlayer path.js-line").count() == 2  # the ideal, and Amdahl's law
    assert scaling.locator(".points path").count() == 3
    scaling.get_by_role("button", name="efficiency").click()
    watched.shot("report-studies")
    assert watched.problems == []


def test_a_hostile_run_shows_as_text_and_runs_nothing(pages: MakePage, make_run: Any, tmp_path: Path) -> None:
    for at, evil in enumerate(EVIL):
        config = {"model": {"name": evil}, "data": {"name": evil}, "train": {"epochs": 2, "batch_size": 256, "x": evil}}
        order = {
            "plan_words": evil,
            "plan": {"precision": evil, evil: evil},
            "machine_words": evil,
            "versions": {evil: evil},
        }
        layers = [{"name": evil, "kind": evil, "parameters": 1, "forward_ms": 1.0, "backward_ms": 2.0}]
        run = make_run(f"{at}{evil.replace('/', '_')}", case=evil, config=config, layers=layers, command=evil, **order)
        with_timeline(run, evil)
    make_run("failed", None, error=EVIL[0], case=EVIL[1])
    fake_study.write(
        tmp_path / "study", title=EVIL[0], finding=EVIL[1], rows=[{**fake_study.ROWS[0], "label": EVIL[2]}]
    )
    watched = opened(pages, written(tmp_path))
    names = watched.page.locator(".legendtext").all_text_contents()
    assert {EVIL[0], EVIL[3]} <= set(names)
    panel(watched, "Training loss").locator(".legendtoggle").first.hover()
    panel(watched, "Samples a second").locator(".bars path").first.hover(force=True)
    expect(watched.page.locator(".hoverlayer .hovertext")).to_have_count(1)
    assert EVIL[0] in (watched.page.locator(".hoverlayer .hovertext").text_content() or "")
    assert watched.page.locator(".hoverlayer a, .infolayer a, main img, main a[href^=http]").count() == 0
    assert watched.page.locator("script").count() == 3
    assert watched.problems == []
    assert watched.outside(watched.page.url) == []


@pytest.mark.parametrize("cases", [100, 20])
def test_a_hundred_runs_of_a_thousand_steps_stay_light(
    pages: MakePage, make_run: Any, tmp_path: Path, cases: int
) -> None:
    line = '{{"step": {step}, "loss": {loss}, "lr": 0.001, "ms": 71.123456789}}\n'
    for number in range(100):
        run = with_timeline(make_run(f"{number}", 1000.0 + number, case=f"case {number % cases}"))
        steps = (line.format(step=step, loss=2.3 / (step + number + 1)) for step in range(1, 1001))
        end = '{"step": 1000, "epoch": 1, "val_accuracy": 0.9}\n'
        (run.folder / "metrics.jsonl").write_text("".join(steps) + end)
    path = written(tmp_path)
    assert path.stat().st_size < 10_000_000
    watched = opened(pages, path)
    drawn = panel(watched, "Training loss").locator(".scatterlayer path.js-line").count()
    assert drawn == 12 * (100 // cases)
    assert panel(watched, "Training loss").locator(".legendtoggle").count() == cases
    watched.shot(f"report-{cases}-cases")
    assert (watched.problems, watched.overflow) == ([], 0)

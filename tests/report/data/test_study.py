"""Studies: read whole or refused, drawn as they ask, and laid beside what was published."""

from pathlib import Path
from typing import Any

import pytest

import fake_study
from manyhands.report import matplotlib_backend, plotly_backend
from manyhands.report.charts import studies
from manyhands.report.charts.spec import Chart
from manyhands.report.gather import gather
from manyhands.report.text.table import of_study
from manyhands.stats import Mean
from manyhands.studies.record import Study, find
from parsed_page import checked


def read(folder: Path, **changes: Any) -> Study:
    (study,), damaged = find(fake_study.write(folder, **changes))
    assert not damaged
    return study


def drawn(study: Study) -> dict[str, Chart]:
    panel = studies.panel(study)
    assert panel is not None
    for chart in panel.charts.values():
        assert matplotlib_backend.svg(chart)
        assert plotly_backend.figure(chart)["data"]
    return panel.charts


def test_what_a_study_tells(tmp_path: Path) -> None:
    study = read(tmp_path)
    assert study.best is not None
    assert study.best.label == "adam"
    assert study.best.value("test_accuracy") == Mean(0.988, 0.001, 3)
    assert study.best.value("time / base") == Mean(1.05, 0.01, 3)
    assert study.rows[0].value("time / base") == Mean(1.0, 0.0, 1)


def test_the_best_takes_least_where_less_is_better(tmp_path: Path) -> None:
    best = read(tmp_path, measure="train_seconds").best
    assert best is not None
    assert best.label == "sgd"


def test_published_figures_stand_beside_ours(tmp_path: Path) -> None:
    table = of_study(read(tmp_path))
    assert table.columns == (
        *("case", "test accuracy", "samples a second", "seconds of training", "speed-up", "time / base", "n"),
        *("published: accuracy", "published: seconds"),
    )
    assert table.lines == (
        ("sgd", "95.00 ± 0.20 %", "3,000 ± 30", "20.00 ± 0.50", "1.00x", "1", "3", "–", "–"),
        ("adam", "98.80 ± 0.10 %", "2,900 ± 20", "21.00 ± 0.40", "0.97x", "1.05 ± 0.01", "3", "99.1 %", "507.1"),
        ("lamb", "–", "–", "–", "–", "–", "failed", "–", "–"),
        ("adagrad", "–", "–", "–", "–", "–", "–", "90 %", "–"),
    )


def test_shares_are_drawn_as_points_and_the_rest_as_bars(tmp_path: Path) -> None:
    charts = drawn(read(tmp_path))
    assert [*charts] == ["test accuracy", "samples a second", "seconds of training"]
    assert charts["test accuracy"].look == "points"
    assert charts["test accuracy"].y.names == ("sgd", "adam")
    bars = charts["seconds of training"]
    assert [(series.x, series.error, series.words) for series in bars.series] == [
        ((20.0,), (0.5,), ("20.00 ± 0.50",)),
        ((21.0,), (0.4,), ("21.00 ± 0.40",)),
        ((0.0,), (), ("failed",)),
    ]


def test_a_measure_of_its_own_can_be_drawn(tmp_path: Path) -> None:
    charts = drawn(read(tmp_path, measure="time / base"))
    assert next(iter(charts)) == "time / base"


def test_a_line_over_numbers_for_each_value_of_the_second_axis(tmp_path: Path) -> None:
    chart = drawn(read(tmp_path, **fake_study.learning_rates()))["test accuracy"]
    assert chart.x.log
    assert chart.x.ticks == (0.001, 0.01, 0.1)
    assert [(series.name, series.look, series.x) for series in chart.series] == [
        (name, look, (0.001, 0.01, 0.1)) for name in ("sgd", "adam") for look in ("line", "points")
    ]
    assert chart.series[1].error == (0.002, 0.002, 0.002)


def test_a_chart_for_each_grid_that_has_a_name(tmp_path: Path) -> None:
    charts = drawn(read(tmp_path, **fake_study.simulated()))
    assert [*charts] == ["Small", "Large"]
    assert len({chart.name for chart in charts.values()}) == 2
    chart = charts["Small"]
    assert chart.x.title == "train.batch_size"
    assert [(series.name, series.x, series.y) for series in chart.series if series.look == "line"] == [
        ("serial", (32.0, 64.0), (3200.0, 6400.0)),
        ("auto", (32.0, 64.0), (3200.0, 6400.0)),
    ]


def test_a_study_without_runs(tmp_path: Path) -> None:
    study = read(tmp_path, **fake_study.simulated())
    table = of_study(study)
    assert table.columns == ("case", "samples a second", "step ms", "found")
    assert table.lines[1] == ("Small, batch 32, auto", "3,200", "10", "owt:4")
    found = checked(gather([tmp_path], "manyhands report ."))
    for words in ("Predicted by simulation: nothing was trained", "numba 1.2", "Small, batch 32, auto"):
        assert words in found.text
    assert "Machine and versions" not in found.text


def test_lines_over_what_is_no_number_are_bars(tmp_path: Path) -> None:
    assert drawn(read(tmp_path, plot="line"))["seconds of training"].look == "bars"


def test_scaling_beside_the_ideal_and_amdahls_law(tmp_path: Path) -> None:
    study = read(tmp_path, **fake_study.scaling())
    charts = drawn(study)
    ideal, measured, law = charts["speed-up"].series
    assert (ideal.x, ideal.y) == ((1.0, 4.0), (1.0, 4.0))
    assert list(zip(measured.x, measured.y, strict=True)) == [(1.0, 1.0), (2.0, 1.8), (4.0, 3.1)]
    assert (law.x[0], law.y[0]) == (1.0, 1.0)
    assert (law.x[-1], law.y[-1]) == pytest.approx((4.0, 1 / (0.1 + 0.9 / 4)))
    efficiency = charts["efficiency"].series[-1]
    assert efficiency.y == pytest.approx((1.0, 0.9, 0.775))
    panel = studies.panel(study)
    assert panel is not None
    assert "batch 64: 10.0 % stays serial by Amdahl's law, at most 10.0x" in panel.note


def test_a_study_that_asks_for_no_plot(tmp_path: Path) -> None:
    assert studies.panel(read(tmp_path, plot="none")) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": None},
        {"rows": [1]},
        {"rows": [{"label": "x", "n": "many"}]},
        {"rows": [{"label": "x", "test_accuracy": {"mean": "high", "std": 0}}]},
        {"rows": [{"label": "x", "speedup": True}]},
        {"fits": [{"label": "x", "serial_fraction": 7, "points": [[1, 1]]}]},
        {"fits": [{"label": "x", "serial_fraction": 0.1, "points": [[0, 1]]}]},
        {"published": [1]},
        {"left_out": [{"label": "x"}]},
        {"title": "half \ud800"},
        {"hardware": "x"},
    ],
)
def test_what_is_no_study_is_told(tmp_path: Path, changes: dict[str, Any]) -> None:
    found, ((folder, reason),) = find(fake_study.write(tmp_path, **changes))
    assert found == []
    assert folder == tmp_path
    assert "study.json cannot be read" in reason


def test_the_page_of_a_study(make_run: Any, tmp_path: Path) -> None:
    fake_study.write(tmp_path)
    make_run("0-sgd-r0", 3000.0, 0.95, case="sgd")
    make_run("1-adam-r0", 2900.0, 0.988, case="adam")
    make_run("2-lamb-r0", None, case="lamb", error="the loss is NaN at step 17")
    found = checked(gather([tmp_path], "manyhands report ."))
    for words in (
        "manyhands The source's finding that adam is best holds here: 98.80 % against 95.00 %.",
        "A4: optimizers on MNIST",
        "here a CPU, 2 cores",
        "published on an RTX 3070",
        "20,000 training samples of the source's 60,000",
        "differs from the source in the network, which is not printed",
        "98.80 % ± 0.10 test accuracy, the most: adam",
        "lamb failed: the loss is NaN at step 17",
        "Left out: lars: needs a GPU",
        "manyhands study optimizers manyhands report .",
    ):
        assert words in found.text
    assert found.figures[0][0]["data"][0]["error_x"]["array"] == [0.002]


def test_a_folder_of_studies(make_run: Any, tmp_path: Path) -> None:
    fake_study.write(tmp_path / "one")
    fake_study.write(tmp_path / "two", **fake_study.scaling())
    make_run("a")
    report = gather([tmp_path], "")
    assert report.finding.startswith("Optimizers: The source's finding")
    assert " Scaling: The source's finding" in report.finding
    assert "2 studies, 1 run" in checked(report).text


def test_nothing_that_a_study_holds_can_become_markup(make_run: Any, tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    row = {**fake_study.ROWS[0], "label": evil, "cell": {evil: evil}, "failed": evil, "extra": {evil: evil}}
    make_run("a", case=evil)
    changes = {"title": evil, "source": evil, "axes": [evil], "rows": [row], "published": [{"label": evil, evil: evil}]}
    changes |= {"differs": evil, "finding": evil, "used": evil, "command": evil, "measure": evil}
    changes |= {"hardware": {"here": evil, "published": evil}, "left_out": [{"label": evil, "reason": evil}]}
    found = checked(gather([fake_study.write(tmp_path, **changes)], evil))
    assert found.tags["img"] == 0
    assert evil in found.text


def test_scaling_with_work_that_grows_with_the_ranks(tmp_path: Path) -> None:
    told = fake_study.scaling()
    told["fits"][0]["law"] = "Gustafson"
    study = read(tmp_path, **told)
    law = drawn(study)["speed-up"].series[-1]
    assert (law.x[-1], law.y[-1]) == pytest.approx((4.0, 4 - 0.1 * 3))
    panel = studies.panel(study)
    assert panel is not None
    assert panel.note.endswith("batch 64: 10.0 % stays serial by Gustafson's law.")

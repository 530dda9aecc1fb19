"""A study's folder as a sweep leaves it, without the sweep."""

import json
from pathlib import Path
from typing import Any

ROWS: list[dict[str, Any]] = [
    {
        "label": "sgd",
        "cell": {"optim.name": "sgd"},
        "bound": "serial",
        "samples_per_s": {"mean": 3000.0, "std": 30.0},
        "train_seconds": {"mean": 20.0, "std": 0.5},
        "test_accuracy": {"mean": 0.95, "std": 0.002},
        "speedup": 1.0,
        "n": 3,
        "failed": None,
        "runs": ["0-sgd-r0"],
        "extra": {"time / base": 1.0},
    },
    {
        "label": "adam",
        "cell": {"optim.name": "adam"},
        "bound": "serial",
        "samples_per_s": {"mean": 2900.0, "std": 20.0},
        "train_seconds": {"mean": 21.0, "std": 0.4},
        "test_accuracy": {"mean": 0.988, "std": 0.001},
        "speedup": 0.97,
        "n": 3,
        "failed": None,
        "runs": ["1-adam-r0"],
        "extra": {"time / base": {"mean": 1.05, "std": 0.01}},
    },
    {
        "label": "lamb",
        "cell": {"optim.name": "lamb"},
        "bound": None,
        "samples_per_s": None,
        "train_seconds": None,
        "test_accuracy": None,
        "speedup": None,
        "n": 0,
        "failed": "the loss is NaN at step 17",
        "runs": ["2-lamb-r0"],
        "extra": {"time / base": None},
    },
]
STUDY: dict[str, Any] = {
    "study": "optimizers",
    "title": "Optimizers",
    "source": "A4: optimizers on MNIST",
    "full": False,
    "command": "manyhands study optimizers",
    "used": "20,000 training samples of the source's 60,000",
    "hardware": {"here": "a CPU, 2 cores", "published": "an RTX 3070"},
    "axes": ["optim.name"],
    "plot": "bars",
    "measure": "test_accuracy",
    "rows": ROWS,
    "published": [{"label": "adam", "accuracy": 0.991, "seconds": 507.07}, {"label": "adagrad", "accuracy": 0.9}],
    "fits": [],
    "left_out": [{"label": "lars", "reason": "needs a GPU"}],
    "differs": "the network, which is not printed",
    "finding": "The source's finding that adam is best holds here: 98.80 % against 95.00 %.",
}


def write(folder: Path, **changes: Any) -> Path:
    """Put a study.json into a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "study.json").write_text(json.dumps({**STUDY, **changes}))
    return folder


def scaling() -> dict[str, Any]:
    """What is different about a study of ranks."""
    points = [[1, 1.0], [2, 1.8], [4, 3.1]]
    fits = [{"label": "batch 64", "serial_fraction": 0.1, "most": 10.0, "points": points}]
    return {"study": "scaling", "title": "Scaling", "plot": "scaling", "measure": "samples_per_s", "fits": fits}


def simulated() -> dict[str, Any]:
    """What is different about a study that trains nothing: two grids with names, and exact rows."""
    rows = [
        {
            **ROWS[2],
            "label": f"{line}, batch {batch}, {plan}",
            "cell": {"line": line, "data.name": line.lower(), "train.batch_size": batch, "plan": plan},
            "samples_per_s": {"mean": 100.0 * batch, "std": 0.0},
            "n": 1,
            "failed": None,
            "runs": [],
            "extra": {"step ms": 10.0, "found": "owt:4" if plan == "auto" else None},
        }
        for line in ("Small", "Large")
        for batch in (32, 64)
        for plan in ("serial", "auto")
    ]
    axes = ["line", "data.name", "train.batch_size", "plan"]
    about = {"by": "simulation", "versions": {"numba": "1.2"}, "published": [], "left_out": []}
    return {**about, "plot": "line", "measure": "samples_per_s", "axes": axes, "rows": rows}


def learning_rates() -> dict[str, Any]:
    """What is different about a study over numbers."""
    rows = [
        {**ROWS[0], "label": f"{name} {lr}", "cell": {"optim.lr": lr, "optim.name": name}}
        for name in ("sgd", "adam")
        for lr in (0.1, 0.001, 0.01)
    ]
    return {"study": "learning-rates", "plot": "line", "axes": ["optim.lr", "optim.name"], "rows": rows}

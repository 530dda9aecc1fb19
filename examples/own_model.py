"""Your own model, an unchanged nn.Module, trained from Python.

The same from a terminal: manyhands train examples/own_model.py:build --data digits
"""

from torch import nn

import manyhands as mh


def build(classes: int, shape: tuple[int, ...]) -> nn.Module:
    """A factory may take any of classes, shape, vocabulary by keyword."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * (height // 2) * (width // 2), classes),
    )


if __name__ == "__main__":
    run = mh.fit(build, data="digits", epochs=1)
    assert run.result is not None
    print(f"{run.result['test_accuracy']:.2%} of the test images, {run.result['samples_per_s']:,.0f} samples/s")
    print(f"the run is kept in {run.folder}")

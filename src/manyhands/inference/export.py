"""Export: a run's model for deployment, checked against the model itself on real samples."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyhands.data.load import load
from manyhands.data.normalize import Normalize
from manyhands.errors import MissingPackage, RunError
from manyhands.files import written_aside
from manyhands.inference.load import load_run
from manyhands.runs import run_folder
from manyhands.runs.run_folder import order_of

SAMPLES = 64
TOLERANCE = 1e-3  # of the logits; exported kernels may add up in another order


def export(
    folder: Path, path: Path, form: str, averaged: bool = False, *, changed_code: bool = False
) -> dict[str, Any]:
    """Write the model as ONNX or as a torch.export program, batch size left open; refuse one that differs."""
    model, _ = load_run(folder, averaged, changed_code=changed_code)
    inputs = _samples(folder)
    with torch.inference_mode():
        wanted = model(inputs)
    with written_aside(path) as aside:
        # Tracing two samples and checking on all of them proves that the batch size is really open.
        got = _onnx(model, inputs, aside) if form == "onnx" else _program(model, inputs, aside)
        difference = float((got - wanted).abs().max())
        if not difference <= TOLERANCE:
            raise RunError(f"the exported model differs from the run's by {difference:.2g}: {path} was not written")
    return {"path": str(path), "checked_samples": len(inputs), "max_difference": difference}


def _samples(folder: Path) -> Tensor:
    """Real samples of the run's test part."""
    config = order_of(run_folder.load(folder))
    dataset = load(config.data.name, config.data)
    rows = dataset.test.inputs[dataset.test.index[:SAMPLES]]
    inputs: Tensor = Normalize(dataset.schema, contiguous=True).eval()(torch.from_numpy(rows))
    return inputs


def _program(model: torch.nn.Module, inputs: Tensor, path: Path) -> Tensor:
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(model, (inputs[:2],), dynamic_shapes=({0: batch},))
    with path.open("wb") as file:
        torch.export.save(program, file)
    with path.open("rb") as file:
        loaded = torch.export.load(file).module()
    with torch.inference_mode():
        result: Tensor = loaded(inputs)
    return result


def _onnx(model: torch.nn.Module, inputs: Tensor, path: Path) -> Tensor:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401, torch.onnx needs it
    except ImportError as error:
        raise MissingPackage(f"ONNX needs the package {error.name}: pip install 'manyhands[onnx]'") from None
    torch.onnx.export(
        model,
        (inputs[:2],),
        path,
        input_names=["input"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        external_data=False,
        verbose=False,
    )
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"input": np.asarray(inputs)})
    return torch.from_numpy(logits)

"""Factory: optimizers by name, as the usual script writes them, or in torch's fastest implementation."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.errors import ConfigError
from manyhands.optim.lamb import LAMB
from manyhands.optim.lars import LARS
from manyhands.optim.layerwise import Trusting
from manyhands.optim.options import OPTIMIZERS, TRUSTING, WITH_MOMENTUM
from manyhands.optim.options import OptimOptions as OptimOptions

NAMES = OPTIMIZERS

_CLASSES: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": torch.optim.SGD,
    "nesterov": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "lars": LARS,
    "lamb": LAMB,
}

# Where torch has a fused kernel, and where we have (optim.cpu_kernels, optim.triton_kernels). Adagrad's for CUDA is
# younger than the oldest torch we support.
_FUSED: dict[str, tuple[str, ...]] = {
    "sgd": ("cpu", "cuda"),
    "momentum": ("cpu", "cuda"),
    "nesterov": ("cpu", "cuda"),
    "adam": ("cpu", "cuda"),
    "adamw": ("cpu", "cuda"),
    "adagrad": ("cpu",),
    "lars": ("cpu", "cuda"),
    "lamb": ("cpu", "cuda"),
}

# torch's fused SGD for the CPU goes wrong with a momentum in half precision (2.13: other numbers from 16 elements on).
_BROKEN_IF_NARROW = ("momentum", "nesterov")

# SGD has no such flag: its fused kernel reads a tensor rate on the device and keeps no step count.
_HAVE_CAPTURABLE = ("adam", "adamw", "rmsprop")

# How a step is computed, as opposed to what: a loaded state must not change these.
_IMPLEMENTATION = ("fused", "foreach", "capturable", "differentiable")


def can_capture(name: str) -> bool:
    """Whether this optimizer's step can be inside a CUDA graph.

    Not Adagrad's: without a fused kernel for CUDA it counts its steps on the host and reads the rate there.
    """
    return name in NAMES and name != "adagrad"


def build(
    parameters: Iterable[nn.Parameter],
    options: OptimOptions,
    lr: float,
    *,
    best: bool,
    device: str,
    captured: bool = False,
    compiled: bool = False,
    sharded: bool = False,
    alone: bool = False,
) -> torch.optim.Optimizer:
    """The optimizer that the options name, over these parameters, at the base rate `lr`.

    best=False: what the usual script writes, all else at torch's defaults. best=True: the fused
    implementation where there is one for this device, else foreach. captured=True (which implies best): the
    step may be in a CUDA graph, and the rate is a tensor that `set_lr` changes in place. The first step makes
    the state, so take a few before the capture. compiled=True: the step will be compiled, so leave the fusing
    to the compiler: torch's fused kernel spreads a tensor over few blocks (56 us of the convnet's 269 us
    at batch 64 on an H200). sharded=True: the parameters are DTensors, for which torch has no fused SGD.
    alone=True: nothing but its steps writes the weights, unless autograd sees it.
    """
    if captured and not can_capture(options.name):
        allowed = ", ".join(name for name in NAMES if can_capture(name))
        raise ConfigError(f"{options.name} cannot be in a CUDA graph: use one of {allowed}, or do not capture")
    kind = device.split(":")[0]
    keywords: dict[str, Any] = {"lr": lr}
    if options.weight_decay is not None:
        keywords["weight_decay"] = options.weight_decay
    if options.name in WITH_MOMENTUM:
        keywords["momentum"] = options.momentum
    if options.name == "nesterov":
        keywords["nesterov"] = True
    if best or captured:
        parameters = list(parameters)
        broken = kind == "cpu" and options.name in _BROKEN_IF_NARROW and _is_narrow(parameters)
        if kind in _FUSED.get(options.name, ()) and not compiled and not sharded and not broken:
            keywords["fused"] = True
        elif options.name not in TRUSTING:  # which know no slower way
            keywords["foreach"] = True
    capturable = kind == "cuda" and options.name in (*_HAVE_CAPTURABLE, *TRUSTING)
    if captured or (compiled and capturable):  # a number would be compiled in, and anew at every change
        keywords["lr"] = torch.tensor(lr, dtype=torch.float32, device=device)
        if capturable and options.name not in TRUSTING:  # which always are
            keywords["capturable"] = True
    made = _CLASSES[options.name](parameters, **keywords)
    if isinstance(made, Trusting):
        made.alone = alone
    return made


def _is_narrow(parameters: Iterable[Any]) -> bool:
    """Of parameters, or of groups of them."""
    flat = (each for given in parameters for each in (given["params"] if isinstance(given, dict) else [given]))
    return any(each.dtype in (torch.bfloat16, torch.float16) for each in flat)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Change the rate of every group; in place where it is a tensor, since a CUDA graph holds its address."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def load_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load another optimizer's `state_dict`, keeping this one's implementation and its rate's tensor.

    torch's own `load_state_dict` takes these over too: a run that resumes under another plan would then step
    the old way, and a captured graph would no longer see `set_lr`.
    """
    own = [{key: group[key] for key in ("lr", *_IMPLEMENTATION) if key in group} for group in optimizer.param_groups]
    loaded = state["param_groups"]
    kept = [{key: value for key, value in group.items() if key != "lr"} for group in own]
    groups = [{**group, **keep} for group, keep in zip(loaded, kept, strict=True)]
    optimizer.load_state_dict({**state, "param_groups": groups})
    for group, keep, new in zip(optimizer.param_groups, own, loaded, strict=True):
        lr = float(new["lr"])
        group["lr"] = keep["lr"].fill_(lr) if isinstance(keep["lr"], Tensor) else lr
    lay_out(optimizer)


def lay_out(optimizer: torch.optim.Optimizer) -> None:
    """Lay a loaded state out in memory as its parameters are: fused kernels walk both in memory order."""
    for parameter, values in optimizer.state.items():
        for key, value in (values or {}).items():  # none of a parameter that another rank keeps (ZeRO)
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                values[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)

"""Environment: the versions of what a run depends on."""

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("manyhands", "torch", "numpy", "numba", "safetensors")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

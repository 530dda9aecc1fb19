"""Throughput: how fast a device does one kind of work."""

from dataclasses import dataclass

DEVICES = ("cpu", "cuda")
OPERATIONS = ("matmul", "convolution", "copy")
PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class Rate:
    """The best of several measurements.

    `rate` counts 10^9 floating-point operations a second; for a copy, 10^9 bytes a second, where a byte counts
    once although it is read and written.
    """

    device: str
    operation: str
    precision: str  # fp32 for a copy, where it does not matter
    threads: int  # 0 on a GPU
    rate: float

    @property
    def unit(self) -> str:
        return unit_of(self.operation)


def unit_of(operation: str) -> str:
    return "GB/s" if operation == "copy" else "GFLOP/s"

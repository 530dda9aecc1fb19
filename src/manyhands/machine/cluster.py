"""Cluster: many devices of one kind and the links between them, as the simulator sees a machine."""

from dataclasses import dataclass, field, replace

from manyhands.errors import MachineError

COLLECTIVES = ("ring", "direct")


@dataclass(frozen=True)
class Accelerator:
    """What one device can do, by its data sheet."""

    name: str
    memory_bytes: int
    tflop_per_s: dict[str, float]  # peak, by precision
    gb_per_s: float  # of its memory, 10^9 bytes
    efficiency: dict[str, float] = field(default_factory=dict)  # share of the peak that a kind of layer reaches
    half_batch: float = 0.0  # samples of a part at which half of that is reached: small parts fill a device badly

    def __post_init__(self) -> None:
        if not self.tflop_per_s:
            raise MachineError(f"accelerator {self.name} has no tflop_per_s: give at least fp32")


@dataclass(frozen=True)
class Level:
    """What joins a group of neighbouring devices to the others; groups of one are the devices' own ports."""

    devices: int
    gb_per_s: float  # of each group, 10^9 bytes, in each direction where duplex
    latency_us: float
    duplex: bool = True


@dataclass(frozen=True)
class Cluster:
    """So many devices, and the levels of links between them from the smallest group to the largest."""

    devices: int
    accelerator: Accelerator
    levels: tuple[Level, ...]
    collectives: str = "ring"  # ring: devices relay; direct: each sends to each
    overlap: bool = True  # transfers go on while devices compute
    late: bool = False  # gradients are reduced when the backward pass is over
    name: str = ""  # for people
    # Of the virtual cluster alone; a predicted step is that of devices which are all alike.
    speeds: tuple[float, ...] = ()  # of the devices, relative, again and again where there are more
    jitter: float = 0.0  # standard deviation of a step's time over its mean

    def __post_init__(self) -> None:
        sizes = [level.devices for level in self.levels]
        if not sizes or sizes[0] != 1 or sorted(set(sizes)) != sizes:
            raise MachineError(f"levels of {sizes} devices: the first must be of 1, each further one of more")
        if not self.levels[0].duplex:
            raise MachineError("levels of 1 device with duplex = false: ports go both ways; give half of the gb_per_s")
        if self.collectives not in COLLECTIVES:
            raise MachineError(f"collectives = {self.collectives!r}: {' or '.join(COLLECTIVES)} is allowed")

    def of(self, devices: int) -> "Cluster":
        """The same with another number of devices."""
        if devices < 1:
            raise MachineError(f"--devices {devices}: at least 1 is needed")
        return replace(self, devices=devices)

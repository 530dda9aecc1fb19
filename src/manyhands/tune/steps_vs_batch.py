"""Steps vs batch: how many steps a training needs at each batch size, and where larger batches stop saving any.

McCandlish et al. 2018: steps(B) = least_steps + least_samples / B, so that

    steps │╲                        critical batch = least_samples / least_steps
          │ ╲  perfect              slope: −d log steps / d log B = critical / (critical + B)
          │  ╲╌╌╌╌
          │     diminishing         perfect scaling      slope above 3/4, up to a third of the critical batch
          │           ╲______       stagnation           slope below 1/4, from three times of it on
          └──────────────────▶ B
"""

from collections.abc import Mapping
from dataclasses import dataclass

APART = 3.0  # from the critical batch to the ends of its regime
LEAST_SIZES = 3  # two would fit any law
REGIMES = ("perfect scaling", "diminishing returns", "stagnation")


@dataclass(frozen=True)
class Law:
    """The two numbers of a model, its data and a target."""

    least_steps: float  # with batches without end
    least_samples: float  # in the smallest batches

    @property
    def critical_batch(self) -> float | None:
        """Where steps and samples are twice their least; None: steps fell in proportion throughout."""
        return self.least_samples / self.least_steps if self.least_steps > 0 else None

    def steps(self, size: float) -> float:
        return self.least_steps + self.least_samples / size

    def to_json(self) -> dict[str, float | None]:
        critical = self.critical_batch
        return {
            "least_steps": self.least_steps,
            "least_samples": self.least_samples,
            "critical_batch": critical,
            "perfect_until": None if critical is None else critical / APART,
            "stagnates_from": None if critical is None else critical * APART,
        }


def fit(steps: Mapping[int, float]) -> Law | None:
    """The law with the least relative squares of errors, neither number below zero; None of fewer than three sizes.

    With a = 1/s and b = 1/(B s) of each size, least_steps · a + least_samples · b is to be 1.
    """
    if len(steps) < LEAST_SIZES:
        return None
    rows = [(1 / count, 1 / (size * count)) for size, count in steps.items()]
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(row[i] for row in rows) for i in (0, 1))
    apart = aa * bb - ab * ab
    least_steps, least_samples = (a * bb - b * ab) / apart, (b * aa - a * ab) / apart
    if least_steps <= 0:
        return Law(0.0, b / bb)
    if least_samples <= 0:
        return Law(a / aa, 0.0)
    return Law(least_steps, least_samples)


def regime(size: float, critical: float | None) -> str:
    """In which part of the law a batch size lies."""
    if critical is None or size < critical / APART:
        return REGIMES[0]
    return REGIMES[1] if size < critical * APART else REGIMES[2]

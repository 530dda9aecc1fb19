"""Rule: how a learning rate grows with the batch when nobody has tuned it."""

BASE = 256  # the batch for which the rates of the zoo are

LINEAR = ("sgd", "momentum", "nesterov")  # of the others the step is normalized, and grows with the square root


def power(optimizer: str) -> float:
    return 1.0 if optimizer in LINEAR else 0.5


def scaled(rate: float, optimizer: str, size: int) -> float:
    """The rate for a batch of `size` of which `rate` is that for the base."""
    return float(rate * (size / BASE) ** power(optimizer))

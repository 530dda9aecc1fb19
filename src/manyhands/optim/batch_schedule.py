"""Batch schedule: batches that become larger on the way, where a schedule would let the rate fall.

    "0.5:2,0.75:4" over 8 epochs        epoch   0   1   2   3 │ 4   5 │ 6    7
                                        batch  64  64  64  64 │128 128│512  512

Smith et al. 2018, "Don't decay the learning rate, increase the batch size". An epoch has batches of one size: what is
due at a share of all samples comes with the first epoch that begins there or later.
"""

from manyhands.errors import ConfigError

Growth = tuple[tuple[float, int], ...]  # after this share of all samples, so many times larger


def parse(text: str | None) -> Growth:
    """What `train.grow` says."""
    found: list[tuple[float, int]] = []
    for word in text.split(",") if text else ():
        share, _, times = word.partition(":")
        try:
            found.append((float(share), int(times)))
        except ValueError:
            raise _wrong(text, f"'{word}' is not SHARE:TIMES") from None
    shares = [share for share, _ in found]
    if not all(0 < share < 1 for share in shares) or sorted(set(shares)) != shares:
        raise _wrong(text, "shares must rise and lie between 0 and 1")
    if any(times < 2 for _, times in found):
        raise _wrong(text, "a batch must become at least 2 times larger")
    return tuple(found)


def _wrong(text: str | None, why: str) -> ConfigError:
    return ConfigError(f"train.grow={text}: {why}; write for example 0.5:2,0.75:2")


def sizes(batch: int, growth: Growth, epochs: int) -> list[int]:
    """The batch size of every epoch; one, where all have the same."""
    if not growth:
        return [batch]
    found = []
    for epoch in range(epochs):
        size = batch
        for share, times in growth:
            size *= times if epoch >= share * epochs else 1
        found.append(size)
    return found

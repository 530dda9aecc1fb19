"""One weird trick, simulated: AlexNet on ImageNet over 1, 2, 4 and 8 K20 GPUs with 128 images each.

usage: one_weird_trick.py

Convolutions by sample, dense layers by parameter, as in "One weird trick for parallelizing convolutional neural
networks" (Krizhevsky, 2014), on the machine that it describes: machine/known/k20-pcie.toml. Of its results one alone
goes in, the time of one GPU, to which the time of all layers is scaled; the times of 2, 4 and 8 GPUs are predicted.
"""

from collections.abc import Iterator
from dataclasses import replace

from bench import heading

from manyhands.config import Config, with_values
from manyhands.machine.cluster import Cluster
from manyhands.plan.spec import parse
from manyhands.progress import set_quiet
from manyhands.simulate.device_sweep import scaled
from manyhands.simulate.simulator import Simulator

HOURS, EPOCHS, IMAGES = 98.05, 90, 1_281_167  # of the paper's one GPU
BATCH = 128  # of each GPU
PUBLISHED = {1: 1.0, 2: 1.95, 4: 3.74, 8: 6.25}
ONE_DEVICE_MS = 1000 * HOURS * 3600 / EPOCHS / IMAGES * BATCH
CHANGES = (1.0, 0.8, 1.2)  # of the bandwidths


def simulator() -> Simulator:
    values = {"model.name": "alexnet", "data.name": "synthetic:3x224x224,1000", "optim.name": "momentum"}
    return Simulator.of(with_values(Config(), values), "k20-pcie", ONE_DEVICE_MS)


def faster(cluster: Cluster, factor: float) -> Cluster:
    levels = (replace(level, gb_per_s=factor * level.gb_per_s) for level in cluster.levels)
    return replace(cluster, levels=tuple(levels))


def rows(base: Simulator) -> Iterator[list[str]]:
    for devices, published in PUBLISHED.items():
        plan = scaled(parse("owt:1"), devices)
        found = [
            replace(base, cluster=faster(base.cluster, factor)).predict(plan, BATCH * devices) for factor in CHANGES
        ]
        speedups = [each.speedup for each in found]
        yield [
            str(devices),
            f"{found[0].result.step_ms:,.1f}",
            f"{published:.2f}x",
            f"{speedups[0]:.2f}x",
            f"{100 * (speedups[0] / published - 1):+.1f} %",
            *(f"{each:.2f}x ({100 * (each / published - 1):+.1f} %)" for each in speedups[1:]),
            f"{base.predict(scaled(parse('data:1'), devices), BATCH * devices).speedup:.2f}x",
        ]


def main() -> None:
    set_quiet(True)
    base = simulator()
    table = list(rows(base))
    print("\n".join(heading("AlexNet, ImageNet, 128 images for each K20, simulated", 1, interleaved=False)))
    columns = ("GPUs", "step ms", "published", "simulated", "error", "bandwidths -20 %", "bandwidths +20 %", "data:N")
    print(f"| {' | '.join(columns)} |\n|{' ---: |' * len(columns)}")
    for row in table:
        print(f"| {' | '.join(row)} |")
    chip, (own, host) = base.cluster.accelerator, base.cluster.levels
    print(
        f"\nThe machine: {chip.name}, {chip.tflop_per_s['fp32']} TFLOP/s, {chip.gb_per_s:g} GB/s of memory; links of "
        f"{own.gb_per_s:g} GB/s for each GPU, and of {host.gb_per_s:g} GB/s in all for the {host.devices} of a CPU. "
        f"One published time goes in: {HOURS} h for {EPOCHS} epochs of {IMAGES:,} images on one GPU, "
        f"{ONE_DEVICE_MS:.1f} ms a step. Nothing else is fitted. Simulated times are the same wherever this is run. "
        "The last column is what data parallelism would reach, simulated likewise."
    )


if __name__ == "__main__":
    main()

"""The critical batch that the noise in the gradients predicts, beside the one that steps to a target show.

usage: noise_scale.py [mnist | tweets] [--plan serial] [--size 6000] [--sizes 32,64,…] [--budget 3] [--epochs 20]
                      [--target ACC] [--validation 0.15]
       (MANYHANDS_DATA must hold the sets)

Each set is one `manyhands tune batch-size`: the noise scale is measured along one training at the smallest batch; then
every batch size is trained to the same accuracy with rates that Optuna chooses, as many trials for each, and
steps = least_steps + least_samples / batch is fitted. The measured critical batch is least_samples / least_steps, where
steps are twice what they would be in proportion: so some sizes must lie well above it, and the epochs must be enough
for them to reach the target. As it stands it is meant for about ten minutes on two cores.
"""

import argparse
import sys
from collections.abc import Iterator

from bench import Result, heading, output_of

MODELS = {"mnist": "convnet", "tweets": "text"}
SIZES = "32,64,128,256,512,1024"


def tuned(data: str, options: argparse.Namespace) -> Result:
    command = (
        sys.executable, "-m", "manyhands", "tune", "batch-size", MODELS[data], "--data", data, "--plan", options.plan,
        "--sizes", options.sizes,
        "--budget", options.budget, "--epochs", options.epochs, "--set", f"data.size={options.size}",
        "--set", f"data.validation={options.validation}", "--json",
    )  # fmt: skip
    return output_of((*command, *(("--target", options.target) if options.target else ())))


def table(found: dict[str, Result]) -> Iterator[str]:
    """Prediction beside measurement, then the steps that the measurement is fitted to."""
    yield "| data | model | target | predicted by noise | measured from steps | predicted / measured |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for data, result in found.items():
        predicted, measured = result["critical_batch"], (result["law"] or {}).get("critical_batch")
        apart = f"{predicted / measured:.2f}" if predicted and measured else "–"
        target = f"{100 * result['target']:.2f} %"
        yield f"| {data} | {MODELS[data]} | {target} | {number(predicted)} | {number(measured)} | {apart} |"
    yield ""
    for data, result in found.items():
        yield f"{data}, plan `{result['plan']}`:\n"
        yield "| batch | rate | steps | in proportion | seconds | samples/s | regime |"
        yield "| --- | --- | --- | --- | --- | --- | --- |"
        arrived = [row for row in result["table"] if row["steps_to_target"]]
        for row in arrived:
            proportion = arrived[0]["steps_to_target"] * arrived[0]["batch_size"] / row["batch_size"]
            yield (
                f"| {row['batch_size']} | {row['lr']:.2g} | {row['steps_to_target']} | {proportion:.0f} | "
                f"{row['seconds_to_target']:.2f} | {row['samples_per_s']:,.0f} | {row['regime']} |"
            )
        yield ""


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", choices=MODELS, help="default: all")
    parser.add_argument("--size", type=int, default=6000, help="samples, validation included")
    parser.add_argument("--plan", default="serial")
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--budget", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--target", type=float)
    parser.add_argument("--validation", type=float, default=0.15, help="share of the samples")
    options = parser.parse_args()
    found = {data: tuned(data, options) for data in ([options.data] if options.data else MODELS)}
    for line in heading("The critical batch: predicted and measured", 1, interleaved=False):
        print(line, flush=True)
    for line in table(found):
        print(line, flush=True)


if __name__ == "__main__":
    main()

"""Changed: whether a run's model code and data are still those with which it began."""

from manyhands.data.dataset import Dataset
from manyhands.errors import DataError, ModelError
from manyhands.models.source import source_hash
from manyhands.progress import say
from manyhands.runs import store

SOURCE, DATA = "source_sha256", "data_sha256"  # in run.json; runs of before have neither


def check_code(run: store.Run, *, allowed: bool = False) -> None:
    """Refuse weights of one model for the code of another."""
    model = str(run.record["config"]["model"]["name"])
    if ":" not in model:
        return
    known, now = run.record.get(SOURCE), source_hash(model)
    if known is None or now is None:
        say(f"whether the code of {model} has changed since the run began was not checked: no checksum of it is known")
    elif known != now and allowed:
        say(f"the code of {model} has changed since the run began, which --changed-code allows")
    elif known != now:
        raise ModelError(
            f"the code of {model}, or of a file that it imports, has changed since the run began: put it back, train "
            "anew, or say --changed-code where what it computes is the same"
        )


def check_data(run: store.Run, dataset: Dataset) -> None:
    """Refuse to go on with other data."""
    known = run.record.get(DATA)
    if known is None:
        say(
            f"whether the data of {dataset.source} have changed since the run began was not checked: no checksum of "
            "them is known"
        )
    elif known != dataset.checksum:
        raise DataError(
            f"the data of {dataset.source} have changed since the run began: put them back, or begin a new run"
        )

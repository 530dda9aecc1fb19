"""Load: the trained model of a run folder, with its best weights, and the schema of its data."""

import json
from pathlib import Path

from torch import nn

from manyhands.config import with_values
from manyhands.data.schema import Schema
from manyhands.engine.loop import checkpoint
from manyhands.errors import UNREADABLE, DataError, InputError
from manyhands.files import read
from manyhands.runs import run_folder
from manyhands.runs.run_folder import order_of
from manyhands.train.checks.source_hash import check_code
from manyhands.train.weights import averaged_weights, best_checkpoint, build_model

MOST_BYTES = 100_000_000  # of a data.json, which has a vocabulary


def schema_of(run: run_folder.Run) -> Schema:
    """What the data of a run looked like."""
    path = run.folder / "data.json"
    try:
        return Schema.from_json(json.loads(read(path, MOST_BYTES)))
    except DataError as error:
        raise InputError(f"{path}: {error}") from None
    except UNREADABLE as error:
        raise InputError(f"{path} cannot be read ({error}): train the run again") from None


def load_run(folder: Path, averaged: bool = False, *, changed_code: bool = False) -> tuple[nn.Module, Schema]:
    """A run's model with its best or its averaged weights, in evaluation mode on the host, and its data's schema."""
    run = run_folder.load(folder)
    schema, config = schema_of(run), order_of(run)
    check_code(run, allowed=changed_code)
    # The checkpoint has every weight: what they were first taken from may be gone by now.
    plain = with_values(config, {"model.init_from": None, "model.freeze": ()})
    model = build_model(plain, schema)
    model.load_state_dict(averaged_weights(run) if averaged else checkpoint.load_model(best_checkpoint(run)))
    return model.eval(), schema

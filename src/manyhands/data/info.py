"""Info: what is to be said of a data set, and which known sets are here."""

from typing import Any

from manyhands.data import known
from manyhands.data.dataset import Dataset


def info(dataset: Dataset) -> dict[str, Any]:
    """A data set in numbers."""
    schema = dataset.schema
    return {
        "name": schema.name,
        "kind": schema.kind,
        "train": len(dataset.train),
        "val": len(dataset.validation),
        "test": len(dataset.test),
        "classes": len(schema.classes),
        "shape": list(schema.shape),
        "bytes": dataset.bytes,
        "source": dataset.source,
    }


def listing() -> list[dict[str, Any]]:
    """The known sets, with whether they are here and where."""
    rows = []
    for entry in known.KNOWN.values():
        folder = known.find(entry)
        made = entry.reader is None
        rows.append(
            {
                "name": entry.name,
                "kind": entry.kind,
                "present": made or folder is not None,
                "where": "made here" if made else str(folder) if folder else None,
                "download": bool(entry.address),
                "licence": entry.licence,
            }
        )
    return rows

"""Tracer: which of our files a training enters, and how often it goes from room to room.

    python tests/tracer.py [--moves FILE] [--step] train convnet --data digits --plan data:2

runs the command with every call of ours counted, in the launcher and in rank 0, and prints one JSON object: files
entered, pairs of modules in different rooms of which one calls the other, and calls from room to room; with --step
those of one step too, from the difference between 40 and 80 of them. What runs while a module is loaded is no call. A
room is a folder below the package, or a module beside them. FILE places files and symbols where they shall stand: a
line each of `file, new file, symbols`, parted by tabs.
"""

import argparse
import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType

HERE = Path(__file__).parent
SOURCE = str(HERE.parent / "src" / "manyhands") + os.sep
FOLDER = "MANYHANDS_TRACED"  # where the processes of a traced command write
LOADING = "<module>"
FOR_ALL = {"errors", "files", "progress", "timeline", "stats", "compat"}  # what everybody uses is no room

Place = Callable[[str, str], str]
Calls = Counter[tuple[str, str, str, str]]  # file and name of the caller, of the called


def begin() -> None:
    """Count the calls of this process, where it is the launcher or the first rank; started by Python itself."""
    folder = os.environ.get(FOLDER)
    if not folder or os.environ.get("RANK", os.environ.get("PMI_RANK", "0")) != "0":
        return
    calls: Calls = Counter()
    known: dict[CodeType, tuple[str, str] | None] = {}

    def ours(code: CodeType) -> tuple[str, str] | None:
        if code not in known:
            inside = code.co_filename.startswith(SOURCE)
            known[code] = (code.co_filename.removeprefix(SOURCE), code.co_qualname) if inside else None
        return known[code]

    def look(frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or (called := ours(frame.f_code)) is None:
            return
        back = frame.f_back
        while back is not None and ours(back.f_code) is None:
            back = back.f_back
        calls[(*((back and ours(back.f_code)) or ("", "")), *called)] += 1

    def write() -> None:
        sys.setprofile(None)
        told = [[*each, count] for each, count in calls.items()]
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(told))

    atexit.register(write)
    threading.setprofile(look)
    sys.setprofile(look)


def traced(command: list[str]) -> Calls:
    """The calls of a command that ends well."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text("import tracer\n\ntracer.begin()\n")
        path = os.pathsep.join([folder, str(HERE), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, FOLDER: folder, "PYTHONPATH": path}
        subprocess.run([sys.executable, "-m", "manyhands", *command], env=environment, check=True, stdout=sys.stderr)
        calls: Calls = Counter()
        for each in Path(folder).glob("*.json"):
            calls.update({tuple(row[:4]): row[4] for row in json.loads(each.read_text())})
        return calls


def as_it_is(file: str, name: str) -> str:
    return file


def moved(table: str) -> Place:
    """Where each symbol of a file shall stand."""
    files: dict[str, str] = {}
    symbols: dict[tuple[str, str], str] = {}
    for line in table.splitlines():
        if not line.startswith("#"):
            today, to_be, *names = line.split("\t")
            if names and names[0].strip():
                symbols |= {(today, name): to_be for name in names[0].split()}
            else:
                files.setdefault(today, to_be)

    def place(file: str, name: str) -> str:
        return symbols.get((file, name.split(".")[0])) or files.get(file, file)

    return place


def counted(calls: Mapping[tuple[str, str, str, str], int], place: Place) -> dict[str, int]:
    """Files entered, pairs of modules across rooms, and calls from room to room."""
    files: set[str] = set()
    pairs: Counter[tuple[str, str]] = Counter()
    for (file, name, other, called), count in calls.items():
        if LOADING in (name, called):
            continue
        callee, caller = place(other, called), place(file, name) if file else ""
        files.add(callee)
        if caller and room(caller) != room(callee) and not {room(caller), room(callee)} & FOR_ALL:
            pairs[caller, callee] += count
    return {"files": len(files), "pairs": len(pairs), "changes": pairs.total()}


def room(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=Path)
    parser.add_argument("--step", action="store_true")
    given, command = parser.parse_known_args()
    place = moved(given.moves.read_text()) if given.moves else as_it_is
    result: dict[str, object] = dict(counted(traced(command), place))
    if given.step:
        few, many = (counted(traced([*command, "--set", f"train.max_steps={count}"]), place) for count in (40, 80))
        result["changes_a_step"] = (many["changes"] - few["changes"]) / 40
    print(json.dumps(result))


if __name__ == "__main__":
    main()

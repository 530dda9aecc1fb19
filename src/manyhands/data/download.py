"""Download: the files of a known set, resumed where they stopped, checked, and whole or absent."""

import http.client
import os
import urllib.error
import urllib.request
from pathlib import Path

from manyhands import files, progress
from manyhands.data import catalog
from manyhands.data.catalog import Known, Remote
from manyhands.errors import DataError

PATIENCE = 30.0  # seconds without an answer
BLOCK = 1 << 18
MEGA = 1e6


def get(name: str, folder: Path | None = None, address: str | None = None) -> Path:
    """The folder with a set's files, downloaded if they are not here; `address` stands in for the set's own.

    Each file grows under the name FILE.part and keeps it until all are there: half a set is never taken for
    a whole one.
    """
    entry = catalog.by_name(name)
    if not entry.reader:
        progress.say(f"{name} is made here when it is first used: there is nothing to download")
        return files.home() / "data"
    if folder is None and (found := catalog.find(entry)):
        progress.say(f"{name} is in {found} already")
        return found
    address = address or entry.address
    if not address:
        raise catalog.absent(entry)
    folder = files.make_folder(folder or catalog.download_folder(name))
    with files.locked(folder / ".lock"):
        wanted = [each for each in entry.files if not _whole(folder / each.name, each)]
        for each in wanted:
            _download(entry, each, f"{address.rstrip('/')}/{each.name}", folder)
        for each in wanted:
            _part(folder, each).replace(folder / each.name)
    return folder


def _part(folder: Path, remote: Remote) -> Path:
    return folder / f"{remote.name}.part"


def _whole(path: Path, remote: Remote) -> bool:
    return path.exists() and remote.sha256 in (None, files.sha256(path))


def _download(entry: Known, remote: Remote, url: str, folder: Path) -> None:
    part = _part(folder, remote)
    if remote.sha256 and _whole(part, remote):
        return
    try:
        _fetch(url, part)
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        names = ", ".join(each.name for each in entry.files)
        raise DataError(
            f"cannot download {url} ({getattr(error, 'reason', None) or error}): "
            f"run it again to go on where it stopped, or put {names} into {folder}"
        ) from error
    if not _whole(part, remote):
        wrong = files.sha256(part)
        part.unlink()
        raise DataError(
            f"{url} has the SHA-256 {wrong[:16]}…, not {str(remote.sha256)[:16]}…, and was removed: "
            f"try again, or put the right file into {folder}"
        )


def _fetch(url: str, part: Path) -> None:
    """Append to a part what it lacks, or write it anew where the server cannot resume."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
                raise
            if error.headers.get("Content-Range") != f"bytes */{have}":  # else the part is whole
                part.unlink()
                _fetch(url, part)
            return
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        begun = have if resumed else 0
        total = begun + int(response.headers.get("Content-Length") or 0)
        with (
            part.open("ab" if resumed else "wb") as file,
            progress.bar(f"downloading {part.stem}", total / MEGA, "MB") as bar,
        ):
            bar.advance(begun / MEGA)
            while block := response.read(BLOCK):
                file.write(block)
                bar.advance(len(block) / MEGA)
            os.fsync(file.fileno())
    if part.stat().st_size < total:
        raise ConnectionError(f"it stopped after {part.stat().st_size:,} of {total:,} bytes")

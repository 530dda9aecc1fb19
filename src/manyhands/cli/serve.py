"""`manyhands serve`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyhands.cli import output
from manyhands.errors import MissingPackage

if TYPE_CHECKING:
    from manyhands.report.live.serve import Address


def serve(
    folder: Annotated[Path, typer.Argument(help="The folder that holds runs, or is to hold them.")],
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; one that others reach asks for a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0 takes a free one.")] = 8400,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Show runs in the browser while they train, until Ctrl-C."""
    output.set_output(as_json, quiet)
    try:
        from manyhands.report.live import serve as server
    except ImportError as error:
        raise MissingPackage(
            f"the live page needs {error.name}, which is not installed: pip install 'manyhands[serve]'"
        ) from None

    def tell(address: "Address") -> None:
        if output.wants_json():
            place = {"host": address.host, "port": address.port}
            output.emit({"url": address.url, "folder": str(folder.resolve()), **place})
        elif quiet:
            print(address.url, flush=True)
        else:
            print(f"the runs in {folder} are at {address.url} (Ctrl-C ends it)", flush=True)

    server.serve(folder, host, port, tell)

"""Parts: the files of which the page is made, with Plotly from the installed package; nothing comes from elsewhere."""

import gzip
import hashlib
import html
from collections.abc import Callable
from functools import cached_property, partial
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template

from starlette.requests import Request
from starlette.responses import Response

from manyhands.report.charts import palette

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
ASK_FIRST = "no-cache"
FOR_GOOD = "private, max-age=31536000, immutable"  # of an address that names the version


class Part:
    """A file of the page; made when it is first asked for, sent when the browser does not have it yet."""

    def __init__(self, kind: str, make: Callable[[], str], keep: str = ASK_FIRST) -> None:
        self.kind, self.make, self.keep = kind, make, keep

    @cached_property
    def content(self) -> bytes:
        return self.make().encode()

    @cached_property
    def small(self) -> bytes:
        return gzip.compress(self.content, 6, mtime=0)

    @cached_property
    def tag(self) -> str:
        return f'"{hashlib.blake2s(self.content, digest_size=8).hexdigest()}"'

    def answer(self, request: Request) -> Response:
        headers = {"Cache-Control": self.keep, "ETag": self.tag, "Vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self.content, headers=headers, media_type=self.kind)
        return Response(self.small, headers={**headers, "Content-Encoding": "gzip"}, media_type=self.kind)


def parts(folder: str) -> dict[str, Part]:
    """Every part under its address; the page names the folder that it shows."""
    sources = files("manyhands.report.live").joinpath("page")
    found = {"/": Part(KINDS["html"], partial(_page, sources.joinpath("index.html"), folder))}
    for each in sources.iterdir():
        if (kind := each.name.rpartition(".")[2]) in ("css", "js"):
            found[f"/{each.name}"] = Part(KINDS[kind], partial(each.read_text, "utf-8"))
    return {
        **found,
        "/colours.css": Part(KINDS["css"], palette.css),
        "/plotly.js": Part(KINDS["js"], _plotly, FOR_GOOD),
    }


def _page(source: Traversable, folder: str) -> str:
    values = {"folder": html.escape(folder), "plotly": version("plotly")}
    return Template(source.read_text("utf-8")).substitute(values)


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())

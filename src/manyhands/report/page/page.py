"""Page: a report as one HTML file that needs nothing else and lets nothing out."""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from importlib.resources import files

from plotly.offline import get_plotlyjs

from manyhands.report.charts import palette
from manyhands.report.gather import Report
from manyhands.report.page import sections
from manyhands.report.page.header import head
from manyhands.report.page.html import Html, Section, fill, join
from manyhands.report.page.panels import Panels
from manyhands.report.text.headline import title

# Signs that begin markup or end a script. As escapes they are safe anywhere; all beyond ASCII is escaped already.
UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}


def page(report: Report) -> str:
    """The whole page."""
    panels = Panels()
    body = join([head(report), *_numbered(list(sections.of(report, panels)))])
    plotly, script = Html(_script(get_plotlyjs())), Html(_script(_read("page.js")))
    text = fill(
        _read("page.html"),
        title=f"{title(report)} – manyhands",
        policy=_policy(plotly, script),
        style=Html(_read("page.css") + palette.css()),
        body=body,
        figures=Html(json.dumps(panels.figures, allow_nan=False, separators=(",", ":")).translate(UNSAFE)),
        plotly=plotly,
        script=script,
    )
    return text.encode(errors="replace").decode()  # the name of a folder may be no text


def _numbered(parts: Sequence[Section]) -> Iterator[Html]:
    """The list of all parts, and then each of them."""
    links = (fill('<a href="#part-$number">$title</a>', number=at, title=part.title) for at, part in enumerate(parts))
    yield fill('<nav aria-label="Parts of this page">$links</nav>', links=join(links))
    for number, part in enumerate(parts):
        heading = fill('<h2 id="part-$number">$title</h2>', number=number, title=part.title)
        yield fill("<section>$heading$body</section>\n", heading=heading, body=part.body)


def _read(name: str) -> str:
    return files("manyhands.report.page").joinpath(name).read_text(encoding="utf-8")


def _script(code: str) -> str:
    """Code as it stands in the page: a browser reads all line ends as one kind, and hashes what it has read."""
    return code.replace("\r\n", "\n").replace("\r", "\n").replace("</script", "<\\/script")


def _policy(*scripts: str) -> str:
    """Nothing is loaded from anywhere, and no script runs but ours, known by their hashes.

    Plotly sets styles, and makes pictures for its download button out of data and blobs.
    """
    hashes = (base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts)
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )

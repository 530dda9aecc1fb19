"""Panels: the figures of a page, put into it one by one."""

from manyhands.report.charts.spec import Panel
from manyhands.report.page.html import Html, fill, join
from manyhands.report.plotly_backend import Figure, figure


class Panels:
    """Knows the figures of every panel that the page has got; its script draws them there by their number."""

    def __init__(self) -> None:
        self.figures: list[list[Figure]] = []

    def put(self, panel: Panel) -> Html:
        """The place of a panel in the page."""
        self.figures.append([figure(chart) for chart in panel.charts.values()])
        tabs = (
            fill('<button type="button" aria-pressed="$on">$words</button>', on=str(not number).lower(), words=words)
            for number, words in enumerate(panel.charts)
        )
        return fill(
            '<figure data-panel="$number" data-tab="0"><figcaption><h3>$title</h3>$tabs</figcaption>'
            '<div class="plot" role="img" aria-label="$title"></div>$note</figure>',
            number=len(self.figures) - 1,
            title=panel.title,
            tabs=fill('<div class="tabs">$tabs</div>', tabs=join(tabs)) if len(panel.charts) > 1 else "",
            note=fill('<p class="soft">$note</p>', note=panel.note) if panel.note else "",
        )

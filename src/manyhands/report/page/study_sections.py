"""Sections on a study: its table beside the published one, and all that tells how far the two can be compared."""

from manyhands.report.charts.spec import Panel
from manyhands.report.page.html import Section, facts, paragraph, section, table
from manyhands.report.page.panels import Panels
from manyhands.report.text.table import of_study
from manyhands.studies.record import Study


def of(study: Study, panel: Panel | None, panels: Panels, alone: bool) -> Section:
    """The whole study; its finding is the page's headline when it is `alone`."""
    rows = of_study(study)
    about = {
        "source": study.source,
        "here": study.here,
        "published on": study.there,
        "used": study.used,
        "versions": None if study.has_runs else study.versions,
        "differs from the source in": study.differs,
        "found": None if alone else study.finding,
    }
    failures = (paragraph(f"{row.label} failed: {row.failed}", "error") for row in study.rows if row.failed)
    missing = (paragraph(f"Left out: {'; '.join(labels)}: {why}", "note") for why, labels in study.left_out.items())
    return section(
        study.title,
        facts(about),
        table(rows.columns, rows.lines, rows.words),
        *failures,
        *missing,
        panels.put(panel) if panel else "",
    )

"""How is a report written as Markdown, CSV or lines? Start reading at `markdown`."""

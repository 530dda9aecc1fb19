"""A real Chromium for tests: pages of any size and colour scheme that remember whatever went wrong in them."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import ConsoleMessage, Page, sync_playwright

ARTEFACTS = Path(__file__).parent.parent / "test-artifacts"


@dataclass
class Watched:
    """A page, what it complained of, and every address that it asked for."""

    page: Page
    problems: list[str] = field(default_factory=list)  # console errors and warnings, exceptions, dialogs
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def outside(self, own: str) -> list[str]:
        """The requests that left `own`, the page's own host or file; data and blob addresses leave nothing."""
        return [url for url in self.requests if not url.startswith((own, "data:", "blob:"))]

    @property
    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        wide: int = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return max(0, wide)

    def shot(self, name: str, whole: bool = True) -> None:
        """Keep a screenshot as an artefact of the tests."""
        self.page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=whole)


MakePage = Callable[..., Watched]


@pytest.fixture(scope="module")
def pages() -> Iterator[MakePage]:
    """A function that makes a page: `pages(width=1280, height=900, scheme="light", javascript=True)`."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    # The sync API keeps a loop running in this thread, in which nobody else can start one: so it ends with the module.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])

        def make(width: int = 1280, height: int = 900, scheme: str = "light", javascript: bool = True) -> Watched:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,  # type: ignore[arg-type]
                java_script_enabled=javascript,
                has_touch=width < 600,
            )
            return Watched(context.new_page())

        yield make
        browser.close()

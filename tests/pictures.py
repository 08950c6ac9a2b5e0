"""Make the pictures of the tutorials and the reports of the gallery: ``python -m tests.pictures``.

Runs the tutorials as printed, and looks: at commands as a terminal shows them, and at reports as a
browser does. Needs Chromium and the wheel of PostgreSQL. Noise is real, so figures differ a little
each time. The data are made up, so that what a report of them says is nobody's.
"""

from __future__ import annotations

import base64
import io
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.backends import PostgresServer
from tests.browsing import chromium, show
from tests.printed_code import reader, run, run_page

DOCS = Path(__file__).parent.parent / "docs"
WIDTH, MARGIN = 760, 12


@dataclass(frozen=True)
class Terminal:
    """What a command prints, from the line that begins with ``start`` on."""

    tutorial: str
    command: str
    start: str = ""
    most: int = 24

    def draw(self, folder: Path, environment: dict[str, str]) -> str:
        printed = run(["sh", "-e", "-c", self.command], folder, environment)
        lines = printed[max(printed.find(self.start), 0) :].rstrip().splitlines()
        return terminal(self.command, "\n".join(lines[: self.most]))


@dataclass(frozen=True)
class Page:
    """A part of a report, as a browser shows it."""

    tutorial: str
    part: str
    """A CSS selector."""
    report: str = "report.html"
    height: int = 620


PICTURES: dict[str, Terminal | Page] = {
    "clinic-explain.svg": Terminal("clinic", "dpweave explain plan.toml --epsilon 2", "What a copy should be worth", 8),
    "clinic-report.png": Page("clinic", "#database"),
    "shop-explain.svg": Terminal("shop", "dpweave explain plan.toml --epsilon 2", "Where the budget goes", 14),
    "shop-report.png": Page("shop", "#worth"),
    "school-report.png": Page("school", "#tables"),
    "noise-report.png": Page("clinic", "#worth", "too-little.html"),
}
REPORTS = {
    "clinic.html": ("clinic", "report.html"),
    "shop.html": ("shop", "report.html"),
    "school.html": ("school", "report.html"),
    "too-little.html": ("clinic", "too-little.html"),
}
"""Which file of which tutorial's folder."""
TOO_LITTLE = """
dpweave run clinic --plan plan.toml --epsilon 0.05 -o too-little.sqlite --report too-little.html --quiet
"""
"""The clinic at an epsilon that is far too small: what a report looks like that says so."""


def terminal(command: str, printed: str) -> str:
    """Draw a terminal as SVG, with the fonts of whoever looks."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=82, file=io.StringIO())
    console.print(Text.assemble(("$ ", "bold"), (command, "bold"), "\n\n", Text.from_ansi(printed)))
    drawn = console.export_svg(title="", unique_id="t")
    drawn = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL).replace("Fira Code", "ui-monospace")
    return re.sub(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', r'\g<0> width="\1" height="\2"', drawn, count=1)


def photograph(browser: Any, address: str, page: Page) -> bytes:
    """Return a part of a page as PNG."""
    show(browser, address, width=WIDTH)
    box = browser.execute_script(
        "const r = document.querySelector(arguments[0]).getBoundingClientRect();"
        f"return {{x: r.x - {MARGIN}, y: r.y + scrollY, width: r.width + {2 * MARGIN}, height: r.height}}",
        page.part,
    )
    clip = {**box, "height": min(box["height"], page.height), "scale": 1}
    asked = {"format": "png", "captureBeyondViewport": True, "clip": clip}
    return base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", asked)["data"])


def make() -> None:
    """Run the tutorials and write every picture and report."""
    server = PostgresServer()
    home = Path(tempfile.mkdtemp(prefix="dpweave-pictures-"))
    for kind in ("pictures", "gallery"):
        shutil.rmtree(DOCS / kind, ignore_errors=True)
        (DOCS / kind).mkdir()
    try:
        environment = reader(home / "bin", {"SHOP": server.fresh(), "COPY": server.fresh()})
        for tutorial in {p.tutorial for p in PICTURES.values()}:
            (home / tutorial).mkdir()
            run_page(DOCS / f"tutorial-{tutorial}.md", home / tutorial, environment)
        run(["sh", "-e", "-c", TOO_LITTLE], home / "clinic", environment)
        for name, (tutorial, report) in REPORTS.items():
            shutil.copy(home / tutorial / report, DOCS / "gallery" / name)
        with chromium(home / "profile") as browser:
            for name, picture in PICTURES.items():
                target = DOCS / "pictures" / name
                if isinstance(picture, Terminal):
                    target.write_text(picture.draw(home / picture.tutorial, environment))
                else:
                    report = home / picture.tutorial / picture.report
                    target.write_bytes(photograph(browser, report.as_uri(), picture))
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    make()

"""The pages in a real browser: no console message, no request, nothing wider than the screen, everything drawn."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from dpweave.evaluation.evaluate import evaluate
from dpweave.evaluation.figures import STAMP
from dpweave.plan.entries import TablePlan
from dpweave.plan.plan import Plan
from dpweave.report.html_report import report
from dpweave.schema.domain import Categories
from tests.browsing import WIDTHS, chromium, requested, show, unreadable
from tests.report.test_html_report import SECTIONS
from tests.report.worlds import column, model, shop, shop_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots stay: DPWEAVE_ARTIFACTS, or pytest's own folder."""
    named = os.environ.get("DPWEAVE_ARTIFACTS")
    folder = Path(named) / "report" if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module", params=["report", "evaluation"])
def page(request: pytest.FixtureRequest, artifacts: Path) -> Path:
    path = artifacts / f"{request.param}.html"
    if request.param == "report":
        report(model(shop(0), sigma=4.0), shop(1, bond=0.5), path)  # type: ignore[arg-type]
    else:
        evaluate(shop(0), shop(1, bond=0.5), shop_plan(), k=3, learners=False).to_html(path)
    return path


def look(browser: Any, page: Path, *, width: int, dark: bool) -> None:
    show(browser, page.resolve().as_uri(), width=width, dark=dark)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_opens_fits_and_stays_silent(browser: Any, page: Path, artifacts: Path, width: int, dark: bool) -> None:
    look(browser, page, width=width, dark=dark)
    assert browser.get_log("browser") == []
    asked = [u for u in requested(browser) if not u.startswith("data:")]
    assert asked == [page.resolve().as_uri()]
    wide, inner = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert inner == width
    assert wide <= width
    _shoot(browser, artifacts / f"{page.stem}-{width}-{'dark' if dark else 'light'}.png", width)


def _shoot(browser: Any, path: Path, width: int) -> None:
    height = browser.execute_script("return document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, 12_000), "scale": 1}
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    path.write_bytes(base64.b64decode(taken["data"]))
    assert path.stat().st_size > 20_000


def test_every_section_is_there_and_every_plot_is_drawn(browser: Any, page: Path) -> None:
    look(browser, page, width=1024, dark=False)
    anchors = SECTIONS if page.stem == "report" else ("errors", "degrees", "association", "scores", "rivals")
    for anchor in anchors:
        tall = browser.execute_script(
            "return document.getElementById(arguments[0]).getBoundingClientRect().height", anchor
        )
        assert tall > 60, anchor
    if page.stem != "report":
        return
    drawn = browser.execute_script("""document.querySelectorAll('details').forEach(d => d.open = true);
        return [...document.querySelectorAll('svg[role=img]')].filter(s => s.getBoundingClientRect().width > 0)
          .map(s => {
          const b = s.getBoundingClientRect(), g = s.getBBox();
          return [b.width, b.height, g.width, g.height, s.querySelectorAll('rect,circle,path').length];
        })""")
    assert len(drawn) > 15
    for width, height, inner_width, inner_height, marks in drawn:
        assert min(width, height, inner_width, inner_height) > 15
        assert marks >= 2
    bars = browser.execute_script(
        "return [...document.querySelectorAll('rect.synthetic')].map(r => r.getBBox().width * r.getBBox().height)"
    )
    assert sum(area > 4 for area in bars) > 40
    assert browser.execute_script("return document.querySelectorAll('circle.dot').length") > 40
    assert browser.execute_script("return document.querySelectorAll('rect.more, rect.less').length") > 8


def test_text_can_be_read(browser: Any, page: Path) -> None:
    for dark in (False, True):
        look(browser, page, width=1024, dark=dark)
        assert unreadable(browser) == []


def test_the_keyboard_reaches_everything(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    look(browser, page, width=1024, dark=False)
    reached = set()
    for _ in range(25):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        reached.add(
            browser.execute_script(
                "const e = document.activeElement; return e.tagName + ' ' + (e.className || e.getAttribute('href')"
                " || '')"
            )
        )
    assert "A skip" in reached
    assert any(r.startswith("A #") for r in reached)
    assert any(r.startswith(("SUMMARY", "DIV scroll")) for r in reached)
    summary = browser.find_element("css selector", "details:not([open]) > summary") if page.stem == "report" else None
    if summary is not None:
        parent = browser.execute_script("return arguments[0].parentElement", summary)
        summary.send_keys(Keys.ENTER)
        assert browser.execute_script("return arguments[0].open", parent)


def test_it_prints(browser: Any, page: Path, artifacts: Path) -> None:
    look(browser, page, width=1024, dark=True)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    ink, paper = browser.execute_script(
        "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
    )
    assert (ink, paper) == ("rgb(0, 0, 0)", "rgb(255, 255, 255)")
    made = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert made.startswith(b"%PDF")
    assert len(made) > 20_000
    (artifacts / f"{page.stem}.pdf").write_bytes(made)
    if page.stem == "evaluation" and shutil.which("pdftotext"):
        words = subprocess.run(["pdftotext", "-", "-"], input=made, capture_output=True, check=True).stdout.decode()
        sheets = words.rstrip("\f").split("\f")
        assert len(sheets) > 1
        assert all(STAMP in sheet.replace("\n", " ") for sheet in sheets)


HOSTILE = (
    "<script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 1'>",
    '"><svg onload=window.broken=1>',
    "' autofocus onfocus='window.broken = 1",
    "</style></title></textarea><script>window.broken = 1</script>",
    "javascript:window.broken=1",
    "&lt;script&gt;window.broken = 1&lt;/script&gt;",
    "{{window.broken = 1}}${window.broken = 1}",
)
"""What would leave a mark on the window if a page took it for anything but text."""


@pytest.mark.parametrize("kind", ["report", "evaluation"])
def test_hostile_names_and_values_stay_text(browser: Any, artifacts: Path, kind: str) -> None:
    """Names, categories and what a certificate says come from a stranger's model."""
    names = [f"{i} {text}" for i, text in enumerate(HOSTILE)]
    evil = names[0]
    columns = (column("id", "int64"), *(column(n, "text", Categories(HOSTILE)) for n in names))
    plan = Plan((TablePlan(evil, columns, primary_key=("id",)),), protect=(evil,))
    values = {n: [HOSTILE[(i + j) % len(HOSTILE)] for j in range(40)] for i, n in enumerate(names)}
    tables = {evil: pa.table({"id": range(40), **values})}
    path = artifacts / f"hostile-{kind}.html"
    if kind == "report":
        made = model(tables, sigma=1.0, plan=plan)
        said = "".join(HOSTILE)
        made.certificate = replace(made.certificate, database=said, statement=said, caveats=HOSTILE)
        report(made, tables, path)  # type: ignore[arg-type]
    else:
        evaluate(tables, tables, plan, k=2, learners=False).to_html(path)
    look(browser, path, width=WIDTHS[1], dark=False)
    assert browser.execute_script("return window.broken") is None
    assert browser.get_log("browser") == []
    assert "window.broken" in browser.execute_script("return document.body.textContent")
    marks = "script, img, textarea, [onload], [onerror], [onfocus], [autofocus], [href^=javascript]"
    assert browser.execute_script(f"return document.querySelectorAll('{marks}').length") == 0

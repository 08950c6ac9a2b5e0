"""The pages in a real browser: no console message, no request, nothing wider than the screen, everything drawn."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dpweave.report.evaluation import STAMP, evaluate
from dpweave.report.html import report
from tests.report.test_html import SECTIONS
from tests.report.worlds import model, shop, shop_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow
WIDTHS = (360, 1024, 1600)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip(
            "no chromium and chromedriver on the path; install the Debian packages chromium and chromium-driver"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield opened
    opened.quit()


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
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": scheme})
    browser.get("about:blank")  # whatever the browser's own first page still does ends here
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.resolve().as_uri())


def requests(browser: Any) -> list[str]:
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [p["request"]["url"] for p in sent if not p["documentURL"].startswith(("chrome:", "about:"))]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_opens_fits_and_stays_silent(browser: Any, page: Path, artifacts: Path, width: int, dark: bool) -> None:
    look(browser, page, width=width, dark=dark)
    assert browser.get_log("browser") == []
    asked = [u for u in requests(browser) if not u.startswith("data:")]
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
    drawn = browser.execute_script(
        """document.querySelectorAll('details').forEach(d => d.open = true);
        return [...document.querySelectorAll('svg[role=img]')].filter(s => s.getBoundingClientRect().width > 0).map(s => {
          const b = s.getBoundingClientRect(), g = s.getBBox();
          return [b.width, b.height, g.width, g.height, s.querySelectorAll('rect,circle,path').length];
        })"""
    )
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
    """Contrast of 4.5 to 1 (WCAG AA) for text on its background, in light and in dark."""
    script = """
      const parse = c => c.match(/[\\d.]+/g).map(Number);
      const lum = c => { const f = c.slice(0, 3).map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
        return .2126 * f[0] + .7152 * f[1] + .0722 * f[2]; };
      const back = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
      const bad = [];
      document.querySelectorAll('p,li,td,th,dt,dd,summary,figcaption,h1,h2,h3,h4,.badge,.unit,.soft,caption,a,.stamp').forEach(e => {
        const a = lum(parse(getComputedStyle(e).color)), b = lum(back(e));
        const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        if (ratio < 4.5 && e.textContent.trim()) bad.push([e.tagName, e.className, e.textContent.slice(0, 40), ratio]);
      });
      return bad.slice(0, 5);"""
    for dark in (False, True):
        look(browser, page, width=1024, dark=dark)
        assert browser.execute_script(script) == []


def test_the_keyboard_reaches_everything(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    look(browser, page, width=1024, dark=False)
    reached = set()
    for _ in range(25):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        reached.add(
            browser.execute_script(
                "const e = document.activeElement; return e.tagName + ' ' + (e.className || e.getAttribute('href') || '')"
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

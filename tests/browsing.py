"""A real browser for the tests, and pages that are measured only once they stand still."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WIDTHS = (360, 1024, 1600)
PATIENCE = 240
"""Seconds for a page to stand still: far more than any machine needs, so that only a page that never does can fail."""

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
STANDS_STILL = """
  const done = arguments[arguments.length - 1];
  const size = () => [innerWidth, document.documentElement.scrollWidth, document.documentElement.scrollHeight,
                      document.styleSheets.length, [...document.images].filter(i => !i.complete).length].join();
  const frames = then => requestAnimationFrame(() => requestAnimationFrame(then));
  let last = '', same = 0;
  const watch = () => {
    same = document.readyState === 'complete' && innerWidth === arguments[0] && size() === last ? same + 1 : 0;
    last = size();
    if (same >= 3) done(last); else setTimeout(() => frames(watch), 20);
  };
  document.fonts.ready.then(() => frames(watch));
"""
UNREADABLE = """
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const lum = c => { const f = c.slice(0, 3).map(v => { v /= 255;
    return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
    return .2126 * f[0] + .7152 * f[1] + .0722 * f[2]; };
  const back = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > .5) return c; } return [255, 255, 255]; };
  const bad = [];
  document.querySelectorAll('p,li,td,th,dt,dd,summary,figcaption,h1,h2,h3,h4,code,.badge,.unit,.soft,caption,a,.stamp,.md-copyright').forEach(e => {
    const a = lum(parse(getComputedStyle(e).color)), b = lum(back(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5 && e.textContent.trim() && e.checkVisibility({opacityProperty: true, visibilityProperty: true}))
      bad.push([e.tagName, e.className, e.textContent.slice(0, 40), ratio]);
  });
  return bad.slice(0, 5);
"""  # noqa: E501


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """Open headless Chromium with its logs, or skip the test where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no browser; install the Debian packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    opened.set_page_load_timeout(PATIENCE)
    opened.set_script_timeout(PATIENCE)
    try:
        yield opened
    finally:
        opened.quit()


def show(browser: Any, url: str, *, width: int, dark: bool = False) -> None:
    """Open a page on a screen so wide and wait until it is loaded, has its fonts and keeps its size."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": scheme})
    browser.get("about:blank")  # whatever the browser's own first page still does ends here
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(url)
    browser.execute_async_script(STANDS_STILL, width)


def requested(browser: Any) -> list[str]:
    """Every address that the page asked for since it was opened."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [p["request"]["url"] for p in sent if not p["documentURL"].startswith(("chrome:", "about:"))]


def unreadable(browser: Any) -> list[Any]:
    """Find text whose contrast with its background is below 4.5 to 1 (WCAG AA)."""
    found: list[Any] = browser.execute_script(UNREADABLE)
    return found


def brightness(browser: Any) -> float:
    """Mean of the page's background colour, from 0 (black) to 255 (white)."""
    script = "return getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).slice(0, 3).map(Number)"
    return sum(browser.execute_script(script)) / 3

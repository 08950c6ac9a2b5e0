"""The documentation: it builds without a warning, its links lead somewhere, every block of code in it runs."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from dpweave.cli import demo
from dpweave.plan.plan import Plan
from dpweave.plan.rules import constraint_from_dict
from tests import pictures, plan_reference
from tests.backends import postgres
from tests.browsing import WIDTHS, brightness, chromium, requested, show, unreadable
from tests.printed_code import blocks, reader, run_page

__all__ = ["postgres"]

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
STARTS_WITH_THE_DEMONSTRATION = {"README.md", "quick-start.md"}


def runnable():
    """Pages whose code runs anywhere. That on scaling needs a Spark and a PostgreSQL server, and its own tests."""
    return [p for p in PAGES if blocks(p, "sh", "python") and p.name != "scaling.md"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """What pages take for granted: a shop smaller than the demonstration's, its plan, a model, a ledger, a copy."""
    folder = tmp_path_factory.mktemp("prepared") / "out"
    demo.run(folder, rows=3000)
    (folder / demo.MODEL).rename(folder / "shop.dpw")
    return folder


@pytest.fixture
def workshop(request, tmp_path):
    """Return a folder to run a page in, and the environment of its reader."""

    def make(page):
        work, more = tmp_path / "work", {}
        if page.name in STARTS_WITH_THE_DEMONSTRATION:
            shutil.copytree(request.getfixturevalue("prepared"), work / "dpweave-demo")
        elif page.stem.startswith("tutorial-"):
            work.mkdir()
        else:
            shutil.copytree(request.getfixturevalue("prepared"), work)
        if page.name == "tutorial-shop.md":
            server = request.getfixturevalue("postgres")
            more = {"SHOP": server.fresh(), "COPY": server.fresh()}
        return work, reader(tmp_path / "bin", more)

    return make


@pytest.mark.slow
@pytest.mark.parametrize("page", runnable(), ids=lambda p: p.stem)
def test_every_block_of_code_runs_as_printed(page, workshop):
    run_page(page, *workshop(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_links_lead_to_files_that_are_there(page):
    for target in LINK.findall(page.read_text()):
        if not target.startswith(("http://", "https://", "#")):
            assert (page.parent / target.split("#")[0]).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_toml_in_the_text_is_toml(page):
    for _, text in blocks(page, "toml"):
        tomllib.loads(text)


def test_the_reference_of_the_plan_is_made_from_the_code():
    """``python -m tests.plan_reference`` writes it again."""
    assert plan_reference.PAGE.read_text() == plan_reference.page()
    Plan.from_toml(plan_reference.EXAMPLE)
    for head, _, words, _ in plan_reference.SECTIONS:
        for key, (_, _, example) in words.items():
            assert list(tomllib.loads(example)) == [key], (head, key)
    for kind, _, words in plan_reference.RULES:
        text = "\n".join(['table = "t"', *(example for *_, example in words.values())])
        found = constraint_from_dict(tomllib.loads(text))
        assert type(found) is kind


def test_pictures_and_reports_are_those_that_the_script_makes():
    """``python -m tests.pictures`` makes them again."""
    made = {f"pictures/{name}" for name in pictures.PICTURES} | {f"gallery/{name}" for name in pictures.REPORTS}
    assert {
        p.relative_to(ROOT / "docs").as_posix() for f in ("pictures", "gallery") for p in (ROOT / "docs" / f).iterdir()
    } == made
    shown = {target for page in PAGES for target in LINK.findall(page.read_text())}
    assert made <= shown
    assert sum((ROOT / "docs" / name).stat().st_size for name in made) < 1.2e6


def test_what_lawyers_are_told_of_epsilon_is_bayes_and_rounded_up():
    rows = re.findall(
        r"^\| ([\d.]+) \| ([\d.]+) % \| ([\d.]+) % \|$", (ROOT / "docs/for-lawyers.md").read_text(), re.MULTILINE
    )
    assert len(rows) == 6
    for epsilon, *shown in rows:
        for prior, text in zip((0.5, 0.1), shown, strict=True):
            odds = prior / (1 - prior) * math.exp(float(epsilon))
            last = 10.0 ** -len(text.partition(".")[2])
            assert 0 <= float(text) - 100 * odds / (1 + odds) < last, (epsilon, text)


def test_every_module_is_in_the_drawing_of_the_tree():
    drawn = (ROOT / "docs" / "how-it-works.md").read_text()
    for path in (ROOT / "src" / "dpweave").iterdir():
        if path.suffix == ".py" and path.stem != "__init__":
            assert path.name in drawn, path.name
        elif path.is_dir() and path.name != "__pycache__":
            assert f"{path.name}/" in drawn, path.name


def test_every_command_and_option_that_is_printed_exists():
    import typer

    from dpweave.cli.commands import app

    commands = typer.main.get_command(app).commands
    for page in PAGES:
        printed = "\n".join(text for _, text in blocks(page, "sh", "text"))
        for line in re.findall(r"^(?:\.venv/bin/)?dpweave (.+)$", printed, re.MULTILINE):
            name, *rest = line.split("#")[0].split()
            assert name in commands, f"{page.name}: {line}"
            known = {o for p in commands[name].params for o in p.opts}
            for word in rest:
                if re.fullmatch(r"-{1,2}[a-z][a-z-]*", word):
                    assert word in known, f"{page.name}: {line}"


# -- the site ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="pip install '.[docs]'")
    pytest.importorskip("mkdocstrings_handlers.python")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # the theme's own notice, no warning about these pages
    found = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "WARNING" not in found.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_has_the_api(site):
    text = (site / "api.html").read_text()
    for name in ("Plan", "fit", "Model", "link", "Certificate", "BudgetError"):
        assert name in text
    assert (site / "drawings" / "wall.svg").exists()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def served(site):
    """Serve the site on this machine: its search starts a worker, which browsers refuse to pages that are files."""
    handler = partial(SilentHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class SilentHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


FLAWS = """
  const bad = [], seen = e => e.checkVisibility({opacityProperty: true, visibilityProperty: true});
  for (const e of document.querySelectorAll('article :is(p, li, td, dd) a:not(.headerlink)'))
    if (getComputedStyle(e).textDecorationLine === 'none' && e.parentElement.innerText.trim() !== e.innerText.trim())
      bad.push('a link by its colour alone: ' + e.outerHTML.slice(0, 80));
  for (const e of document.querySelectorAll('[role=dialog]')) if (!e.ariaLabel) bad.push('no name: ' + e.outerHTML.slice(0, 80));
  const names = [...document.querySelectorAll('.md-code__nav')].map(e => e.ariaLabel);
  if (new Set(names).size !== names.length) bad.push('one name for several: ' + names.join());
  for (const e of [...document.querySelectorAll('article *')].filter(seen))
    if (['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1 && e.tabIndex < 0)
      bad.push('no key scrolls it: ' + e.outerHTML.slice(0, 80));
  return bad.slice(0, 5);
"""  # noqa: E501
"""What axe found once: links by colour alone, a dialog without a name, many regions of one name, and what scrolls by
mouse alone."""


@pytest.mark.slow
@pytest.mark.parametrize(("dark", "widths"), [(False, WIDTHS), (True, WIDTHS[:1])], ids=["light", "dark"])
def test_pages_open_in_a_real_browser_without_errors_or_requests_and_fit(site, served, browser, dark, widths):
    for page in sorted(site.glob("*.html")):
        if page.name == "404.html":
            continue
        for width in widths:
            show(browser, served + page.name, width=width, dark=dark)
            view = browser.execute_script(
                "return {needed: document.documentElement.scrollWidth, text: document.body.innerText.length,"
                " broken: [...document.images].filter(i => !i.naturalWidth).length}"
            )
            assert view["needed"] <= width, (page.name, width, view)
            assert view["text"] > 200, page.name
            assert view["broken"] == 0, page.name
            assert unreadable(browser) == [], page.name
            assert browser.execute_script(FLAWS) == [], (page.name, width)
            assert (brightness(browser) < 64) == dark, page.name
            assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
            asked = requested(browser)
            assert asked
            assert [url for url in asked if not url.startswith((served, "data:"))] == []

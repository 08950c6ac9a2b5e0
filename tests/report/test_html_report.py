"""The report as a file: whole, self-contained, escaped, described in words, quick and small."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import dpweave.report
from dpweave.errors import TargetError
from dpweave.measure.estimates import Estimate
from dpweave.model.synthetic_database import SyntheticDatabase
from dpweave.plan.entries import KeyPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.plan.rules import Determined
from dpweave.report.cards import _pair
from dpweave.report.html_report import render, report
from dpweave.report.noisy_estimates import Pair
from dpweave.schema.database import ForeignKey
from dpweave.schema.domain import Bins, Categories
from tests.report.worlds import certificate, column, model, shop

if TYPE_CHECKING:
    from pathlib import Path

SECTIONS = ("promise", "database", "checks", "tables", "relations", "weak", "ledger", "words")
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Outline(HTMLParser):
    """Checks that tags close in order, and gathers what matters."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.headings: list[int] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if "id" in found:
            self.ids.append(str(found["id"]))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page() -> str:
    tables = shop(0)
    return render(model(tables, sigma=4.0), shop(1))  # type: ignore[arg-type]


def test_whole_and_well_formed(page: str) -> None:
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert set(SECTIONS) <= set(outline.ids)
    names = [t for t, _ in outline.tags]
    assert (
        names.count("main")
        == names.count("header")
        == names.count("nav")
        == names.count("footer")
        == names.count("h1")
        == 1
    )
    assert all(b <= a + 1 for a, b in zip(outline.headings, outline.headings[1:], strict=False)), "no level is skipped"


def test_nothing_is_loaded_and_nothing_runs(page: str) -> None:
    outline = Outline()
    outline.feed(page)
    assert "script" not in {t for t, _ in outline.tags}
    for tag, attributes in outline.tags:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, name, value)
        assert not any(a.startswith("on") for a in attributes)
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_plots_say_what_they_show(page: str) -> None:
    outline = Outline()
    outline.feed(page)
    drawings = [a for t, a in outline.tags if t == "svg"]
    assert len(drawings) > 15
    for attributes in drawings:
        if attributes.get("aria-hidden") != "true":
            assert attributes["role"] == "img"
            assert {attributes["aria-labelledby"], attributes["aria-describedby"]} <= set(outline.ids)
    assert page.count("<table>") == page.count("<caption>") > 10
    assert 'lang="en"' in page


def test_what_it_tells(page: str) -> None:
    assert "Whoever sees the release can hardly tell" in page
    assert "73.1 %" in page  # e^1 / (1 + e^1)
    assert "1 in 1,000,000" in page
    assert "tables:customers" in page  # the ledger
    assert "sigma 3.25" in page
    assert "orders.product → products" in page
    assert "agree with the measurement" in page
    assert "Every rule of the schema holds" in page


def test_insecure_is_said_first() -> None:
    tables = shop(0)
    made = replace(model(tables, sigma=1.0), certificate=certificate(insecure=True))
    page = render(made, tables)  # type: ignore[arg-type]
    assert page.index("INSECURE") < page.index("<h1>")
    assert "Safe to share" not in page


def test_broken_rules_are_said() -> None:
    tables = shop(0)
    ids = tables["staff"]["id"].to_pylist()
    twice = {**tables, "staff": tables["staff"].set_column(0, "id", pa.array([ids[1], *ids[1:]]))}
    page = render(model(tables, sigma=1.0), twice)  # type: ignore[arg-type]
    assert "BROKEN" in page
    assert "Every rule of the schema holds" not in page


def test_what_rules_have_cost_is_said() -> None:
    rule = Determined("customers", ("name",), "country")
    tables = shop(0)
    made = model(tables, sigma=1.0)
    made.plan = replace(made.plan, constraints=(rule,))
    mended = SyntheticDatabase(made.plan.database, tables, repairs={str(rule): 20})
    page = render(made, mended)  # type: ignore[arg-type]
    assert "Rows that were mended after drawing" in page
    assert '<td class="n">20</td><td class="n">5 %</td>' in page
    other = replace(mended, repairs={str(rule): 20, "staff.boss within its unit": 3})
    assert '<td class="n">3</td><td class="n">–</td>' in render(made, other)  # type: ignore[arg-type]


@pytest.mark.parametrize(("sigma", "drowned"), [(1.0, False), (100.0, True)])
def test_noise_beyond_all_links_gets_words_and_no_figures(sigma, drowned) -> None:
    noisy = Estimate(("x", "y"), np.array([[30.0, 12.0], [8.0, 5.0]]), sigma)
    drawn = _pair(Pair("a.x", "b.y", ("p", "q"), ("r", "s"), noisy, np.full((2, 2), 12.0)))
    assert ("is larger than the number of links" in drawn, "points of all links; noise" in drawn) == (
        drowned,
        not drowned,
    )


def test_a_copy_that_was_read_back_says_that_rows_were_changed() -> None:
    rule = Determined("customers", ("name",), "country")
    tables = shop(0)
    made = model(tables, sigma=1.0)
    said = "cannot be told from a copy that was read back"
    assert said not in render(made, tables)  # type: ignore[arg-type]
    made.plan = replace(made.plan, constraints=(rule,))
    page = render(made, SyntheticDatabase(made.plan.database, tables))  # type: ignore[arg-type]
    assert (said in page, "were mended" in page) == (True, False)
    known = SyntheticDatabase(made.plan.database, tables, repairs={str(rule): 0})
    assert said not in render(made, known)  # type: ignore[arg-type]


def test_names_and_values_cannot_break_out() -> None:
    evil = "<script>alert(1)</script>&\"'"
    table = TablePlan(
        evil,
        (
            column("id", "int64"),
            column(f"c{evil}", "text", Categories((evil, "b"))),
            column("up", "int64", nullable=True),
        ),
        primary_key=("id",),
        keys=(KeyPlan(ForeignKey(("up",), evil, ("id",), f"k{evil}"), "linking", 3),),
    )
    plan = Plan((table,), protect=(evil,))
    tables = {evil: pa.table({"id": [1, 2], f"c{evil}": [evil, "b"], "up": pa.array([2, None], pa.int64())})}
    made = model(tables, sigma=1.0, plan=plan)
    made.certificate = replace(made.certificate, database=evil, statement=evil, caveats=(evil,))
    page = render(made, tables)  # type: ignore[arg-type]
    assert "<script" not in page
    Outline().feed(page)


def test_long_lists_are_cut_and_said_to_be() -> None:
    words = tuple(f"w{i}" for i in range(500))
    plan = Plan(
        (TablePlan("t", (column("id", "int64"), column("w", "text", Categories(words))), primary_key=("id",)),),
        protect=("t",),
    )
    tables = {"t": pa.table({"id": np.arange(1000), "w": [words[i % 500] for i in range(1000)]})}
    page = render(model(tables, sigma=1.0, plan=plan), tables)  # type: ignore[arg-type]
    assert "The 16 commonest of 500 values are drawn." in page
    assert len(page) < 100_000


def test_written_whole_or_not_at_all(tmp_path: Path) -> None:
    tables = shop(0)
    made = model(tables, sigma=1.0)
    report(made, tables, tmp_path / "r.html")  # type: ignore[arg-type]
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    with pytest.raises(TargetError, match="cannot be written"):
        report(made, tables, tmp_path / "no" / "r.html")  # type: ignore[arg-type]
    dpweave.report(made, tables, tmp_path / "again.html")  # type: ignore[operator]
    assert (tmp_path / "again.html").stat().st_size > 10_000


def large() -> tuple[Plan, dict[str, pa.Table]]:
    """Fifteen tables of eight columns and 5,000 rows, each leading to the two before it."""
    rng = np.random.default_rng(0)
    plans, tables, rows = [], {}, 5_000
    for i in range(15):
        names = [f"t{j}" for j in range(max(0, i - 2), i)]
        data = [
            column(f"c{k}", "int64", Bins(tuple(range(17))))
            if k % 2
            else column(f"c{k}", "text", Categories(tuple("abcdefghijkl")))
            for k in range(8)
        ]
        keys = tuple(
            KeyPlan(ForeignKey((f"to_{n}",), n, ("id",)), "owning" if j == 0 else "linking", 10)
            for j, n in enumerate(names)
        )
        columns = (column("id", "int64"), *data, *(column(f"to_{n}", "int64") for n in names))
        plans.append(TablePlan(f"t{i}", columns, primary_key=("id",), keys=keys))
        tables[f"t{i}"] = pa.table(
            {
                "id": np.arange(rows),
                **{
                    c.name: rng.integers(0, 16, rows)
                    if c.column.type.kind == "integer"
                    else rng.choice(list("abcdefghijkl"), rows)
                    for c in data
                },
                **{f"to_{n}": rng.integers(0, rows, rows) for n in names},
            }
        )
    return Plan(tuple(plans), protect=("t0",)), tables


@pytest.mark.slow
def test_fifteen_tables_in_ten_seconds_and_five_megabytes(tmp_path: Path) -> None:
    plan, tables = large()
    made = model(tables, sigma=20.0, plan=plan)
    assert sum(m.what.startswith("links:") for m in made.release.measured) > 1000
    start = time.process_time()
    report(made, tables, tmp_path / "large.html")  # type: ignore[arg-type]
    assert time.process_time() - start < 10
    assert (tmp_path / "large.html").stat().st_size < 5_000_000

"""refit(): what a release holds is enough to learn again, and a refit without changes is the model itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

import dpweave as dw
from dpweave.errors import PlanError
from dpweave.model.model import _entries
from dpweave.plan.plan import Plan
from tests.model.shops import PLAN, fitted, tables

if TYPE_CHECKING:
    from pathlib import Path

    from dpweave.model.model import Model

RULE = """
[[constraints]]
table = "people"
columns = ["sex", "town"]
allowed = [["f", "Bern"], ["m", "Chur"]]
"""


@pytest.fixture(scope="module")
def model() -> Model:
    return fitted(None)


def test_a_refit_without_changes_is_the_model_itself(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "shop.dpw")
    loaded = dw.load(tmp_path / "shop.dpw")
    for one in (model, loaded):
        again = dw.refit(one)
        content, known = _entries(again), _entries(one)
        assert {name: content[name] for name in known} == known
        assert all(again.sample(seed=3)[t].equals(one.sample(seed=3)[t]) for t in one.sizes)
        assert dw.verify(again).true
    dw.refit(loaded).save(tmp_path / "again.dpw")
    kept = dw.load(tmp_path / "again.dpw")
    assert [step["step"] for step in kept.lineage] == ["refit"]
    assert [len(dw.refit(kept).lineage), kept.lineage[0]["plan"]] == [2, "as it was"]


def test_a_refit_is_what_a_fresh_fit_learns_from_the_same_answers(model: Model, tmp_path: Path) -> None:
    """The fit goes on with every answer that was kept, and with a source that has no row any more."""
    ledger = tmp_path / "ledger.jsonl"
    earlier = fitted(ledger)
    assert len([*tmp_path.glob("*.answers")]) == 1  # it was never saved
    spent = ledger.read_text().count('"kind": "charge"')
    empty = {name: table.slice(0, 0) for name, table in tables().items()}
    fresh, again = _entries(fitted(ledger, source=empty, resume=True)), _entries(dw.refit(earlier))
    assert ledger.read_text().count('"kind": "charge"') == spent
    for of_its_own in ("certificate.json", "plan.toml"):
        known = fresh.pop(of_its_own), again.pop(of_its_own)
        assert of_its_own != "plan.toml" or known[0] == known[1]
    again.pop("lineage.json")
    again.pop("asked.toml", None)
    assert fresh == again


def test_independent_tables_become_aim_and_no_source_is_there_any_more(tmp_path: Path) -> None:
    """Pairs that were measured for mst stay in the release of a model whose tables are independent."""
    source, paths = tmp_path / "shop", [tmp_path / f"{i}.dpw" for i in range(3)]
    source.mkdir()
    for name, table in tables().items():
        parquet.write_table(table, source / f"{name}.parquet")
    fitted(tmp_path / "ledger.jsonl", source=source).save(paths[0])
    shutil.rmtree(source)
    for before, after, mechanism in (*zip(paths, paths[1:], ("independent", "aim"), strict=False),):
        (tmp_path / "plan.toml").write_text(PLAN.replace('"mst"', f'"{mechanism}"'))
        said = [sys.executable, "-m", "dpweave.cli", "refit", before, "-o", after, "-p", tmp_path / "plan.toml"]
        subprocess.run(said, check=True, capture_output=True, timeout=300)
    independent, aim = dw.load(paths[1]), dw.load(paths[2])
    assert (independent.mechanisms["people"], aim.mechanisms["people"]) == ("independent", "aim")
    assert aim.certificate == independent.certificate == dw.load(paths[0]).certificate
    assert [step["step"] for step in aim.lineage] == ["refit", "refit"]
    assert dw.verify(aim, ledger=tmp_path / "ledger.jsonl").true
    pair = next(m.marginal for m in aim.release.measured if m.what == "tables:people" and len(m.marginal.columns) > 1)
    near, far = (abs(m.tables["people"].marginal(pair.columns) - pair.counts).sum() for m in (aim, independent))
    assert near < far / 2


def test_another_mechanism_learns_from_the_marginals_that_are_there(model: Model) -> None:
    """The shop measured pairs of people for mst: aim and woven learn from them, and independent from their sums."""
    pair = next(m.marginal for m in model.release.measured if m.what == "tables:people" and len(m.marginal.columns) > 1)
    learned = {}
    for mechanism in ("aim", "woven", "independent"):
        changed = Plan.from_toml(PLAN.replace('"mst"', f'"{mechanism}"'))
        again = dw.refit(model, changed)
        assert again.certificate == model.certificate
        assert again.mechanisms["people"] == mechanism
        assert dw.verify(again).true
        learned[mechanism] = again.tables["people"]
    near, far = (abs(learned[name].marginal(pair.columns) - pair.counts).sum() for name in ("aim", "independent"))
    assert near < far / 2


def test_the_plan_that_was_asked_under_stays_with_a_model_that_was_learned_again(model: Model, tmp_path: Path) -> None:
    dw.refit(model, Plan.from_toml(PLAN.replace('"mst"', '"aim"'))).save(tmp_path / "a.dpw")
    kept = dw.load(tmp_path / "a.dpw")
    assert (kept.plan.table["people"].mechanism, kept.certified_plan.table["people"].mechanism) == ("aim", "mst")
    assert any("learned again" in said for said in dw.verify(kept).unbound)


def test_rules_and_links_may_change(model: Model) -> None:
    method = PLAN.replace('role = "linking"', 'role = "linking"\nmethod = "random"')
    found = dw.refit(model, Plan.from_toml(method)).sample(seed=1)["buys"]
    assert found.num_rows == model.sample(seed=1)["buys"].num_rows
    assert set(dw.refit(model, Plan.from_toml(method)).fits) == {("buys", "who")}
    plain = PLAN.replace('domain = "learn"', 'domain = ["Bern", "Chur", "Genf"]') + RULE
    with pytest.raises(PlanError, match=r"tables.people.columns.town.domain cannot change"):
        dw.refit(model, Plan.from_toml(plain))
    settled = model.plan.to_toml() + RULE
    people = dw.refit(model, Plan.from_toml(settled)).sample(seed=1)["people"]
    assert {*zip(people["sex"].to_pylist(), people["town"].to_pylist(), strict=True)} <= {("f", "Bern"), ("m", "Chur")}


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ('protect = ["people", "things"]', 'protect = ["people"]', "protect"),
        ("max_degree = 4", "max_degree = 5", "tables.buys.keys.who.max_degree"),
        ("max_degree = 4", "max_degree = 4\ndegree_cap = 9", "tables.buys.keys.who.degree_cap"),
        ("bins = 5 } }\n[tables.things]", "bins = 6 } }\n[tables.things]", "tables.people.columns.age.domain"),
        ('"a", "b", "c"', '"a", "b", "d"', "tables.things.columns.kind.domain"),
        ('paid = { type = "text", nullable = false', 'paid = { type = "text"', "tables.buys.columns.paid.column"),
        ('mechanism = "independent"', 'mechanism = "mst"', "'things': 'mst' learns how columns go together"),
        ('role = "linking"', 'role = "linking"\nmethod = "pgd"', "links buys.what: the method 'pgd' asks as it learns"),
    ],
)
def test_what_would_need_a_new_question_is_refused_by_name(model: Model, before: str, after: str, named: str) -> None:
    assert before in PLAN
    with pytest.raises(PlanError, match=named.replace(".", r"\.")):
        dw.refit(model, Plan.from_toml(PLAN.replace(before, after)))

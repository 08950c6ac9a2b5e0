"""Rules of a plan in the models: nothing forbidden is drawn, nothing has to be mended, and nothing is lost by it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpweave as dw
from dpweave.errors import PlanError
from dpweave.model.coded_database import encode
from dpweave.plan.entries import ColumnPlan, External, KeyPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.plan.rules import Allowed, Constraint, Determined
from dpweave.report.integrity import check
from dpweave.schema.database import Column, ForeignKey, Type
from dpweave.schema.domain import Bins, Categories, Declared

PAIRS = (("credit", "cash"), ("credit", None), ("debit", "cash"), ("debit", "card"), ("debit", "order"), ("fee", None))
CITIES, COUNTRIES = tuple(f"c{i}" for i in range(20)), tuple(f"k{i}" for i in range(5))
DETERMINED = Determined("account", ("city",), "country")
ALLOWED = Allowed("trans", ("type", "operation"), PAIRS)


def column(name: str, domain: Declared | None, kind: str = "text", *, nullable: bool = False) -> ColumnPlan:
    return ColumnPlan(Column(name, Type(kind), nullable=nullable), domain)


def bank_plan(*rules: Constraint, mechanism: str = "auto") -> Plan:
    account = TablePlan(
        "account",
        (
            column("id", None, "integer"),
            column("city", Categories(CITIES)),
            column("country", Categories(COUNTRIES)),
            column("pays", Categories(("monthly", "weekly"))),
        ),
        ("id",),
        mechanism=mechanism,
    )
    trans = TablePlan(
        "trans",
        (
            column("id", None, "integer"),
            column("account", None, "integer"),
            column("type", Categories(("credit", "debit", "fee"))),
            column("operation", Categories(("cash", "card", "order", "cheque")), nullable=True),
            column("amount", Bins(tuple(range(0, 1001, 100))), "integer"),
        ),
        ("id",),
        keys=(KeyPlan(ForeignKey(("account",), "account", ("id",)), "owning", 12),),
        mechanism=mechanism,
    )
    kinds = TablePlan(
        "kinds", (column("type", Categories(("credit", "debit", "fee"))), column("how", None, nullable=True))
    )
    return Plan((account, trans, kinds), protect=("account",), public=("kinds",), constraints=rules)


def bank(seed: int = 0, accounts: int = 800) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(1, 21)
    city = rng.choice(20, accounts, p=weight / weight.sum())
    own = np.repeat(np.arange(accounts), rng.poisson(5, accounts))
    kind = rng.choice(len(PAIRS), len(own), p=[0.2, 0.15, 0.3, 0.05, 0.2, 0.1])
    return {
        "account": pd.DataFrame(
            {
                "id": np.arange(accounts),
                "city": np.array(CITIES)[city],
                "country": np.array(COUNTRIES)[city * 7 % 5],
                "pays": rng.choice(["monthly", "weekly"], accounts, p=[0.8, 0.2]),
            }
        ),
        "trans": pd.DataFrame(
            {
                "id": np.arange(len(own)),
                "account": own,
                "type": [PAIRS[k][0] for k in kind],
                "operation": [PAIRS[k][1] for k in kind],
                "amount": np.minimum(rng.gamma(2.0, 60 * (1 + kind)), 999).astype(int),
            }
        ),
        "kinds": pd.DataFrame({"type": [t for t, _ in PAIRS], "how": [o for _, o in PAIRS]}),
    }


def pairs_of(rows: pd.DataFrame, *names: str) -> set[tuple[object, ...]]:
    return set(
        rows[list(names)].astype(object).where(rows[list(names)].notna(), None).itertuples(index=False, name=None)
    )


def distance(real: pd.DataFrame, copy: pd.DataFrame, names: list[str]) -> float:
    a, b = (t.groupby(names, dropna=False).size() / len(t) for t in (real, copy))
    return 0.5 * float(a.sub(b, fill_value=0).abs().sum())


def error(real: dict[str, pd.DataFrame], copy: dict[str, pd.DataFrame]) -> float:
    """Mean distance over all pairs of columns of both tables."""
    every = [("account", p) for p in combinations(["city", "country", "pays"], 2)]
    every += [("trans", p) for p in combinations(["type", "operation", "amount"], 2)]
    binned = [{**t, "trans": t["trans"].assign(amount=t["trans"].amount // 100)} for t in (real, copy)]
    return float(np.mean([distance(binned[0][t], binned[1][t], list(p)) for t, p in every]))


@pytest.mark.parametrize("mechanism", ["auto", "aim", "mst", "independent", "woven"])
@pytest.mark.parametrize("allowed", [PAIRS, "kinds"])
def test_rows_keep_rules_without_being_mended(mechanism: str, allowed, tmp_path) -> None:
    names = ("type", "how") if allowed == "kinds" else ()
    plan = bank_plan(replace(ALLOWED, allowed=allowed, allowed_columns=names), DETERMINED, mechanism=mechanism)
    model = dw.fit(bank(), plan, epsilon=0.5, delta=1e-6, insecure_seed=1)
    model.save(tmp_path / "model.dpw")
    for made in (model, dw.load(tmp_path / "model.dpw")):
        database = made.sample(seed=3)
        assert set(database.repairs.values()) == {0}
        rows = database.to_pandas()
        assert pairs_of(rows["trans"], "type", "operation") <= set(PAIRS)
        assert (rows["account"].groupby("city").country.nunique() == 1).all()
        assert len(rows["trans"]) > 100


def test_the_report_counts_rows_that_break_a_rule() -> None:
    plan = bank_plan(ALLOWED, DETERMINED)
    database = dw.fit(bank(), plan, epsilon=1.0, delta=1e-6, insecure_seed=1).sample()
    spoilt = dict(database)
    kind = spoilt["trans"]["type"].to_pylist()
    kind[:7] = ["fee"] * 7
    how = ["card"] * 7 + spoilt["trans"]["operation"].to_pylist()[7:]
    for name, values in (("type", kind), ("operation", how)):
        place = spoilt["trans"].column_names.index(name)
        spoilt["trans"] = spoilt["trans"].set_column(place, name, [values])
    for tables, wrong in ((dict(database), 0), (spoilt, 7)):
        found = check(plan, tables, encode(plan, tables), public={})
        (said,) = [c for c in found if c.where == str(ALLOWED)]
        assert said.passed == (wrong == 0)
        assert said.detail == (f"{wrong} rows break it" if wrong else "")


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["auto", "aim", "mst"])
def test_rules_cost_no_accuracy(mechanism: str) -> None:
    """Three seeds: the mean distance of all pairs is no larger with rules than without; mended rows cost more."""
    marks = []
    for rules in ((), (ALLOWED, DETERMINED)):
        plan = bank_plan(*rules, mechanism=mechanism)
        runs = [(bank(s), dw.fit(bank(s), plan, epsilon=1.0, delta=1e-6, insecure_seed=s)) for s in range(3)]
        marks.append(np.mean([error(real, model.sample(seed=1).to_pandas()) for real, model in runs]))
    assert marks[1] <= marks[0]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 20), mechanism=st.sampled_from(["auto", "aim", "mst", "woven"]))
def test_no_copy_holds_a_forbidden_combination(seed: int, mechanism: str) -> None:
    """Random rules, also false ones: what rows of the source are does not matter."""
    rng = np.random.default_rng(seed)
    every = [(t, o) for t in ("credit", "debit", "fee") for o in ("cash", "card", "order", "cheque", None)]
    listed = tuple(every[i] for i in rng.permutation(15)[: rng.integers(1, 12)])
    own = [(c, k, p) for c in CITIES for k in COUNTRIES for p in ("monthly", "weekly")]
    triples = tuple(own[i] for i in rng.permutation(200)[: rng.integers(1, 150)])
    rules = (replace(ALLOWED, allowed=listed), Allowed("account", ("city", "country", "pays"), triples), DETERMINED)
    plan = bank_plan(*rules, mechanism=mechanism)
    model = dw.fit(bank(seed, accounts=60), plan, epsilon=float(rng.choice([0.1, 1, 20])), delta=1e-6, insecure_seed=1)
    rows = model.sample(seed=seed).to_pandas()
    assert pairs_of(rows["trans"], "type", "operation") <= set(listed)
    assert pairs_of(rows["account"], "city", "country", "pays") <= set(triples)
    assert rows["account"].empty or (rows["account"].groupby("city").country.nunique() == 1).all()


def test_what_cannot_hold_is_refused_before_anything_is_spent(tmp_path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    named = replace(ALLOWED, allowed="kinds", allowed_columns=("type", "how"))
    source = bank(accounts=50)
    source["kinds"].loc[0, "how"] = "barter"
    apart = (Allowed("account", ("city", "pays"), (("c1", "weekly"),)), Allowed("account", ("pays",), (("monthly",),)))
    for rules, says in (((named,), "'barter' is not in the domain of 'operation'"), (apart, "leave no possible row")):
        with pytest.raises(PlanError, match=says):
            dw.fit(source, bank_plan(*rules), epsilon=1.0, delta=1e-6, ledger=ledger)
    assert '"verb"' not in ledger.read_text() if ledger.exists() else True


def test_rows_made_elsewhere_must_keep_combinations(tmp_path) -> None:
    source = bank(accounts=50)
    plan = bank_plan(Allowed("account", ("pays",), (("monthly",),)))
    table = replace(plan.table["account"], mechanism="external", external=External(rho=1e-4))
    plan = replace(plan, tables=tuple(table if t.name == "account" else t for t in plan.tables))
    given_rows = source["account"].drop(columns="id")
    with pytest.raises(PlanError, match="forbids"):
        dw.fit(source, plan, epsilon=1.0, delta=1e-6, external={"account": given_rows})
    kept = given_rows[given_rows.pays == "monthly"]
    model = dw.fit(source, plan, epsilon=1.0, delta=1e-6, external={"account": kept}, insecure_seed=0)
    assert set(model.sample().to_pandas()["account"].pays) == {"monthly"}


def test_columns_of_one_value_leave_a_share_for_the_model() -> None:
    """A constant determines, and is determined: nothing is learned about it, and the fit has a budget."""
    rows = pd.DataFrame({"id": np.arange(300), "one": "x", "kind": np.tile(["a", "b", "b"], 100), "same": "y"})
    table = TablePlan(
        "t",
        (
            column("id", None, "integer"),
            column("one", Categories(("x",))),
            column("kind", Categories(("a", "b"))),
            column("same", Categories(("y",))),
        ),
        ("id",),
    )
    for rules in ((Determined("t", ("one",), "kind"),), (Determined("t", ("kind",), "same"),)):
        plan = Plan((table,), protect=("t",), constraints=rules)
        made = dw.fit({"t": rows}, plan, epsilon=5.0, delta=1e-6, insecure_seed=0).sample().to_pandas()["t"]
        assert (made.groupby(list(rules[0].columns))[rules[0].dependent].nunique() == 1).all()

"""Tables made elsewhere, from plan to certificate: what is charged, what is refused before, what comes out."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from jsonschema import validate
from typer.testing import CliRunner

import dpweave as dw
from dpweave.budget.allocation import allocate, declared_costs
from dpweave.budget.spending import read
from dpweave.cli.commands import app
from dpweave.errors import BudgetError, DpweaveError, PlanError, SourceError, UsageError
from dpweave.plan.entries import External
from dpweave.plan.plan import Plan
from dpweave.privacy.accounting import declared_rho, epsilon_of_rho, rho_of_epsilon, subtract
from dpweave.privacy.ledger import set_cap
from dpweave.schema.domain import Learn
from dpweave.tables import base
from tests.cli.test_commands import schema

TOML = """
protect = ["users", "films"]
[tables.users]
primary_key = ["id"]
mechanism = "external"
external = { epsilon = 0.5, delta = 1e-7, path = "made.parquet" }
[tables.users.columns]
id = { type = "int64", nullable = false, domain = "key" }
sex = { type = "text", nullable = false, domain = ["f", "m"] }
age = { type = "int64", domain = { low = 0, high = 99, bins = 4 } }
[tables.films]
primary_key = ["id"]
mechanism = "independent"
[tables.films.columns]
id = { type = "int64", nullable = false, domain = "key" }
genre = { type = "text", nullable = false, domain = ["drama", "comedy", "noir"] }
[tables.views]
primary_key = ["id"]
mechanism = "independent"
[tables.views.columns]
id = { type = "int64", nullable = false, domain = "key" }
user = { type = "int64", nullable = false, domain = "key" }
film = { type = "int64", domain = "key" }
stars = { type = "int64", nullable = false, domain = [1, 2, 3] }
[tables.views.keys.user]
columns = ["user"]
references = "users"
target = ["id"]
role = "owning"
max_degree = 6
[tables.views.keys.film]
columns = ["film"]
references = "films"
target = ["id"]
role = "linking"
max_degree = 40
"""
EPSILON, DELTA = 6.0, 1e-5


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan.from_toml(TOML)


@pytest.fixture(scope="module")
def source() -> dict[str, pa.Table]:
    """Women view five films each, men one."""
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 600)
    owner = np.repeat(np.arange(600), np.where(sex == 0, 5, 1))
    return {
        "users": pa.table(
            {"id": np.arange(600), "sex": np.array(["f", "m"])[sex], "age": rng.integers(0, 100, 600)},
        ),
        "films": pa.table({"id": np.arange(120), "genre": rng.choice(["drama", "comedy", "noir"], 120)}),
        "views": pa.table(
            {
                "id": np.arange(len(owner)),
                "user": owner,
                "film": rng.integers(0, 120, len(owner)),
                "stars": rng.integers(1, 4, len(owner)),
            }
        ),
    }


def rows_made(rows: int = 500, seed: int = 5) -> pa.Table:
    rng = np.random.default_rng(seed)
    age = pa.array(rng.integers(0, 100, rows), mask=rng.random(rows) < 0.1)
    return pa.table({"age": age, "sex": rng.choice(["f", "m"], rows)})


def with_users(plan: Plan, **changes: object) -> Plan:
    return replace(plan, tables=tuple(replace(t, **changes) if t.name == "users" else t for t in plan.tables))


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return tmp_path_factory.mktemp("external") / "ledger.jsonl"


@pytest.fixture(scope="module")
def model(source, plan, ledger):
    made = rows_made()
    return dw.fit(source, plan, epsilon=EPSILON, delta=DELTA, ledger=ledger, external={"users": made}, insecure_seed=1)


def test_what_was_declared_is_charged_to_the_last_digit(model, plan, ledger):
    (event,) = [e for e in model.certificate.events if e["verb"] == "declared"]
    assert event["what"] == "external:users"
    assert event["declared"] == {"epsilon": 0.5, "delta": 1e-7}
    assert event["rho"] == {"users": 0.125}
    assert event["delta"] == {"users": 1e-7}
    allocation = allocate(plan, epsilon=EPSILON, delta=DELTA)
    assert allocation.rho == rho_of_epsilon(EPSILON, delta=subtract(DELTA, 1e-7))
    column = {t: sum(Fraction(e["rho"].get(t, 0.0)) for e in model.certificate.events) for t in plan.protect}
    for table in plan.protect:
        assert column[table] <= Fraction(allocation.rho)
    share = next(rho for task, rho in allocation.tasks.items() if task.name == "tables:users")
    woven = [Fraction(e["rho"]["users"]) for e in model.certificate.events if e["what"] == "tables:users"]
    # Shares of a measurement are rounded down, so the last digit may be left over; never is one spent too many.
    assert Fraction(share) * (1 - Fraction(1, 2**50)) <= sum(woven) <= Fraction(share)
    (spent,) = read(ledger).databases.values()
    assert spent.total.delta == {"users": 1e-7}
    assert spent.total.exact[0] == column


def test_the_certificate_adds_up_and_says_what_was_not_checked(model):
    certificate = model.certificate
    users = next(g for g in certificate.tables if g.table == "users")
    assert users.epsilon == epsilon_of_rho(users.rho, delta=subtract(DELTA, 1e-7))
    assert certificate.epsilon == max(g.epsilon for g in certificate.tables) <= EPSILON
    (entry,) = certificate.external
    assert entry == {
        "table": "users",
        "epsilon": 0.5,
        "delta": 1e-7,
        "units": ["users"],
        "rows": 500,
        "source": "given to fit",
    }
    caveat, together = certificate.caveats
    assert "the guarantees add up" in together
    assert "users was made elsewhere" in caveat
    assert "one row of users, with all its rows there and for entity neighbours" in caveat
    assert "not checked" in caveat
    assert caveat in str(certificate)
    assert type(certificate).from_json(certificate.to_json()) == certificate


def test_own_columns_are_never_asked_for_but_with_what_is_woven_onto_them(model):
    asked = {m.marginal.columns for m in model.release.measured if m.what == "tables:users"}
    assert asked
    assert all("#views.user" in columns for columns in asked)
    assert not [m for m in model.release.measured if m.what.startswith("domains:users.") and "#" not in m.what]


def test_the_rows_come_out_as_they_were_brought(model):
    made = rows_made()
    given = zip(made["sex"].to_pylist(), made["age"].to_pylist(), strict=True)
    bins = Counter((s, None if a is None else a // 25) for s, a in given)
    for scale in (1.0, 2.0):
        drawn = model.sample(scale=scale, seed=4)["users"]
        pairs = zip(drawn["sex"].to_pylist(), drawn["age"].to_pylist(), strict=True)
        found = Counter((s, None if a is None else a // 25) for s, a in pairs)
        assert found == Counter({k: int(scale) * n for k, n in bins.items()})
    assert model.sample(scale=0.5)["users"].num_rows == 250


def test_degrees_are_learned_onto_the_rows(source, plan):
    generous = with_users(plan, external=External(rho=0.01))
    model = dw.fit(source, generous, epsilon=50.0, delta=DELTA, external={"users": rows_made()}, insecure_seed=3)
    drawn = model.sample(seed=2)
    sex = dict(zip(drawn["users"]["id"].to_pylist(), drawn["users"]["sex"].to_pylist(), strict=True))
    views = Counter(sex[u] for u in drawn["views"]["user"].to_pylist())
    owners = Counter(sex.values())
    assert views["f"] / owners["f"] > 3.5
    assert views["m"] / owners["m"] < 2.0


def test_a_saved_model_repeats(model, tmp_path):
    model.save(tmp_path / "m.dpw")
    again = dw.load(tmp_path / "m.dpw")
    one, two = model.sample(scale=0.7, seed=9), again.sample(scale=0.7, seed=9)
    assert all(one[name].equals(two[name]) for name in one)
    assert again.plan == model.plan


# -- what is charged to whom -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 0.1, 3.3, 1e-9])
def test_the_price_of_an_epsilon_is_rounded_up(epsilon):
    exact = Fraction(epsilon) ** 2 / 2
    assert Fraction(declared_rho(epsilon)) >= exact
    assert Fraction(declared_rho(epsilon)) <= exact * (1 + Fraction(1, 2**52))


def test_an_approximate_mechanism_composes_as_charged():
    """The worst (eps, delta)-DP mechanism next to a Gaussian one: the true privacy profile stays below the claim."""
    eps, small = 0.8, 1e-4
    rho = 0.05
    grid = np.linspace(-12, 12, 240_001)
    step = grid[1] - grid[0]
    shift = np.sqrt(2 * rho)
    p, q = (np.exp(-((grid - m) ** 2) / 2) / np.sqrt(2 * np.pi) * step for m in (shift, 0.0))
    odds = np.exp(eps) / (1 + np.exp(eps))
    target = 1e-3
    claim = epsilon_of_rho(declared_rho(eps) + rho, delta=subtract(target, small))
    # Leaky randomised response: tells all with probability delta, else tells the truth with the given odds.
    excess = sum(
        np.maximum((1 - small) * (a * p - np.exp(claim) * b * q), 0).sum()
        for a, b in ((odds, 1 - odds), (1 - odds, odds))
    )
    assert small + excess <= target


def test_declared_rho_is_taken_as_it_is(plan):
    cheap = with_users(plan, external=External(rho=0.02))
    assert declared_costs(cheap)["users"].rho == {"users": 0.02}
    allocation = allocate(cheap, epsilon=1.0, delta=1e-6)
    assert allocation.rho == rho_of_epsilon(1.0, delta=1e-6)
    touching = [rho for task, rho in allocation.tasks.items() if task.table in ("users", "views")]
    assert sum(map(Fraction, touching)) <= Fraction(allocation.rho) - Fraction(0.02)


def test_other_protected_tables_do_not_pay(plan):
    """Only tasks that touch users feel its price; what touches films alone gains what those can no longer use."""
    dear = allocate(with_users(plan, external=External(rho=0.02)), epsilon=1.0, delta=1e-6)
    free = allocate(with_users(plan, external=External(rho=0.0)), epsilon=1.0, delta=1e-6)
    names = {task.name: (dear.tasks[task], free.tasks[task]) for task in free.tasks}
    assert names["sizes:films"][0] > names["sizes:films"][1]
    assert names["sizes:users"][0] < names["sizes:users"][1]


def test_under_record_neighbours_both_ends_of_a_junction_pay(plan):
    """A row's relationships change with it, so a brought junction shows units of both protected tables."""
    keys = [replace(k, max_degree=9) for k in plan.table["views"].keys]
    views = replace(plan.table["views"], mechanism="external", external=External(epsilon=0.1), keys=tuple(keys))
    tables = tuple(views if t.name == "views" else t for t in with_users(plan, mechanism="mst", external=None).tables)
    for neighbours, pay in (("entity", {"users"}), ("record", {"users", "films"})):
        bolder = replace(plan, tables=tables, neighbours=neighbours)
        assert set(declared_costs(bolder)["views"].rho) == pay


# -- what is refused, before anything is spent -------------------------------------------------------------------------


def damaged(tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no more")
    return str(tmp_path / "bad.parquet")


WRONG = {
    "unlisted category": (lambda t: t.set_column(1, "sex", pa.array(["x"] * 500)), PlanError, "500 values outside"),
    "number beyond": (lambda t: t.set_column(0, "age", pa.array([100] * 500)), PlanError, "outside its domain"),
    "number below": (lambda t: t.set_column(0, "age", pa.array([-1] * 500)), PlanError, "outside its domain"),
    "null where none": (lambda t: t.set_column(1, "sex", pa.nulls(500, pa.string())), PlanError, "null where none"),
    "wrong type": (lambda t: t.set_column(0, "age", pa.array(["old"] * 500)), PlanError, "not of type int64"),
    "fractions": (lambda t: t.set_column(0, "age", pa.array([1.5] * 500)), PlanError, "not of type int64"),
    "missing column": (lambda t: t.drop_columns(["sex"]), PlanError, "no column 'sex'"),
    "unknown column": (lambda t: t.append_column("agee", t["age"]), PlanError, "did you mean 'age'"),
    "no rows": (lambda t: t.slice(0, 0), PlanError, "has no rows"),
    "no table": (lambda t: 17, SourceError, "Arrow cannot read"),
    "no file": (lambda t: "nowhere.parquet", SourceError, "no such file"),
    "other file": (lambda t: "made.xlsx", UsageError, "must end in"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_rows_are_refused_before_anything_is_spent(case, source, plan, tmp_path):
    change, error, words = WRONG[case]
    book = tmp_path / "ledger.jsonl"
    with pytest.raises(error, match=words):
        dw.fit(source, plan, epsilon=EPSILON, delta=DELTA, ledger=book, external={"users": change(rows_made())})
    assert not book.exists()


def test_damaged_files_and_other_names_are_refused(source, plan, tmp_path):
    book = tmp_path / "ledger.jsonl"
    ask = {"epsilon": EPSILON, "delta": DELTA, "ledger": book}
    with pytest.raises(SourceError, match="damaged or of another format"):
        dw.fit(source, plan, external={"users": damaged(tmp_path)}, **ask)
    with pytest.raises(UsageError, match="did you mean 'users'"):
        dw.fit(source, plan, external={"user": rows_made()}, **ask)
    with pytest.raises(UsageError, match="nowhere to be found"):
        dw.fit(source, with_users(plan, external=External(epsilon=0.5)), **ask)
    assert not book.exists()


def test_a_declared_cost_beyond_the_budget_is_refused(source, plan, tmp_path):
    book = tmp_path / "ledger.jsonl"
    given = {"users": rows_made()}
    with pytest.raises(BudgetError, match=r"\(rho 0\.125\) of 'users'.*ask for more than 2\."):
        dw.fit(source, plan, epsilon=1.0, delta=DELTA, ledger=book, external=given)
    with pytest.raises(BudgetError, match="delta of 1e-07, all of the 1e-07"):
        dw.fit(source, plan, epsilon=EPSILON, delta=1e-7, ledger=book, external=given)
    assert not book.exists()


def test_the_cap_of_a_database_counts_it(source, plan, tmp_path):
    book = tmp_path / "ledger.jsonl"
    set_cap(book, database="data frames", epsilon=5.0, delta=1e-4)
    with pytest.raises(BudgetError, match="cap"):
        dw.fit(source, plan, epsilon=EPSILON, delta=DELTA, ledger=book, external={"users": rows_made()})
    assert [e.kind for e in read(book).databases["data frames"].entries] == ["cap"]


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("{ delta = 1e-6 }", "either epsilon"),
        ("{ epsilon = 1.0, rho = 0.1 }", "either epsilon"),
        ("{ epsilon = -1.0 }", "epsilon is -1.0"),
        ("{ epsilon = inf }", "epsilon is inf"),
        ("{ rho = nan }", "rho is nan"),
        ("{ epsilon = true }", "epsilon is True"),
        ("{ epsilon = 1.0, delta = 1 }", "delta is 1"),
        ("{ epsilon = 1.0, path = 3 }", "name of a file"),
        ("{ epsilonn = 1.0 }", "did you mean 'epsilon'"),
    ],
)
def test_wrong_declarations_are_refused(declared, words):
    text = TOML.replace('{ epsilon = 0.5, delta = 1e-7, path = "made.parquet" }', declared)
    with pytest.raises(PlanError, match=words):
        Plan.from_toml(text)


def test_mechanism_and_declaration_go_together(plan):
    with pytest.raises(PlanError, match="needs both"):
        with_users(plan, mechanism="mst")
    with pytest.raises(PlanError, match="needs both"):
        with_users(plan, external=None)
    with pytest.raises(PlanError, match="is public"):
        Plan.from_toml(
            'protect = ["a"]\npublic = ["b"]\n[tables.a]\nprimary_key = ["id"]\n[tables.a.columns]\n'
            'id = { type = "int64", nullable = false, domain = "key" }\n'
            '[tables.b]\nmechanism = "external"\nexternal = { rho = 0.1 }\n[tables.b.columns]\n'
            'x = { type = "boolean", domain = [false, true] }\n'
        )


def test_the_plan_survives_toml(plan):
    assert Plan.from_toml(plan.to_toml()) == plan
    other = with_users(plan, external=External(rho=0.2))
    assert Plan.from_toml(other.to_toml()) == other


def test_models_that_cannot_be_held_are_refused(source, plan, tmp_path, monkeypatch):
    """A column, a table and a limit that are too large: each before anything is spent."""
    book = tmp_path / "ledger.jsonl"
    own = with_users(plan, mechanism="mst", external=None)
    text = own.to_toml().replace("{ low = 0, high = 99, bins = 4 }", "{ low = 0, high = 2000000, bins = %d }")
    assert "%d" in text
    with pytest.raises(PlanError, match=r"'users': column 'age' has 1000002 codes, more than the limit of 1000000"):
        dw.fit(source, Plan.from_toml(text % 1_000_001), epsilon=1.0, delta=1e-6, ledger=book)
    with pytest.raises(PlanError, match=r"'users': .* a model of 7 cells, more than the limit of 6.*raise model_cells"):
        dw.fit(source, with_users(own, model_cells=6), epsilon=1.0, delta=1e-6, ledger=book)
    monkeypatch.setattr(base, "_mbi_version", lambda: None)
    large = with_users(own, model_cells=1 << 22)
    assert Plan.from_toml(large.to_toml()) == large
    with pytest.raises(PlanError, match="pip install"):
        dw.fit(source, large, epsilon=1.0, delta=1e-6, ledger=book)
    assert not book.exists()
    for wrong in (0, True, 1.5, "many"):
        with pytest.raises(PlanError, match="model_cells of table 'users'"):
            with_users(own, model_cells=wrong)


# -- files, learned domains, the command line --------------------------------------------------------------------------


def test_files_and_learned_domains(source, plan, tmp_path):
    """A domain left to be learned comes from the rows that were brought, for nothing; keys in the file are left out."""
    learn = with_users(plan, external=External(rho=0.01, path=str(tmp_path / "made.csv")))
    learn = learn.replace_domain("users", "sex", Learn())
    learn = learn.replace_domain("users", "age", Learn(bins=5))
    made = rows_made(300).append_column("id", pa.array(range(300)))
    pyarrow.csv.write_csv(made, tmp_path / "made.csv")
    assert not [t for t in allocate(learn, epsilon=1.0, delta=1e-6).tasks if t.item in ("sex", "age")]
    model = dw.fit(source, learn, epsilon=1.0, delta=1e-6, insecure_seed=1)
    assert model.certificate.external[0]["source"] == "made.csv"
    assert model.plan.table["users"].column["sex"].domain.values == ("f", "m")
    drawn = model.sample()["users"]
    assert Counter(drawn["sex"].to_pylist()) == Counter(made["sex"].to_pylist())
    assert drawn["age"].null_count == made["age"].null_count


def test_explain_says_it(plan):
    said = plan.explain(epsilon=EPSILON, delta=DELTA)
    text = " ".join(str(said).split())
    assert "modelled by external, made elsewhere for epsilon 0.5, delta 1e-07 as declared" in text
    assert "made elsewhere: users 0.125" in text
    assert "declare that instead" in text
    validate(json.loads(json.dumps(said.to_dict())), schema("explain"))
    with pytest.raises(BudgetError):
        plan.explain(epsilon=1.0, delta=DELTA)


def test_the_command_line_says_it(source, plan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, table in source.items():
        pq.write_table(table, tmp_path / "folder" / f"{name}.parquet")
    plan.save("plan.toml")
    ask = ["fit", "folder", "--plan", "plan.toml", "-e", "6", "-d", "1e-5", "-o", "m.dpw", "-q"]
    missing = CliRunner().invoke(app, ask)
    assert isinstance(missing.exception, DpweaveError)
    assert not (tmp_path / "ledger.jsonl").exists()
    pq.write_table(rows_made(), "made.parquet")
    found = CliRunner().invoke(app, [*ask, "--json"])
    assert found.exit_code == 0, found.output
    content = json.loads(found.stdout)
    validate(content, schema("fit"))
    assert content["certificate"]["external"][0]["source"] == "made.parquet"
    words = CliRunner().invoke(app, [*(a for a in ask if a != "-q"), "--force"])
    assert "Mind: users was made elsewhere" in " ".join(words.stdout.split())

"""Numbers of rows that are declared public: nothing is spent on them, copies have
exactly so many, and the certificate says so.
"""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest

import dpweave as dw
from dpweave.budget.allocation import allocate
from dpweave.budget.tasks import Task
from dpweave.errors import PlanError
from dpweave.explain.draft_notes import draft_text
from dpweave.plan.entries import External
from dpweave.weaving import parts

CLIENTS, LOANS, NOTES = 70, 400, 150
DDL = f"""
CREATE TABLE clients (id INTEGER PRIMARY KEY, sex TEXT NOT NULL);
INSERT INTO clients SELECT i, ['f', 'm'][1 + i % 2] FROM range({CLIENTS}) t(i);
CREATE TABLE loans (id INTEGER PRIMARY KEY, client INTEGER NOT NULL REFERENCES clients, kind TEXT NOT NULL);
INSERT INTO loans SELECT i, (i * i) % {CLIENTS}, ['a', 'b', 'c'][1 + i % 3] FROM range({LOANS}) t(i);
CREATE TABLE notes (id INTEGER PRIMARY KEY, loan INTEGER REFERENCES loans, good BOOLEAN NOT NULL);
INSERT INTO notes SELECT i, CASE WHEN i % 5 > 0 THEN i END, i % 2 = 0 FROM range({NOTES}) t(i);
"""
TRUE = {"clients": CLIENTS, "loans": LOANS, "notes": NOTES}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("public_sizes") / "bank.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(DDL)
    return path


def drafted(source, *, max_degree=40, **others) -> dw.Plan:
    plan = dw.Plan.draft(source, protect=["clients"], max_degree=max_degree, **others)
    text = plan.to_toml()
    for column, domain in {"sex": '["f", "m"]', "kind": '["a", "b", "c"]'}.items():
        text = "\n".join(
            line.replace('"learn"', domain) if line.startswith(f"{column} =") else line for line in text.split("\n")
        )
    return dw.Plan.from_toml(text)


def public(plan: dw.Plan, **rows: int) -> dw.Plan:
    tables = (replace(t, rows=rows[t.name], rows_public=True) if t.name in rows else t for t in plan.tables)
    return replace(plan, tables=tuple(tables))


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_plan_keeps_it_in_toml(source):
    plan = public(drafted(source), clients=CLIENTS)
    assert "rows = 70\nrows_public = true" in plan.to_toml()
    assert dw.Plan.from_toml(plan.to_toml()) == plan
    assert "rows_public" not in drafted(source).to_toml()


def test_refused_where_it_means_nothing(source):
    plan = drafted(source)
    bare = replace(plan.table["clients"], rows_public=True)
    with pytest.raises(PlanError, match="add rows = N"):
        replace(plan, tables=(bare, *plan.tables[1:]))
    with pytest.raises(PlanError, match="rows_public must be true or false, not 'yes'"):
        dw.Plan.from_toml(plan.to_toml().replace("[tables.clients]", '[tables.clients]\nrows = 3\nrows_public = "yes"'))
    with pytest.raises(PlanError, match="must be true or false, not 1"):
        replace(plan, tables=(replace(bare, rows=3, rows_public=1), *plan.tables[1:]))
    with pytest.raises(PlanError, match="a public table is copied as it is"):
        public(replace(plan, protect=("loans",), public=("clients",), tables=_without_owner(plan)), clients=3)
    external = replace(bare, rows=3, mechanism="external", external=External(epsilon=1.0))
    with pytest.raises(PlanError, match="made elsewhere"):
        replace(plan, tables=(external, *plan.tables[1:]))


def _without_owner(plan: dw.Plan):
    """The tables of a plan in which loans are led to and clients are public."""
    clients, loans, notes = plan.tables
    key = replace(loans.keys[0], role="attribute", max_degree=None)
    return clients, replace(loans, keys=(key,)), notes


# -- the budget --------------------------------------------------------------------------------------------------------


def test_nothing_is_spent_on_it_and_others_get_its_share(source):
    measured, declared = drafted(source), public(drafted(source), clients=CLIENTS, loans=LOANS)
    before, after = (allocate(p, epsilon=0.5, delta=1e-6).tasks for p in (measured, declared))
    assert {t.table for t in before if t.group == "sizes"} == {"clients", "loans", "notes"}
    assert [t for t in after if t.group == "sizes"] == [Task("sizes", "notes")]
    assert after[Task("sizes", "notes")] == pytest.approx(3 * before[Task("sizes", "notes")])
    every = allocate(public(declared, **TRUE), epsilon=0.5, delta=1e-6)
    assert not any(t.group == "sizes" for t in every.tasks)
    assert sum(every.tasks.values()) == pytest.approx(every.rho)


def test_rows_alone_are_still_measured(source):
    plan = drafted(source)
    hinted = replace(plan, tables=(replace(plan.tables[0], rows=CLIENTS), *plan.tables[1:]))
    assert Task("sizes", "clients") in allocate(hinted, epsilon=0.5, delta=1e-6).tasks


# -- words -------------------------------------------------------------------------------------------------------------


def test_explain_says_so_and_guesses_nothing(source):
    found = public(drafted(source), **TRUE).explain(epsilon=0.5, delta=1e-6)
    assert found.forecast.guessed == ()
    assert [t.public_rows for t in found.tables] == [CLIENTS, LOANS, NOTES]
    text = " ".join(str(found).split())
    assert "number of rows: 400, declared public, so it is exact and free" in text
    assert "The number of rows of loans was declared public: 400; it is a fact outside the promise" in text


def test_explain_and_draft_point_at_owning_keys_that_may_be_null(source):
    plan = drafted(source)
    (said,) = (w for w in plan.explain(epsilon=1.0, delta=1e-6).warnings if "nullable = false" in w)
    assert said.startswith("notes.loan may be null")
    assert "say nullable = false of loan" in said
    bare, owned = 'loan = { type = "int32"', "[tables.notes.keys.loan]"
    mandatory = dw.Plan.from_toml(plan.to_toml().replace(bare, f"{bare}, nullable = false"))
    assert not any("nullable = false" in w for w in mandatory.explain(epsilon=1.0, delta=1e-6).warnings)
    _, text = draft_text(source, protect=("clients",))
    words = " ".join(text.replace("\n#", " ").split())
    assert "say nullable = false of loan: then no budget" in words
    assert words.count("This key may be null.") == 1
    assert words.index("This key may be null.") < words.index(owned)


# -- fits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["independent", "auto"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_copies_have_as_many_rows_where_measured_sizes_are_far_off(source, seed, mechanism):
    plan = drafted(source)
    plan = replace(plan, tables=tuple(replace(t, mechanism=mechanism) for t in plan.tables))
    copy = dw.fit(source, public(plan, **TRUE), epsilon=0.5, delta=1e-6, insecure_seed=seed).sample(seed=seed)
    assert copy.rows == TRUE
    measured = dw.fit(source, plan, epsilon=0.5, delta=1e-6, insecure_seed=seed)
    assert abs(measured.sizes["loans"] - LOANS) > 0.2 * LOANS or abs(measured.sizes["notes"] - NOTES) > 0.2 * NOTES


@pytest.mark.parametrize("names", [("clients",), ("loans",), ("notes",), ("clients", "notes"), ("loans", "notes")])
def test_some_sizes_may_be_public_and_others_measured(source, names):
    declared = {n: TRUE[n] for n in names}
    model = dw.fit(source, public(drafted(source), **declared), epsilon=0.5, delta=1e-6, insecure_seed=5)
    copy = model.sample(seed=1)
    assert {n: copy.rows[n] for n in names} == declared
    assert {m.what for m in model.release.measured} & {f"sizes:{n}" for n in TRUE} == {
        f"sizes:{n}" for n in TRUE if n not in names
    }


def test_size_is_of_all_rows_where_bounds_leave_some_out(source):
    """At a bound of 2, of 400 loans at most 140 are counted; the copy has 400 all the same."""
    model = dw.fit(source, public(drafted(source, max_degree=2), **TRUE), epsilon=100.0, delta=1e-6, insecure_seed=1)
    assert model.sizes["loans"] <= 140
    assert model.sample(seed=1).rows == TRUE


def test_record_neighbours_have_the_declared_rows_too(source):
    plan = public(drafted(source, neighbours="record"), **TRUE)
    model = dw.fit(source, plan, epsilon=0.5, delta=1e-6, insecure_seed=1)
    assert model.sample(seed=1).rows == TRUE
    assert sum("so it is not hidden anyway" in c for c in model.certificate.caveats) == 3


def test_scale_file_report_and_certificate(source, tmp_path):
    model = dw.fit(source, public(drafted(source), **TRUE), epsilon=0.5, delta=1e-6, insecure_seed=1)
    assert model.sample(seed=1, scale=2.0).rows == {n: 2 * rows for n, rows in TRUE.items()}
    caveat = "the number of rows of clients was declared public: 70; it is a fact outside the promise"
    assert any(c.startswith(caveat) for c in model.certificate.caveats)
    assert f"note: {caveat}" in str(model.certificate)
    model.save(tmp_path / "bank.dpw")
    loaded = dw.load(tmp_path / "bank.dpw")
    assert loaded.certificate == model.certificate
    copy = loaded.sample(seed=4)
    assert copy.rows == TRUE
    page = tmp_path / "report.html"
    dw.report(loaded, copy, page)
    assert "400 declared public, not measured" in page.read_text()


def test_copies_in_parts_have_as_many_rows_together(source, monkeypatch):
    model = dw.fit(source, public(drafted(source), **TRUE), epsilon=0.5, delta=1e-6, insecure_seed=1)
    monkeypatch.setattr(parts, "PART_VALUES", 300)
    monkeypatch.setattr(parts, "FEW", 5)
    assert parts.divide(model.plan, model.blueprint.expected_rows(1.0))[0] > 3
    assert {n: len(t) for n, t in model.sample(seed=1).tables.items()} == TRUE


def test_nothing_at_all_may_be_left_to_measure(tmp_path):
    path = tmp_path / "keys.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t SELECT * FROM range(9)")
    plan = public(dw.Plan.draft(path, protect=["t"]), t=9)
    assert "exact and free" in str(plan.explain(epsilon=1.0, delta=1e-6))
    model = dw.fit(path, plan, epsilon=1.0, delta=1e-6)
    assert model.sample(seed=1).rows == {"t": 9}
    assert model.certificate.rho == 0

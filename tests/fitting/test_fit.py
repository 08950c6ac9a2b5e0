"""From database to database: what fit spends, what crosses, what comes out, and that it repeats."""

from __future__ import annotations

import re
import zipfile
from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest

import dpweave as dw
from dpweave.budget.spending import read
from dpweave.errors import BudgetError, UsageError
from dpweave.fitting.learned_tables import _linked
from dpweave.plan.plan import Plan
from dpweave.privacy.ledger import set_cap
from dpweave.schema.domain import Categories, Opaque

pytestmark = pytest.mark.slow

SECRET = "Zyx-4711-secret"

DDL = f"""
CREATE TABLE countries (code TEXT PRIMARY KEY, label TEXT NOT NULL);
INSERT INTO countries VALUES ('de', 'Germany'), ('fr', 'France'), ('it', 'Italy');
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, age INTEGER, country TEXT REFERENCES countries,
  mentor INTEGER REFERENCES users);
INSERT INTO users SELECT i, 'user ' || i, 20 + i % 50, ['de','fr','it'][1 + i % 3], NULL FROM range(300) t(i);
INSERT INTO users VALUES (9999, '{SECRET}', 103, 'de', 5);
CREATE TABLE groups (id INTEGER PRIMARY KEY, kind TEXT NOT NULL);
INSERT INTO groups SELECT i, ['red','blue'][1 + i % 2] FROM range(40) t(i);
INSERT INTO groups VALUES (9998, '{SECRET}');
CREATE TABLE posts (id INTEGER PRIMARY KEY, author INTEGER NOT NULL REFERENCES users, score DOUBLE, posted TIMESTAMP);
INSERT INTO posts SELECT i, i % 300, (i % 7) / 2, TIMESTAMP '2024-01-01' + INTERVAL (i) HOUR FROM range(900) t(i);
CREATE TABLE members (member INTEGER NOT NULL REFERENCES users, "group" INTEGER NOT NULL REFERENCES groups,
  PRIMARY KEY (member, "group"));
INSERT INTO members SELECT i % 300, (i * 7) % 40 FROM range(600) t(i) GROUP BY ALL;
CREATE TABLE "a b" (id INTEGER PRIMARY KEY, partner INTEGER, v BOOLEAN);
INSERT INTO "a b" SELECT i, CASE WHEN i % 3 > 0 THEN (i + 1) % 60 END, i % 2 = 0 FROM range(60) t(i);
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("pipeline") / "club.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(DDL)
    return path


@pytest.fixture(scope="module")
def plan(source) -> Plan:
    drafted = dw.Plan.draft(source, protect=["users", "groups", "a b"], public=["countries"], max_degree=4)
    roomy = {("members", "group"): 24}  # a group has 15 members; in a copy, chance may give it more
    return replace(
        drafted,
        tables=tuple(
            replace(
                t,
                mechanism="independent",
                keys=tuple(replace(k, max_degree=roomy.get((t.name, k.key.name), k.max_degree)) for k in t.keys),
            )
            for t in drafted.tables
        ),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def model(source, plan, folder):
    return dw.fit(
        source, plan, epsilon=5.0, delta=1e-5, ledger=folder / "ledger.jsonl", label="first", insecure_seed=42
    )


def test_no_more_is_spent_than_was_asked_for(model, folder):
    certificate = model.certificate
    assert certificate.epsilon <= 5.0
    assert certificate.delta == 1e-5
    assert {g.table for g in certificate.tables} == {"users", "groups", "a b"}
    assert certificate.insecure
    assert certificate.neighbours == "entity"
    (summary,) = read(folder / "ledger.jsonl").databases.values()
    for column in certificate.tables:
        assert column.rho <= summary.total.rho[column.table] * (1 + 1e-12)
        assert sum(e["rho"].get(column.table, 0.0) for e in certificate.events) == pytest.approx(column.rho)


def test_every_charge_is_in_the_release_and_nothing_else(model):
    charged = [e["what"] for e in model.certificate.events]
    crossed = (
        {m.what for m in model.release.measured}
        | {s.what for s in model.release.selected}
        | {d.what for d in model.release.discovered}
        | {b.what for b in model.release.summed_by_unit}
        | {m.what for m in model.release.moments}
    )
    assert set(charged) == crossed


def test_keys_hold_and_bounds_are_kept(model, plan):
    db = model.sample(seed=3)
    assert set(db) == set(plan.database.names)
    for table in plan.database:
        rows = db[table.name].to_pylist()
        keys = [tuple(r[c] for c in table.primary_key) for r in rows]
        assert len(set(keys)) == len(keys)
        for key in table.foreign_keys:
            targets = {tuple(r[c] for c in key.target_columns) for r in db[key.target].to_pylist()}
            given = [tuple(r[c] for c in key.columns) for r in rows]
            assert all(g in targets or None in g for g in given)
            if not table.is_nullable(key):
                assert all(None not in g for g in given)
            linking = key.target not in plan.public and plan.table[table.name].key[key.name].role == "linking"
            # A row that must have a target has one beyond the bound too: links that bounds cut off are not lost.
            if linking and table.is_nullable(key):
                used = [given.count(g) for g in {g for g in given if None not in g}]
                assert max(used, default=0) <= plan.promise.bounds[table.name, key.name]


def test_public_tables_pass_unchanged_and_sizes_are_close(model, source):
    db = model.sample(seed=1)
    with duckdb.connect(str(source), read_only=True) as connection:
        real = connection.execute("FROM countries").fetchall()
        assert [tuple(r.values()) for r in db["countries"].to_pylist()] == real
    assert 150 < db["users"].num_rows < 450


def test_sampling_repeats_scales_and_survives_a_file(model, folder):
    first, again, other = model.sample(seed=7), model.sample(seed=7), model.sample(seed=8)
    assert all(first[t].equals(again[t]) for t in first)
    assert not all(first[t].equals(other[t]) for t in first)
    assert model.sample(scale=2.0, seed=7)["users"].num_rows == pytest.approx(2 * first["users"].num_rows, abs=2)
    model.save(folder / "m.dpw")
    loaded = dw.load(folder / "m.dpw")
    assert all(first[t].equals(loaded.sample(seed=7)[t]) for t in first)
    assert loaded.certificate == model.certificate
    assert loaded.plan == model.plan


def test_links_are_fitted_once_and_kept(model, folder, monkeypatch):
    assert model.fits
    model.save(folder / "kept.dpw")
    wanted = model.sample(seed=7)

    def refuse(*_, **__):
        raise RuntimeError("fitted again")

    monkeypatch.setattr("dpweave.links.map_learner.fit_links", refuse)
    kept = dw.load(folder / "kept.dpw")
    assert kept.fits.keys() == model.fits.keys()
    assert all(wanted[t].equals(kept.sample(seed=7)[t]) for t in wanted)
    with pytest.raises(RuntimeError, match="fitted again"):  # a file from before fits were kept
        replace(kept, fits={}).sample(seed=7)


def test_nothing_private_is_in_plan_model_ledger_or_copy(model, plan, folder):
    model.save(folder / "private.dpw")
    with zipfile.ZipFile(folder / "private.dpw") as archive:
        everything = b"".join(archive.read(n) for n in archive.namelist())
    everything += (folder / "ledger.jsonl").read_bytes() + plan.to_toml().encode() + str(model.certificate).encode()
    assert SECRET.encode() not in everything
    assert not any(
        SECRET in str(v) for t in model.sample(seed=0).tables.values() for c in t.columns for v in c.to_pylist()
    )


def test_fitting_again_costs_again_until_the_cap(source, plan, folder):
    path = folder / "again.jsonl"
    small = Plan.from_toml(plan.to_toml())
    set_cap(path, database="club.duckdb", epsilon=1.2, delta=1e-5)  # twice epsilon 1 composes to about 1.45
    dw.fit(source, small, epsilon=1.0, delta=4e-6, ledger=path, insecure_seed=0)
    before = path.read_bytes()
    with pytest.raises(BudgetError, match="cap") as refused:
        dw.fit(source, small, epsilon=1.0, delta=4e-6, ledger=path, insecure_seed=0)
    assert path.read_bytes() == before
    left = float(re.search(r"ask for epsilon (\S+) or less at delta 4e-06", str(refused.value))[1])
    with pytest.raises(BudgetError):
        dw.fit(source, small, epsilon=left * 1.01, delta=4e-6, ledger=path, insecure_seed=0)
    dw.fit(source, small, epsilon=left, delta=4e-6, ledger=path, insecure_seed=0)
    with pytest.raises(BudgetError, match=r"ask for epsilon 0\.0|it leaves nothing"):
        dw.fit(source, small, epsilon=left, delta=4e-6, ledger=path, insecure_seed=0)


def test_an_insecure_seed_repeats_and_stamps(source, plan):
    one, two = (dw.fit(source, plan, epsilon=1.0, delta=1e-6, insecure_seed=11) for _ in range(2))
    assert one.certificate.insecure
    assert str(one.certificate).startswith("INSECURE")
    noisy = [
        [(m.what, m.marginal.counts.tolist()) for m in x.release.measured if m.what.startswith("sizes")]
        for x in (one, two)
    ]
    assert noisy[0] == noisy[1]


def test_record_neighbours(source, plan):
    accepts = replace(plan, neighbours="record", on_excess="truncate")
    model = dw.fit(source, accepts, epsilon=2.0, delta=1e-6, insecure_seed=1)
    assert model.certificate.neighbours == "record"
    assert "truncat" in model.certificate.statement or "dropped" in model.certificate.statement
    model.sample(seed=0)


def test_cycles_of_tables_go_through():
    frames = {
        "a": pa.table({"id": [1, 2, 3], "b": pa.array([1, None, 2], pa.int64()), "x": ["u", "v", "u"]}),
        "b": pa.table({"id": [1, 2], "a": pa.array([1, 2], pa.int64())}),
    }
    text = """
protect = ["a"]
[tables.a]
primary_key = ["id"]
columns = {id = {type = "int64", nullable = false, domain = "key"}, b = {type = "int64", domain = "key"}, x = {type = "text", domain = ["u", "v"]}}
keys = {b = {columns = ["b"], references = "b", target = ["id"], role = "linking", max_degree = 2}}
[tables.b]
primary_key = ["id"]
columns = {id = {type = "int64", nullable = false, domain = "key"}, a = {type = "int64", domain = "key"}}
keys = {a = {columns = ["a"], references = "a", target = ["id"], role = "owning", max_degree = 2}}
"""  # noqa: E501
    plan = Plan.from_toml(text)
    db = dw.fit(frames, plan, epsilon=50.0, delta=1e-6, insecure_seed=1).sample(seed=2)
    ids = {t: set(db[t]["id"].to_pylist()) for t in ("a", "b")}
    assert set(db["a"]["b"].to_pylist()) - {None} <= ids["b"]
    assert set(db["b"]["a"].to_pylist()) - {None} <= ids["a"]


def test_progress_is_reported_and_ends(source, plan):
    seen: list[tuple[str, float]] = []
    dw.fit(
        source, plan, epsilon=1.0, delta=1e-6, progress=lambda what, done: seen.append((what, done)), insecure_seed=3
    )
    assert seen
    assert all(0 <= done <= 1 for _, done in seen)
    assert not any(SECRET in what for what, _ in seen)


def test_sampling_tells_how_far_it_is(model):
    seen: list[tuple[str, float]] = []
    told = model.sample(seed=2, progress=lambda what, done: seen.append((what, done)))
    assert [done for _, done in seen] == sorted(done for _, done in seen)
    assert seen
    assert seen[-1][1] < 1
    assert dict(told) == dict(model.sample(seed=2))


def test_a_plan_keeps_what_is_not_modelled_out_of_the_release(model):
    assert model.plan.table["users"].column["name"].domain == Opaque()
    assert isinstance(model.plan.table["groups"].column["kind"].domain, Categories)
    assert SECRET not in model.plan.table["groups"].column["kind"].domain.values


def test_what_links_see_of_rows_weighs_in_their_table(plan):
    seen = _linked(plan.compile(), "users")
    assert {s[-1] for s in seen} == {"#posts.author", "#members.member"}
    assert all(set(s[:-1]) <= {c.name for c in plan.table["users"].modelled} for s in seen)
    assert seen["age", "#members.member"] == 6  # with one of the group, and one of six more of the member and around
    assert not _linked(plan.compile(), "groups")  # which own nothing


@pytest.mark.parametrize("mechanism", ["mst", "aim"])
@pytest.mark.parametrize("weight", [1e-6, 1.0, 1e6])
def test_no_weight_of_a_workload_stops_a_fit(mechanism, weight):
    columns = {c: {"type": "int64", "nullable": False, "domain": {"low": 0, "high": 2, "bins": 3}} for c in "abcdef"}
    table = {
        "mechanism": mechanism,
        "primary_key": ["id"],
        "columns": {"id": {"type": "int64", "nullable": False, "domain": "key"}, **columns},
    }
    workload = {"columns": ["t.a", "t.b"], "weight": weight}
    plan = Plan.from_dict({"protect": ["t"], "tables": {"t": table}, "workloads": [workload]})
    frame = {"t": pa.table({"id": range(60)} | {c: [(i * ord(c)) % 3 for i in range(60)] for c in columns})}
    model = dw.fit(frame, plan, epsilon=1.0, delta=1e-6, insecure_seed=1)
    assert model.certificate.epsilon == pytest.approx(1.0, abs=1e-9)
    assert set(model.sample(seed=1)["t"].column_names) == {"id", *columns}


def test_a_first_look_needs_no_plan():
    clinic = {
        "patients": pa.table({"id": range(200), "sex": [i % 2 == 0 for i in range(200)]}),
        "wards": pa.table({"id": range(3), "floor": [1, 1, 2]}),
    }
    model = dw.fit(clinic, protect=["patients"], public=["wards"], epsilon=20)
    assert (model.plan.protect, model.plan.public) == (("patients",), ("wards",))
    assert model.certificate.delta == 1e-6
    assert abs(model.sample().rows["patients"] - 200) < 50
    drafted = dw.Plan.draft(clinic, protect=["patients"], public=["wards"])
    for wrong in ({}, {"public": ["wards"]}, {"plan": drafted, "protect": ["patients"]}, {"protect": []}):
        with pytest.raises(UsageError, match="a plan, or for a first look"):
            dw.fit(clinic, epsilon=1, **wrong)

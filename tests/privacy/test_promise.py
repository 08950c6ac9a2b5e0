"""Every guard of the promise fires, with the name of what is wrong."""

from __future__ import annotations

import pytest

from dpweave.errors import PlanError
from dpweave.privacy.certificate import statement
from dpweave.privacy.promise import Promise
from dpweave.schema.database import Column, Database, ForeignKey, Table, Type
from tests.oracle import make_promise

TABLES = {
    "users": (("x",), {}),
    "movies": (("x",), {}),
    "orders": (("x",), {"user": "users", "movie": "movies"}),
    "items": (("x",), {"order": "orders"}),
}
GOOD = {
    "protect": ("users",),
    "public": ("movies",),
    "owning": {"orders": "user", "items": "order"},
    "bounds": {("orders", "user"): 2, ("items", "order"): 3},
}


def _make(**changes) -> Promise:
    return make_promise(TABLES, **{**GOOD, **changes})


def test_a_promise_that_holds():
    promise = _make()
    assert promise.private == ("users", "orders", "items")
    assert promise.chain("items") == (("items", "order"), ("orders", "user"))
    assert promise.root("items") == "users"
    assert {t: promise.owned_rows("users", t) for t in TABLES} == {"users": 1, "orders": 2, "items": 6, "movies": 0}
    assert "users" in statement(promise)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"protect": ()}, "protects no table"),
        ({"protect": ("user",)}, "did you mean 'users'"),
        ({"protect": ("users", "users")}, "twice"),
        ({"public": ("movies", "users")}, "both protected and public"),
        ({"public": ("movies", "films")}, "'films'"),
        ({"owning": {"orders": "user"}}, "'items' is neither protected nor public"),
        ({"owning": {"orders": "usr", "items": "order"}}, "did you mean 'user'"),
        ({"owning": {"orders": "movie", "items": "order"}}, "leads to the public table 'movies'"),
        ({"owning": {"users": "x", **GOOD["owning"]}}, "cannot be owned"),
        ({"public": ("movies", "orders"), "protect": ("users", "items"), "owning": {}}, "would publish private keys"),
        ({"bounds": {("orders", "user"): 2}}, "'order' of 'items' needs a max_degree"),
        ({"neighbours": "rows"}, "'entity' or 'record'"),
        ({"on_excess": "drop"}, "'refuse' or 'truncate'"),
        *(
            ({"bounds": {("orders", "user"): b, ("items", "order"): 3}}, "whole number of at least 1")
            for b in (0, -1, 2.0, True, "3")
        ),
    ],
)
def test_guards(changes, says):
    with pytest.raises(PlanError, match=says):
        _make(**changes)


def test_a_key_stays_within_units_of_one_table_only():
    """Rows of two protected tables are never of the same unit, though numbers of their rows may agree."""
    tables = {
        "users": ((), {}),
        "shops": ((), {}),
        "stock": ((), {"shop": "shops"}),
        "orders": ((), {"user": "users", "stock": "stock"}),
        "items": ((), {"order": "orders", "first": "orders", "user": "users"}),
    }
    more = {
        "protect": ("users", "shops"),
        "owning": {"stock": "shop", "orders": "user", "items": "order"},
        "bounds": {(t, k): 2 for t, (_, keys) in tables.items() for k in keys},
    }
    fine = make_promise(tables, within=frozenset({("items", "first")}), **more)
    assert "items.first" in statement(fine)
    for within in (("orders", "stock"), ("orders", "user"), ("items", "user")):
        with pytest.raises(PlanError, match="cannot stay within units"):
            make_promise(tables, within=frozenset({within}), **more)


def test_the_statement_says_relative_to_what_it_holds():
    says = {
        (n, e): "relative to the database after links beyond the bounds were dropped"
        in statement(_make(neighbours=n, on_excess=e))
        for n in ("entity", "record")
        for e in ("refuse", "truncate")
    }
    assert [pair for pair, said in says.items() if said] == [("record", "truncate")]


def test_owning_keys_that_run_in_a_circle():
    with pytest.raises(PlanError, match="run in a circle"):
        make_promise(
            {"p": ((), {}), "a": ((), {"b": "b"}), "b": ((), {"a": "a"})},
            protect=("p",),
            owning={"a": "b", "b": "a"},
            bounds={("a", "b"): 1, ("b", "a"): 1},
        )


@pytest.mark.parametrize("name", ["#orders.user", "?user", "#", "=user", "@user", "<seen.user", "!user"])
def test_names_of_derived_columns_are_taken(name):
    with pytest.raises(PlanError, match="marks derived columns"):
        make_promise({"users": ((name,), {})}, protect=("users",))
    with pytest.raises(PlanError, match="marks derived columns"):
        make_promise({"users": ((), {}), "movies": ((name,), {})}, protect=("users",), public=("movies",))


def test_a_protected_table_needs_a_primary_key():
    with pytest.raises(PlanError, match="'users' has no primary key"):
        Promise(Database((Table("users", (Column("x", Type("integer")),)),)), ("users",))


@pytest.mark.parametrize(
    ("kind", "fine"), [("text", False), ("float", True), ("decimal", True), ("date", False), ("integer", True)]
)
def test_keys_that_cannot_be_compared(kind, fine):
    users = Table("users", (Column("id", Type("integer"), False),), ("id",))
    orders = Table("orders", (Column("user", Type(kind)),), foreign_keys=(ForeignKey(("user",), "users", ("id",)),))

    def make() -> Promise:
        return Promise(Database((users, orders)), ("users",), owning={"orders": "user"}, bounds={("orders", "user"): 1})

    if fine:
        make()
    else:
        with pytest.raises(PlanError, match=r"compares 'user' of type .* with users.id of type int64"):
            make()


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (Type("float"), Type("decimal", precision=38, scale=30)),  # many decimals are one float
        (Type("decimal", precision=38, scale=0), Type("decimal", precision=38, scale=30)),  # no room for both
        (Type("timestamp", zone=True), Type("timestamp")),  # two moments are one where clocks are set back
        (Type("text"), Type("date")),
    ],
)
@pytest.mark.parametrize("public", [False, True])
def test_keys_of_which_an_engine_may_take_two_for_one(mine, theirs, public):
    users = Table("users", (Column("id", Type("integer"), False),), ("id",))
    goods = Table("goods", (Column("id", theirs, False),), ("id",))
    keys = (ForeignKey(("user",), "users", ("id",)), ForeignKey(("good",), "goods", ("id",)))
    orders = Table("orders", (Column("user", Type("integer")), Column("good", mine)), foreign_keys=keys)
    protect, bounds = ("users",) if public else ("users", "goods"), {("orders", "user"): 1}
    with pytest.raises(PlanError, match=r"compares 'good' of type .* with goods.id of type .*declare the same type"):
        Promise(
            Database((users, goods, orders)),
            protect,
            frozenset({"goods"} if public else ()),
            owning={"orders": "user"},
            bounds=bounds if public else {**bounds, ("orders", "good"): 1},
        )

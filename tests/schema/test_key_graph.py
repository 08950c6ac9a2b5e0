"""The key graph: order, cycles, junctions, kinds, paths."""

from __future__ import annotations

import random

from dpweave.schema.database import Column, Database, ForeignKey, Table, Type
from dpweave.schema.key_graph import KeyGraph

INT = Type("integer")


def _graph(
    tables: dict[str, dict[str, str]], *, mandatory: frozenset[tuple[str, str]] = frozenset(), values=()
) -> KeyGraph:
    return KeyGraph(
        Database(
            tuple(
                Table(
                    name,
                    (
                        Column("id", INT, nullable=False),
                        *(Column(k, INT, nullable=(name, k) not in mandatory) for k in keys),
                        *(Column(v, INT) for v in values),
                    ),
                    ("id",),
                    foreign_keys=tuple(ForeignKey((k,), t, ("id",)) for k, t in keys.items()),
                )
                for name, keys in tables.items()
            )
        )
    )


def test_targets_come_first():
    graph = _graph({"items": {"o": "orders", "p": "products"}, "orders": {"u": "users"}, "users": {}, "products": {}})
    order = graph.order()
    assert order.index("users") < order.index("orders") < order.index("items")
    assert order.index("products") < order.index("items")
    assert all(len(c) == 1 for c in graph.components())
    assert graph.walk("items", ("o", "u")) == "users"
    assert [(t.name, k.name) for t, k in graph.incoming("orders")] == [("items", "o")]


def test_cycles_and_self_references():
    graph = _graph(
        {"a": {"b": "b"}, "b": {"a": "a", "self": "b"}, "c": {"c": "c"}, "d": {"a": "a"}},
        mandatory=frozenset({("b", "a")}),
    )
    assert set(map(frozenset, graph.components())) == {frozenset("ab"), frozenset("c"), frozenset("d")}
    order = graph.order()
    assert order.index("a") < order.index("b")  # b must have its a, a may wait for its b
    assert order.index("a") < order.index("d")


def test_a_cycle_of_mandatory_keys_has_some_order():
    graph = _graph({"a": {"b": "b"}, "b": {"a": "a"}}, mandatory=frozenset({("a", "b"), ("b", "a")}))
    assert sorted(graph.order()) == ["a", "b"]


def test_junctions():
    graph = _graph({"u": {}, "m": {}, "r": {"u": "u", "m": "m"}, "s": {"u": "u", "m": "m"}, "t": {"s": "s"}})
    assert graph.is_junction("r")
    assert graph.is_pure_junction("r")
    assert not graph.is_junction("s")  # something leads to it
    assert not graph.is_junction("t")
    assert not _graph({"u": {}, "r": {"u": "u", "v": "u"}}, values=("x",)).is_pure_junction("r")


def test_kinds():
    table = Table(
        "t",
        (Column("id", INT), Column("u", INT)),
        ("id",),
        unique=(("u",),),
        foreign_keys=(ForeignKey(("u",), "t", ("id",)),),
    )
    graph = KeyGraph(Database((table,)))
    assert graph.kind("t", table.key["u"]) == "one-to-one"
    assert _graph({"t": {"u": "t"}}).kind("t", _graph({"t": {"u": "t"}}).database["t"].key["u"]) == "one-to-many"


def test_components_against_reachability():
    for seed in range(200):
        rng = random.Random(seed)
        names = [f"t{i}" for i in range(rng.randint(1, 7))]
        tables = {n: {f"k{j}": rng.choice(names) for j in range(rng.randint(0, 3))} for n in names}
        graph = _graph(tables)
        reach = {n: _reachable(tables, n) for n in names}
        found = graph.components()
        assert sorted(n for c in found for n in c) == sorted(names)
        for component in found:
            for a in component:
                assert {b for b in names if b == a or (b in reach[a] and a in reach[b])} == set(component)
        place = {n: i for i, c in enumerate(found) for n in c}
        assert all(place[t] <= place[n] for n in names for t in tables[n].values())


def _reachable(tables: dict[str, dict[str, str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        for target in tables[todo.pop()].values():
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen

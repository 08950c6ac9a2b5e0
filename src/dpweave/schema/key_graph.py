"""The graph of foreign keys: order, cycles, junctions, and what kind each relation is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dpweave.schema.database import Database, ForeignKey, Table
    from dpweave.schema.domain import Path


@dataclass(frozen=True)
class KeyGraph:
    """Tables are nodes; a foreign key is an edge from the table that holds it to its target."""

    database: Database

    def edges(self) -> Iterator[tuple[Table, ForeignKey]]:
        """Every foreign key with the table that holds it."""
        for table in self.database:
            for key in table.foreign_keys:
                yield table, key

    def incoming(self, name: str) -> tuple[tuple[Table, ForeignKey], ...]:
        """Foreign keys that lead to a table."""
        return self._incoming.get(name, ())

    @cached_property
    def _incoming(self) -> Mapping[str, tuple[tuple[Table, ForeignKey], ...]]:
        found: dict[str, tuple[tuple[Table, ForeignKey], ...]] = {}
        for table, key in self.edges():
            found[key.target] = (*found.get(key.target, ()), (table, key))
        return found

    def components(self) -> tuple[tuple[str, ...], ...]:
        """Strongly connected components, targets before the tables that lead to them (Tarjan).

        A component of two or more tables is a cycle; a table that leads to itself stands alone.
        """
        index: dict[str, int] = {}
        low: dict[str, int] = {}
        stack: list[str] = []
        found: list[tuple[str, ...]] = []

        def visit(root: str) -> None:
            work: list[tuple[str, Iterator[str]]] = [(root, self._targets(root))]
            index[root] = low[root] = len(index)
            stack.append(root)
            while work:
                node, targets = work[-1]
                for target in targets:
                    if target not in index:
                        index[target] = low[target] = len(index)
                        stack.append(target)
                        work.append((target, self._targets(target)))
                        break
                    if target in stack:
                        low[node] = min(low[node], index[target])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[node])
                    if low[node] == index[node]:
                        at = stack.index(node)
                        found.append(tuple(sorted(stack[at:], key=self.database.names.index)))
                        del stack[at:]

        for name in self.database.names:
            if name not in index:
                visit(name)
        return tuple(found)

    def _targets(self, name: str) -> Iterator[str]:
        return iter(sorted({k.target for k in self.database[name].foreign_keys if k.target != name}))

    def order(self) -> tuple[str, ...]:
        """Tables with targets first; inside a cycle, nullable keys are the ones that wait."""
        ordered: list[str] = []
        for component in self.components():
            mandatory: TopologicalSorter[str] = TopologicalSorter({n: set() for n in component})
            for name in component:
                table = self.database[name]
                for key in table.foreign_keys:
                    if key.target in component and key.target != name and not table.is_nullable(key):
                        mandatory.add(name, key.target)
            try:
                ordered.extend(mandatory.static_order())
            except ValueError:  # a cycle of mandatory keys: any order, the writer defers its constraints
                ordered.extend(component)
        return tuple(ordered)

    def is_junction(self, name: str) -> bool:
        """Whether a table's rows stand for relationships: two or more foreign keys out, none in."""
        return len(self.database[name].foreign_keys) >= 2 and not self.incoming(name)

    def is_pure_junction(self, name: str) -> bool:
        """Whether a junction carries nothing but its keys (and perhaps a surrogate key of its own)."""
        table = self.database[name]
        return self.is_junction(name) and all(c.name in table.key_columns for c in table.columns)

    def kind(self, name: str, key: ForeignKey) -> str:
        """Return ``one-to-one`` where the key's columns are unique in their table, else ``one-to-many``."""
        return "one-to-one" if self.database[name].is_unique(key.columns) else "one-to-many"

    def walk(self, base: str, path: Path) -> str:
        """Table at the end of ``path``."""
        for name in path:
            base = self.database[base].key[name].target
        return base

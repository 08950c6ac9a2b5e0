"""What the catalogues of SQL engines have in common: their rows, keys and sizes of types. No row is read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dpweave.schema.database import Column, Database, ForeignKey, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


NUMBERS = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


class DeclaredKeys:
    """Collects keys by (schema, table), then names everything as the model does."""

    def __init__(self) -> None:
        self.primary: dict[tuple[str, str], tuple[str, ...]] = {}
        self.unique: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        self.foreign: dict[tuple[str, str], list[tuple[tuple[str, ...], tuple[str, str], tuple[str, ...]]]] = {}

    def add_unique(self, place: tuple[str, str], columns: tuple[str, ...]) -> None:
        """Add a set of columns that no two rows share."""
        known = self.unique.setdefault(place, [])
        if columns not in known:
            known.append(columns)

    def add_foreign(
        self, place: tuple[str, str], columns: tuple[str, ...], target: tuple[str, str], target_columns: tuple[str, ...]
    ) -> None:
        """Add a foreign key."""
        known = self.foreign.setdefault(place, [])
        if (columns, target, target_columns) not in known:
            known.append((columns, target, target_columns))

    def database(self, columns: Mapping[tuple[str, str], Sequence[Column]], *, default: str) -> Database:
        """Return the schema; tables outside the schema ``default`` carry its name before theirs."""

        def named(place: tuple[str, str]) -> str:
            return place[1] if place[0] == default else f"{place[0]}.{place[1]}"

        return Database(
            tuple(
                Table(
                    named(place),
                    tuple(described),
                    primary_key=self.primary.get(place, ()),
                    unique=tuple(u for u in self.unique.get(place, ()) if set(u) != set(self.primary.get(place, ()))),
                    foreign_keys=self._foreign_keys(place, named),
                    namespace=None if place[0] == default else place[0],
                )
                for place, described in columns.items()
            )
        )

    def _foreign_keys(self, place: tuple[str, str], named: Callable[[tuple[str, str]], str]) -> tuple[ForeignKey, ...]:
        found = self.foreign.get(place, [])
        often = [names for names, _, _ in found]
        return tuple(
            ForeignKey(
                names,
                named(target),
                target_names,
                name=f"{'+'.join(names)} to {named(target)}" if often.count(names) > 1 else "",
            )
            for names, target, target_names in found
        )


def catalogue_rows(connection: Any, query: str, arguments: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
    """Return the rows of a query on the catalogue."""
    cursor = connection.cursor()
    try:
        return list(
            cursor.execute(query, tuple(arguments)).fetchall() if arguments else cursor.execute(query).fetchall()
        )
    finally:
        cursor.close()


def sizes_of_type(text: str) -> tuple[int | None, int | None]:
    """Return the one or two numbers in brackets after the name of a type."""
    match = NUMBERS.search(text)
    if match is None:
        return None, None
    return int(match[1]), int(match[2]) if match[2] else None

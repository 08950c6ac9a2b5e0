"""What an Ibis connection says about tables and columns. No row is read."""

from __future__ import annotations

from typing import Any

from dpweave.engines.ibis.types import type_of_ibis
from dpweave.engines.source_base import TEMPORARY
from dpweave.schema.database import Column, Database, Table


def reflect_columns(connection: Any) -> Database:
    """Read tables and columns through Ibis, for engines that declare no keys."""
    views = _views(connection)
    return Database(
        tuple(
            Table(
                name,
                tuple(
                    Column(n, type_of_ibis(t), nullable=t.nullable) for n, t in connection.table(name).schema().items()
                ),
            )
            for name in sorted(connection.list_tables())
            if name not in views and not name.startswith(TEMPORARY)
        )
    )


def _views(connection: Any) -> frozenset[str]:
    """Spark lists views among its tables; temporary views are how a session names its data, so those stay."""
    session = getattr(connection, "_session", None)
    if session is None:
        return frozenset()
    return frozenset(t.name for t in session.catalog.listTables() if t.tableType == "VIEW" and not t.isTemporary)

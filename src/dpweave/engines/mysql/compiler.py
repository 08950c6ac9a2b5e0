"""Ibis expressions as SQL of MySQL, without the driver that Ibis itself would load.

A string of Ibis is a binary string here: it is compared, grouped, ordered and hashed byte by byte, whatever collation
its column has. ``reading`` makes it so; what is here must keep it so.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, final

import sqlglot.expressions as sge
from ibis.backends.sql import SQLBackend
from ibis.backends.sql.compilers.mysql import MySQLCompiler


class _Compiler(MySQLCompiler):  # type: ignore[misc]
    """Where Ibis spells something that MySQL or MariaDB lacks, or that is not total, this spells it otherwise."""

    __slots__ = ()

    def visit_SQLQueryResult(self, op: Any, *, query: str, schema: Any, source: Any) -> Any:  # noqa: ARG002, N802
        """Take a query as it is: it was written for MySQL."""
        return sge.Subquery(this=sge.Var(this=query))

    def visit_Equals(self, op: Any, *, left: Any, right: Any) -> Any:  # noqa: ARG002, N802
        """Compare as they are: strings are binary already, and one cast more would keep keys from being used."""
        return left.eq(right)

    def visit_Hash(self, op: Any, *, arg: Any) -> Any:  # noqa: ARG002, N802
        """Return the first 60 bits of SHA-256, which both servers have."""
        digits = self.f.anon.left(self.f.anon.sha2(arg, 256), 15)
        return sge.Cast(this=self.f.anon.conv(digits, 16, 10), to=sge.DataType(this=sge.DataType.Type.BIGINT))

    def visit_IsNan(self, op: Any, *, arg: Any) -> Any:  # noqa: ARG002, N802
        """MySQL has no NaN."""
        return sge.false()

    def visit_NonNullLiteral(self, op: Any, *, value: Any, dtype: Any) -> Any:  # noqa: N802
        """Spell moments in UTC without a zone, and times without a detour over floating point."""
        if dtype.is_timestamp():
            value = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
            return self.f.anon.timestamp(sge.convert(value.isoformat(" ")))
        if dtype.is_time():
            return self.f.anon.time(sge.convert(value.isoformat()))
        return super().visit_NonNullLiteral(op, value=value, dtype=dtype)


@final
class Server(SQLBackend):  # type: ignore[misc]
    """An Ibis backend that compiles and does nothing else; ``con`` is the open connection."""

    name = "mysql"
    compiler = _Compiler()
    version = ""

    def __init__(self, con: Any) -> None:
        super().__init__()
        self.con = con

    def list_tables(self, *_: Any, **__: Any) -> list[str]:
        """Refuse: the catalogue is read elsewhere."""
        raise NotImplementedError

    create_table = _get_schema_using_query = _register_in_memory_table = list_tables

"""Whole tables of a database: of a copy, which is ours to read, or of the real one, for an evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from dpweave.plan import Plan
    from dpweave.sources.base import Source
    from dpweave.synthetic import SyntheticDatabase


def read(source: Source, name: str) -> pa.Table:
    """Read a whole table of an open source."""
    import pyarrow as pa

    from dpweave.schema.arrow import arrow_schema

    return pa.Table.from_batches(source.read(name), schema=arrow_schema(source.database[name]))


def read_copy(target: str, plan: Plan) -> SyntheticDatabase:
    """Read a synthetic database back."""
    from dpweave.sources import open_source
    from dpweave.synthetic import SyntheticDatabase

    with open_source(target) as opened:
        plan.require(opened.catalogue)
        opened.declare(plan.database)
        return SyntheticDatabase(plan.database, {name: read(opened, name) for name in plan.database.names})

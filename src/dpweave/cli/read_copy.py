"""A copy, read back: it is ours to read."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpweave.model.synthetic_database import SyntheticDatabase
    from dpweave.plan.plan import Plan


@contextmanager
def read_copy(target: str, plan: Plan) -> Iterator[SyntheticDatabase]:
    """Read a synthetic database back, into temporary files that are gone when the block ends."""
    from dpweave.engines.opening import open_source
    from dpweave.engines.stored_tables import spooled
    from dpweave.model.synthetic_database import SyntheticDatabase

    with ExitStack() as held:
        with open_source(target) as opened:  # closed before the copy is used: an engine keeps what it read in memory
            plan.require(opened.catalogue)
            opened.declare(plan.database)
            tables = held.enter_context(spooled(opened, plan.database))
        yield SyntheticDatabase(plan.database, tables)

"""Every exception dpweave raises on purpose, in one tree.

::

    DpweaveError                     exit code 1 when it reaches the command line bare
    ├── UsageError                   2  an argument is wrong: a negative epsilon, an unknown option
    ├── PlanError                    3  the plan is wrong, or not for this schema
    │   └── SchemaError              3  the schema itself cannot carry the promise
    ├── BudgetError                  4  the budget does not allow it; nothing was read
    │   └── LedgerError              4  the ledger file cannot be trusted
    ├── SourceError                  5  the source cannot be reached, read, or is not what it declares
    ├── TargetError                  5  the target cannot be written, or exists already
    └── ModelFileError               5  a model file is unreadable or damaged

A message is one sentence that gives the value, the bound and the way out. It never holds a private value:
a message written after rows were read may name tables, columns and keys and nothing else.
"""

from __future__ import annotations

from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class DpweaveError(Exception):
    """Root of the tree."""

    exit_code = 1


class UsageError(DpweaveError, ValueError):
    """An argument is outside what it may be."""

    exit_code = 2


class PlanError(DpweaveError, ValueError):
    """The plan is inconsistent, or was written for another schema."""

    exit_code = 3


class SchemaError(PlanError):
    """The schema cannot be represented, or cannot carry the promise."""


class BudgetError(DpweaveError):
    """A request would pass the limit. It failed before any row was read."""

    exit_code = 4


class LedgerError(BudgetError):
    """The ledger file cannot be read or trusted, so nothing may be spent."""


class SourceError(DpweaveError):
    """The private database cannot be reached or read, or breaks its own declared keys."""

    exit_code = 5


class TargetError(DpweaveError):
    """The synthetic database cannot be written there."""

    exit_code = 5


class ModelFileError(DpweaveError):
    """A model file is unreadable, truncated or damaged."""

    exit_code = 5


STARVED = ("failed to map segment", "cannot allocate memory", "can't start new thread")
"""What systems and Python say where memory is too small for a library or a thread."""


@contextmanager
def memory_said(rest: str) -> Iterator[None]:
    """Say in our own words that memory ran out: others name sizes, and those may be of private rows."""
    try:
        yield
    except DpweaveError:
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryException":  # DuckDB's
            raise SourceError(f"memory is not enough; {rest}") from None
        if any(words in str(error).lower() for words in STARVED):
            raise SourceError(f"memory is not enough to load a library or to start a thread; {rest}") from None
        raise


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the closest known spelling, or lists what there is.

    >>> nearest("custmers", ["customers", "orders"])
    "did you mean 'customers'?"
    >>> nearest("x", ["customers", "orders"])
    'known are customers, orders'
    """
    names = sorted(set(known))
    close = get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known are {', '.join(names)}" if names else "there are none"

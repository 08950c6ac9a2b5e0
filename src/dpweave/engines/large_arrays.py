"""Arrays with a number for each row, that need no memory for each row.

Above :data:`IN_MEMORY` an array lies in a file of the temporary folder. The file has no name, so it is gone with the
process, however that ends. What has been looked at is let go of block by block: what stays in memory at a time is the
same whatever the number of rows is. All results are those of arrays in memory, to the last bit.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Array = np.ndarray[Any, Any]

IN_MEMORY = 1 << 20
"""Bytes up to which an array is one in memory."""
ROWS = 1 << 18
"""Rows that are looked at together; of units, all rows that the last of them has too."""
BUCKETS = 1 << 16
"""Groups of groups, at most, in which rows are counted before they are put in order."""


def room(length: int, kind: Any, fill: Any = 0) -> Array:
    """Return an array full of one number, with a place on disk where it is large."""
    size = length * np.dtype(kind).itemsize
    if size <= IN_MEMORY:
        return np.full(length, fill, dtype=kind)
    try:
        with tempfile.TemporaryFile() as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)  # without room, a later write would end the process
            else:
                file.truncate(size)
            out = np.frombuffer(mmap.mmap(file.fileno(), size), dtype=kind)
    except OSError as error:
        raise SourceError(
            f"codes of rows have no room in the folder for temporary files ({error.strerror}); make room there, or let"
            " TMPDIR name another folder"
        ) from None
    if fill != 0:
        for block in blocks(length, out):
            out[block] = fill
    return out


def let_go(*arrays: Array | None) -> None:
    """Give back the memory in which parts of arrays on disk lie; they keep what was written."""
    for array in arrays:
        held: Any = array
        while isinstance(held, np.ndarray | memoryview):
            held = held.base if isinstance(held, np.ndarray) else held.obj
        if isinstance(held, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            held.madvise(mmap.MADV_DONTNEED)


def blocks(length: int, *arrays: Array | None, rows: int = ROWS) -> Iterator[slice]:
    """Return the blocks of so many rows, one after the other, and let go of ``arrays`` after each."""
    for start in range(0, length, rows):
        yield slice(start, min(start + rows, length))
        let_go(*arrays)


def taken(values: Array, at: Array | None, otherwise: int, kind: Any = None) -> Array:
    """Return values at some positions: those themselves where ``at`` is None, ``otherwise`` where it is -1."""
    kind = values.dtype if kind is None else kind
    if at is None and values.dtype == kind:
        return values
    out = room(len(values) if at is None else len(at), kind, otherwise)
    for block in blocks(len(out), values, at, out):
        if at is None:
            out[block] = values[block]
        elif len(values):
            there = np.flatnonzero(at[block] >= 0)
            out[block][there] = values[at[block][there]]
    return out


def picked(values: Array, rows: Array) -> Array:
    """Return values of some rows, in memory."""
    found: Array = values[rows]
    let_go(values)
    return found


def all_of(tests: Sequence[tuple[Array, Any, Any]]) -> Array | None:
    """Return where all tests hold, each an array, a comparison and a number; None where that is everywhere."""
    out, everywhere = room(len(tests[0][0]), bool), True
    for block in blocks(len(out), out, *(array for array, _, _ in tests)):
        out[block] = np.logical_and.reduce([compare(array[block], number) for array, compare, number in tests])
        everywhere &= bool(out[block].all())
    return None if everywhere else out


def places_of(mask: Array) -> Array:
    """Return where a mask holds, in order."""
    found = room(
        sum(int(np.count_nonzero(mask[b])) for b in blocks(len(mask), mask)), np.min_scalar_type(-1 - len(mask))
    )
    done = 0
    for block in blocks(len(mask), mask, found):
        some = np.flatnonzero(mask[block]) + block.start
        found[done : done + len(some)] = some
        done += len(some)
    return found


def in_order(group: Array, there: Array | None) -> Array:
    """Return the numbers of all rows of a group from 0 on, group by group and in each in order; those alone that are
    ``there``.
    """

    def rows_of(low: int, high: int) -> Array:
        found = []
        for block in blocks(len(group), group, there):
            some = (group[block] >= low) & (group[block] < high)
            found.append(np.flatnonzero(some if there is None else some & there[block]) + block.start)
        rows = np.concatenate([np.zeros(0, dtype=np.int64), *found])
        ordered: Array = rows[np.argsort(group[rows], kind="stable")]
        let_go(group)
        return ordered

    top = max((int(group[b].max()) + 1 for b in blocks(len(group), group)), default=0)
    if len(group) <= ROWS:
        return rows_of(0, top)
    width = -(-top // BUCKETS) or 1
    sizes = np.zeros(-(-top // width) + 1, dtype=np.int64)
    for block in blocks(len(group), group, there):
        some = group[block] >= 0
        some = group[block][some if there is None else some & there[block]]
        sizes += np.bincount(some // width, minlength=len(sizes))
    out, ends, done, low = room(int(sizes.sum()), np.min_scalar_type(-1 - len(group))), np.cumsum(sizes), 0, 0
    while done < len(out):
        high = max(int(np.searchsorted(ends, done + ROWS, side="right")), low + 1)
        rows = rows_of(low * width, high * width)
        out[done : done + len(rows)] = rows
        let_go(out)
        done, low = done + len(rows), high
    return out


def together(parts: Sequence[tuple[Array, Array]]) -> Iterator[tuple[Array, ...]]:
    """Go through rows group by group, some groups at a time. Each part is a group for each row, and the rows as
    :func:`in_order` returns them; returned are rows of each part. Rows of one group come at one time, in all parts.
    """
    at = [0] * len(parts)
    while any(a < len(rows) for a, (_, rows) in zip(at, parts, strict=True)):
        last = min(
            int(group[rows[min(a + ROWS, len(rows)) - 1]])
            for a, (group, rows) in zip(at, parts, strict=True)
            if a < len(rows)
        )
        ends = [
            bisect_right(rows, last, lo=a, key=lambda i, group=group: group[i])  # type: ignore[misc]
            for a, (group, rows) in zip(at, parts, strict=True)
        ]
        yield tuple(np.array(rows[a:end]) for a, end, (_, rows) in zip(at, ends, parts, strict=True))
        let_go(*(array for part in parts for array in part))
        at = ends

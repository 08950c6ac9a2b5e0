r"""Sums of vectors, one per unit, each no longer than a clip (docs/proofs, Theorem 6). Everything in here is private.

Unit u has :math:`n_u` rows per cell and code, and :math:`m_u` per cell. All is done in whole numbers. Scales s and
centres μ of the codes, which are public, are put on a grid, with C the clip: :math:`a = [M / (C s)]` and
:math:`b = [a \mu]`. The vector of a unit is :math:`w_u = a n_u - b m_u`, and what is added up is

.. math:: x_u = k_u w_u, \qquad k_u = \min\bigl(L / M, \lfloor L / \lVert w_u \rVert_2 \rfloor\bigr),

so that :math:`\lVert x_u \rVert_2 \le L` and :math:`\sum_u x_u = a \sum_u k_u n_u - b \sum_u k_u m_u`: two sums over
groups, in which a code that a unit does not have needs no row. Engines and memory give the same, to the last bit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np
import pyarrow as pa

from dpweave.errors import UsageError
from dpweave.privacy.window import UnitMoments, UnitSum

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.privacy.window import Code, Columns

    Weights = tuple[IntArray, IntArray]

LENGTH = 1 << 31
"""L, which no unit's vector exceeds: its square is a whole number of 64 bits, and so are the sums of 2**30 units."""
BEYOND = LENGTH + 1
CLIP = 1 << 18
"""M, the clip on the grid of weights. A unit of m rows is off its centre by m/2M of the clip per code at most,
and one that is clipped loses M/L of its rows at most by rounding down.
"""
MOST_WEIGHT = 1 << 24
"""Of one row; reached where the clip is a 64th of a row."""
ROUNDED = 2.0**-20
"""More than floats are off by, for a factor of up to L/M; what this makes too large is seen in whole numbers."""

BLOCK = 1 << 21
"""Rows, times codes, that are looked at together at least; all rows of a unit always are."""

SPARSE = 16
"""Room, in entries per row, up to which a table of counts takes less time than sorting rows."""
MOST_CODES = 1 << 12
SMALLEST, LARGEST = 1e-100, 1e100
"""Between these lie clips and scales: their products are floats."""

WIDE = "decimal(38, 9)"
"""Type in which every engine adds up whole numbers of 64 bits exactly; BigQuery has no other of this width."""

GRID = 1 << 20
"""Length of a unit's vector of categories, in whole numbers: rounding down costs a unit
with k of them √k parts in a million. Any number from a thousand on would do.
"""


def plain(unit_sum: UnitSum) -> UnitSum:
    """Return a copy made of texts, tuples and numbers alone, of which it is known what they say when asked again."""
    return UnitSum(
        tuple("".join(c) for c in unit_sum.columns),
        tuple(tuple(("".join(c), int(v)) for c, v in code) for code in unit_sum.codes),
        tuple(float(x) for x in unit_sum.scales),
        float(unit_sum.clip),
        tuple(float(x) for x in unit_sum.centres),
    )


def checked(unit_sum: UnitSum, sizes: Mapping[str, int]) -> UnitSum:
    """Return a :func:`plain` unit sum with scales and centres on the grid of weights, or refuse it: nothing that comes
    after the charge may fail for what a client asks.
    """
    codes, scales, clip, centres = unit_sum.codes, unit_sum.scales, unit_sum.clip, unit_sum.centres
    if not 1 <= len(codes) <= MOST_CODES or len(scales) != len(codes) or len({*codes}) != len(codes):
        raise UsageError(
            f"{len(codes)} codes and {len(scales)} scales: give 1 to {MOST_CODES:,} different codes, and a"
            " scale for each"
        )
    for column, value in (pair for code in codes for pair in code):
        if not 0 <= value < sizes[column]:
            raise UsageError(f"{value} is no code of {column!r}, which has {sizes[column]}")
    if not all(SMALLEST <= x <= LARGEST for x in (clip, *scales)):
        raise UsageError(f"the clip {unit_sum.clip} and all scales must lie between {SMALLEST:g} and {LARGEST:g}")
    if len(centres) not in (0, len(codes)) or not all(0 <= x <= 1 for x in centres):
        raise UsageError(f"{len(centres)} centres for {len(codes)} codes: give none, or a share from 0 to 1 for each")
    own, around = on_grid(UnitSum(unit_sum.columns, codes, scales, clip, centres))
    return UnitSum(
        unit_sum.columns,
        codes,
        tuple((CLIP / (clip * own)).tolist()),
        clip,
        tuple((around / own).tolist()) if centres else (),
    )


def on_grid(unit_sum: UnitSum) -> Weights:
    """Return a and b: what a row of each code weighs, and what any row of its cell weighs against it.

    >>> on_grid(UnitSum((), ((), (("sex", 1),)), (1.0, 8.0), 32.0, (0.0, 0.5)))
    (array([8192, 1024]), array([  0, 512]))
    """
    own = [min(max(round(CLIP / (unit_sum.clip * s)), 1), MOST_WEIGHT) for s in unit_sum.scales]
    around = [round(a * c) for a, c in zip(own, unit_sum.centres or (0.0,) * len(own), strict=True)]
    return np.array(own, dtype=np.int64), np.array(around, dtype=np.int64)


def share(categories: int, *, length: int) -> int:
    """Weight that each of a unit's categories gets, so that its vector is no longer than ``length``.

    >>> [share(k, length=100) for k in (1, 2, 4, 10_000, 10_001)]
    [100, 70, 50, 1, 0]
    """
    return math.isqrt(length * length // categories)


def clip_and_sum(
    unit: IntArray,
    cell: IntArray,
    every: IntArray,
    entries: tuple[IntArray, IntArray, IntArray],
    by: Weights,
    *,
    size: int,
) -> IntArray:
    """Add up the units' vectors: one whole number for each of ``size`` cells and each code.

    Of whatever is counted, ``unit[i]`` has ``every[i]`` > 0 in ``cell[i]``. The ``entries`` are a place i, a code and
    how many it has there of that code, at most ``every[i]`` and 2**38; no pair of place and code comes twice. ``by``
    is :func:`on_grid`. Units are small whole numbers.

    Formal guarantees:
      - Without one unit's rows, the result differs by its vector alone, of length at most :data:`LENGTH`: squares are
        added up and compared in whole numbers.
      - It is a function of what each unit has alone, to the last bit that of :func:`clip_and_sum_in_engine`.
    """
    (place, code, count), (own, around) = entries, by
    places, had = _squares(every, (own[code], around[code], count, every[place]), by)
    high, low = np.zeros((2, int(unit.max(initial=-1)) + 1))  # of floats, which are exact below 2**53
    for whose, x in ((unit, places), (unit[place], had)):
        high += np.bincount(whose, x >> 31, minlength=len(high))
        low += np.bincount(whose, x & LENGTH - 1, minlength=len(low))
    q = (high.astype(np.int64) + (low.astype(np.int64) >> 31)).clip(None, BEYOND) * LENGTH
    q += low.astype(np.int64) & LENGTH - 1
    k = np.floor(LENGTH / np.sqrt(q.clip(1, None)) + ROUNDED).clip(None, LENGTH // CLIP).astype(np.int64)
    k -= k * k * q > LENGTH**2
    have = np.bincount(cell[place] * len(own) + code, k[unit[place]] * count, minlength=size * len(own))
    rows = np.bincount(cell, k[unit] * every, minlength=size)
    return have.astype(np.int64).reshape(size, len(own)) * own - np.multiply.outer(rows.astype(np.int64), around)


def clip_and_sum_in_engine(source: Any, places: Any, entries: Any, by: Weights, *, size: int) -> IntArray:
    """Do what :func:`clip_and_sum` does where the rows live: ``places`` have ``unit``, ``cell`` and ``every``, entries
    ``unit``, ``cell``, ``code``, ``count`` and the code's weights ``own`` and ``around``.
    """
    at = entries.inner_join(places, ["unit", "cell"])
    squares = _squares(places.every, (at.own, at.around, at["count"], at.every), by)
    each = zip((places, at), squares, strict=True)
    both = ibis.union(*(t.select("unit", q=q.cast(WIDE)) for t, q in each))
    units = both.group_by("unit").agg(q=both.q.sum().clip(None, BEYOND**2).cast("int64"))
    k = (LENGTH / units.q.clip(1, None).cast("float64").sqrt() + ROUNDED).floor().clip(None, LENGTH // CLIP)
    units = units.mutate(k=k.cast("int64"))
    k = ibis.ifelse(units.k * units.k * units.q > LENGTH**2, units.k - 1, units.k)
    units = source.materialise(units.select("unit", k=k))
    sums = []
    for counted in (entries, places.select("unit", "cell", code=ibis.literal(0), count="every")):
        held, out = counted.inner_join(units, "unit"), np.zeros((size, len(by[0])), dtype=np.int64)
        found = source.fetch(held.group_by("cell", "code").agg(n=(held.k * held["count"]).sum().cast("int64")))
        out[found["cell"].to_numpy(), found["code"].to_numpy()] = found["n"].to_numpy()
        sums.append(out)
    return sums[0] * by[0] - sums[1][:, :1] * by[1]


def _squares(every: Any, had: tuple[Any, Any, Any, Any], by: Weights) -> tuple[Any, Any]:
    """Parts of the squares of units' lengths, none above 64 bits: of each place as if it had no code, and what each
    entry adds to that. Arrays or expressions; a part that is cut is longer than any vector may be.
    """
    whole = int(by[1] @ by[1])
    most = math.isqrt(LENGTH**2 // 2 // max(whole, 1))
    own, around, count, of = had
    few, less = every.clip(None, most), around * of.clip(None, most)
    w = (own * count - less).clip(-BEYOND, BEYOND)
    return few * few * whole + (every - few).clip(None, 1) * BEYOND**2, w * w - less * less


def clipped_sum_in_engine(source: Any, rows: Any, unit_sum: UnitSum, *, size: int) -> IntArray:
    """Add up the vectors of units by their rows, as :func:`clipped_sum`, where the rows live.

    These have ``unit``, ``cell``, and ``code0`` and so on for the columns that the unit sum reaches. Codes are joined.
    """
    by: Weights = on_grid(unit_sum)
    looks: dict[tuple[int, ...], list[dict[str, int]]] = {}
    for j, (code, own, around) in enumerate(zip(unit_sum.codes, *(x.tolist() for x in by), strict=True)):
        line = {f"v{unit_sum.all_columns.index(c)}": v for c, v in code} | {"code": j, "own": own, "around": around}
        looks.setdefault(tuple(unit_sum.all_columns.index(c) for c, _ in code), []).append(line)
    had = []
    for look, lines in looks.items():
        codes = ibis.memtable(pa.Table.from_pylist(lines))
        joined = rows.inner_join(codes, [rows[f"code{i}"] == codes[f"v{i}"] for i in look] or True)
        had.append(joined.select("unit", "cell", "code", "own", "around"))
    entries = ibis.union(*had) if len(had) > 1 else had[0]
    entries = source.materialise(entries.group_by(entries.columns).agg(count=ibis._.count()))
    places = source.materialise(rows.group_by("unit", "cell").agg(every=ibis._.count()))
    return clip_and_sum_in_engine(source, places, entries, by, size=size)


def clipped_sum(
    units: IntArray, cells: IntArray, columns: Mapping[str, IntArray], unit_sum: UnitSum, *, size: int
) -> IntArray:
    """Add up the vectors of units by their rows (:func:`clip_and_sum`), many units at a time.

    A row is of unit ``units[i]``, falls into cell ``cells[i]`` and has the values ``columns[...][i]``; units ascend.
    """
    out = np.zeros((size, len(unit_sum.codes)), dtype=np.int64)
    start, rows = 0, max(BLOCK // len(unit_sum.codes), 1)
    while start < len(units):
        block = slice(start, int(np.searchsorted(units, units[min(start + rows, len(units)) - 1], side="right")))
        whose = np.cumsum(np.diff(units[block], prepend=units[start]) != 0)
        at, place, every = np.unique(
            whose * size + np.clip(cells[block], 0, size - 1), return_inverse=True, return_counts=True
        )
        had = zip(*_had({c: v[block] for c, v in columns.items()}, unit_sum.codes, place, len(at)), strict=True)
        entries: Any = tuple(map(np.concatenate, had))
        out += clip_and_sum(*np.divmod(at, size), every, entries, on_grid(unit_sum), size=size)
        start = block.stop
    return out


def _had(
    columns: Mapping[str, IntArray], codes: Sequence[Code], place: IntArray, places: int
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """How many rows with each code there are at each of ``places``, where there are some."""
    looks: dict[Columns, list[int]] = {}
    for j, code in enumerate(codes):
        looks.setdefault(tuple(c for c, _ in code), []).append(j)
    for names, found in looks.items():
        if len(found) == 1:  # the usual case, and faster by far
            wanted, has = np.zeros(1, dtype=np.int64), [columns[c] == v for c, v in codes[found[0]]]
            keys = place[np.logical_and.reduce(has)] if has else place
        else:
            have, wanted = np.zeros(len(place), dtype=np.int64), np.zeros(len(found), dtype=np.int64)
            for i, name in enumerate(names):
                values = np.array([codes[j][i][1] for j in found])
                last = values.max() + 1  # stands for all values that no code asks for
                have, wanted = have * (last + 1) + np.minimum(columns[name], last), wanted * (last + 1) + values
                # Numbered anew: at most one more than there are codes, whatever the rows are.
                known, wanted = np.unique(wanted, return_inverse=True)
                at = np.searchsorted(known, have)
                have = np.where(known[at % len(known)] == have, at, len(known))
            keys = (place * len(found) + have)[have < len(found)]
        if places * len(found) > SPARSE * len(keys):
            keys, count = np.unique(keys, return_counts=True)
        else:
            count = np.bincount(keys)
            keys = np.flatnonzero(count)
            count = count[keys]
        where, which = np.divmod(keys, len(found)) if len(found) > 1 else (keys, np.zeros_like(keys))
        yield where, np.array(found)[np.argsort(wanted)][which], count


# -- second moments ----------------------------------------------------------------------------------------------------
#
# A row is a vector of whole numbers: 2^b at its codes, less 2^b times their shares, rounded. What UnitMoments says is
# worked out of these exactly, as whole numbers below 2^53 are floats, in whatever order they are added. So a unit's
# vector depends on its own rows alone, to the last bit.

MOST_NUMBERS = 1 << 18
"""Numbers in the vector of a unit."""

MOST_WIDTH = 1 << 11
"""Codes of all columns: an owner's rows are worked out as a matrix of so many rows and columns."""

EXACT = 52
"""Sums of whole numbers below 2 to this are exact in floats, and so are squares of those below 2 to half of it."""


def grid(clip: float) -> tuple[float, int]:
    """Return the grid g for a clip of moments, and the length L that no unit's vector on it exceeds.

    >>> grid(10.0)
    (131072.0, 1310720)
    """
    step = 2.0 ** (21 - math.frexp(clip)[1])
    return step, math.floor(step * clip)


def plain_moments(moments: UnitMoments) -> UnitMoments:
    """Return a copy made of texts, tuples and numbers, as :func:`plain`."""
    together, siblings = (tuple(("".join(a), "".join(b)) for a, b in of) for of in (moments.together, moments.siblings))
    return UnitMoments(
        "".join(moments.owner),
        tuple(("".join(name), tuple(float(x) for x in shares)) for name, shares in moments.centres),
        together,
        siblings,
        float(moments.clip),
        float(moments.scale),
        tuple(moments.beside),
    )


def require_moments(moments: UnitMoments, sizes: Mapping[str, int]) -> None:
    """Refuse a :func:`plain_moments` that could fail: nothing that comes after the charge may fail for it."""
    centres, together, siblings = moments.centres, moments.together, moments.siblings
    for name, shares in centres:
        if len(shares) != sizes.get(name) or not all(0 <= x <= 1 for x in shares):
            raise UsageError(f"{len(shares)} shares for {name!r}: give one from 0 to 1 for each of its codes")
    if strange := {c for pair in (*together, *siblings) for c in pair} ^ dict(centres).keys():
        raise UsageError(f"{min(strange)!r} has shares and no pair, or is paired and has no shares; give both or none")
    pairs = sum(sizes[a] * (sizes[b] + 1) // 2 if a == b else sizes[a] * sizes[b] for a, b in (*together, *siblings))
    if sum(len(shares) for _, shares in centres) > MOST_WIDTH or not 1 <= pairs <= MOST_NUMBERS:
        raise UsageError(
            f"give columns of at most {MOST_WIDTH:,} codes in all, and 1 to {MOST_NUMBERS:,} pairs of codes"
        )
    if len(dict(centres)) != len(centres) or not all(SMALLEST <= x <= LARGEST for x in (moments.clip, moments.scale)):
        raise UsageError(f"name columns once, with a clip and a scale between {SMALLEST:g} and {LARGEST:g}")


@np.errstate(all="ignore")  # whatever floats do with odd clips, nobody hears of it
def moment_sum(units: IntArray, owners: IntArray, *columns: IntArray, moments: UnitMoments, most_rows: int) -> IntArray:
    """Add up the units' vectors, one whole number for each pair of codes.

    A row is of unit ``units[i]`` and owner ``owners[i]``, and has a code in each column, below 0 in those of other
    tables. No owner has more than ``most_rows``.

    Formal guarantees:
      - Without one unit's rows, the result differs by its vector alone, of length at
        most L of :func:`grid`: held in whole numbers.
    """
    (step, most), rows = grid(moments.clip), np.lexsort((owners, units))
    codes = {name: column[rows] for name, column in zip(moments.all_columns, columns, strict=True)}
    out = np.zeros(len(moments.at[0]))
    for vectors in unit_vectors(units[rows], owners[rows], codes, moments, most_rows=most_rows):
        length = np.sqrt(np.square(vectors).sum(axis=1))
        x = np.trunc(vectors * np.minimum(step, most / np.maximum(length, 1e-300))[:, None])
        x[~(np.square(x).sum(axis=1) <= most**2)] = 0.0  # whole numbers far below 2**53, hence exact
        out += x.sum(axis=0)
    return out.astype(np.int64)


def unit_vectors(
    units: IntArray, owners: IntArray, codes: Mapping[str, IntArray], moments: UnitMoments, *, most_rows: int
) -> Iterator[FloatArray]:
    """Each unit's vector before it is clipped, some units at a time, of rows as for :func:`moment_sum` in ascending
    order of units and owners.
    """
    one, two, together = moments.at
    unscaled = np.where(np.arange(len(one)) < together, 1 / moments.scale, 1.0)
    bits = max(min(10, (EXACT - 2 * int(most_rows).bit_length()) // 2), 0)
    first = np.flatnonzero(np.diff(owners, prepend=-1))
    rows, whose = np.diff(np.append(first, len(owners))), units[first]
    at_once = max(BLOCK // max(len(one), sum(len(s) for _, s in moments.centres) ** 2), 1)
    unfinished = np.zeros((0, len(one)))
    for start in range(0, len(first), at_once):
        block = slice(start, start + at_once)
        vectors = np.empty((len(first[block]), len(one)))
        for n in np.unique(rows[block]):
            some = np.flatnonzero(rows[block] == n)
            products, sums = _products(first[block][some], n, codes, moments, bits)
            vectors[some, :together] = products[:, one[:together], two[:together]]
            between = (sums[:, :, None] * sums[:, None] - products)[:, one[together:], two[together:]]
            vectors[some, together:] = np.floor(between / max(n - 1, 1))
        found = np.add.reduceat(vectors, np.flatnonzero(np.diff(whose[block], prepend=-1)), axis=0)
        if len(unfinished) and whose[start] == whose[start - 1]:
            found[0] += unfinished[0]
        elif len(unfinished):
            yield unfinished * unscaled / 4.0**bits
        yield found[:-1] * unscaled / 4.0**bits
        unfinished = found[-1:]
    yield unfinished * unscaled / 4.0**bits


def _products(
    first: IntArray, n: int, codes: Mapping[str, IntArray], moments: UnitMoments, bits: int
) -> tuple[FloatArray, FloatArray]:
    """Sums over the ``n`` rows from each ``first`` one on: of rows times themselves, and of rows."""
    width = sum(len(shares) for _, shares in moments.centres)
    products, sums = np.zeros((len(first), width, width)), np.zeros((len(first), width))
    step = max(BLOCK // (len(first) * width), 1)
    for start in range(0, n, step):
        at = first[:, None] + np.arange(start, min(start + step, n))
        z = _rows({name: codes[name][at.ravel()] for name in moments.all_columns}, moments, bits).reshape(
            (*at.shape, width)
        )
        products += np.matmul(z.transpose(0, 2, 1), z)
        sums += z.sum(axis=1)
    return products, sums


def _rows(codes: Mapping[str, IntArray], moments: UnitMoments, bits: int) -> FloatArray:
    """Rows as vectors of whole numbers, times 2^bits."""
    parts = []
    for name, shares in moments.centres:
        part = np.tile(-np.rint(np.array(shares) * 2.0**bits), (len(codes[name]), 1))
        part[np.arange(len(part)), np.clip(codes[name], 0, len(shares) - 1)] += 2.0**bits
        part[codes[name] < 0] = 0.0
        parts.append(part)
    return np.concatenate(parts, axis=1)

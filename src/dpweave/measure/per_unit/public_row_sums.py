r"""Links to public rows, counted as unit sums: noise for what a unit's rows are
together, not for each set of columns anew.

A row that leads to a film with four genres tells of each of its genres, of each pair of them and of nothing else. To
count links by every genre, table after table, costs the bound on rows of one unit each time, mostly for films that are
*not* of the genre. A unit sum (:class:`dpweave.privacy.window.UnitSum`) counts only what differs from the commonest
value: one code for every value of every column of the public row but its commonest, and for sets of such values. The
rest follows by subtraction, so nothing is lost. All codes are counted at once, and since a unit's rows spread over
them, its vector is short.

**Scales.** Let :math:`\pi_j` be the share of links with code j. Noise of scale :math:`\sigma
s_j` makes a unit with d rows spread like all the others a vector of squared length

.. math:: \sum_j \bigl( d^2 \pi_j^2 B + d \pi_j (1 - \pi_j B) \bigr) / s_j^2,

where B is the chance that two rows of a unit fall into the same cell of the unit sum's columns. Call the summands
:math:`q_j / s_j^2`: for a clip of this length, :math:`\sum_j w_j \sigma s_j` is least with :math:`s_j \propto (q_j /
w_j)^{1/3}`, so rare codes get less noise. The ``clip`` is the length with some room, so that units are seldom scaled
down; those that are lose weight and no more.

**Centres.** Most of such a vector says what all links say. Where it is known how links spread over the left side,
only what a unit's rows have beyond :math:`\pi` is counted: a unit sum around its centres. Its vector has what
chance and taste leave, and the code of all rows, on a large scale, shows only how much of them the clip leaves:

.. math:: \sum_j \bigl( d^2 \pi_j^2 t^2 B + d \pi_j (1 - \pi_j) \bigr) / s_j^2,

t being by which part of it units' own shares of a code typically differ from that of all. At first :math:`\pi` is what
public rows suggest. A small part of the budget then counts all links, without left columns, and the others are centred
around that (:meth:`PublicRowSums.around`). Counts themselves are found by adding :math:`\pi_j` times the rows of
each cell (:func:`dpweave.measure.estimates.restored`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.measure.cross_workloads import cells
from dpweave.measure.estimates import restored
from dpweave.measure.question import Question
from dpweave.schema.domain import MAX_CELLS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.measure.margins import Margin
    from dpweave.privacy.window import Code, Columns, Noisy, Units

MOST_CODES = 2_000
"""Codes of a unit sum at most; sets of columns with more are left out."""


RAREST = 1e-6
"""Share of links that a code is taken to have at least."""


@dataclass(frozen=True)
class PublicRowSums:
    """The codes of one relation's public rows, by the columns they look at, with the
    share of links that have each: 0 where no row has it.
    """

    share: Mapping[Columns, Mapping[Code, float]]
    units: Units
    left: Mapping[str, Margin]
    right: Mapping[str, Margin]
    taste: float | None = None
    """By which part of them units' own shares typically differ from these, where unit
    sums are centred around them; None where they are not.
    """
    doubt: Mapping[Code, float] = field(default_factory=dict)
    """Standard errors of the shares. Noise is made for shares as large as they may well
    be: for too small a one, units with a code that is common would be cut off.
    """

    @classmethod
    def of(
        cls,
        codes: Mapping[str, IntArray],
        weights: FloatArray,
        left: Mapping[str, Margin],
        right: Mapping[str, Margin],
        *,
        units: Units,
        sets: Sequence[Columns],
        taste: float | None = None,
    ) -> PublicRowSums:
        """Make a code of every combination of values, none the commonest of its column, that some public row has."""
        common = {c: int(margin.p.argmax()) for c, margin in right.items()}
        share: dict[Columns, dict[Code, float]] = {(): {(): 1.0}}
        room = MOST_CODES

        def width(columns: Columns) -> tuple[int, int]:
            return len(columns), math.prod(right[c].size for c in columns)

        for columns in sorted(dict.fromkeys(sets), key=width):
            if width(columns)[1] > MAX_CELLS or any(f not in share for f in combinations(columns, len(columns) - 1)):
                continue
            sizes = {c: right[c].size for c in columns}
            at = cells(codes, columns, sizes, rows=len(weights))
            mass, there = (
                np.bincount(at, weights=w, minlength=math.prod(sizes.values())).reshape(tuple(sizes.values()))
                for w in (weights, None)
            )
            p = np.where(there > 0, np.maximum(mass / weights.sum(), RAREST), 0.0)
            counted = there > 0 if len(columns) > 1 else np.ones(p.shape, dtype=bool)
            for axis, c in enumerate(columns):
                counted[(slice(None),) * axis + (common[c],)] = False
            found = np.argwhere(counted).tolist()
            if len(found) <= room:
                share[columns] = {tuple(zip(columns, where, strict=True)): float(p[tuple(where)]) for where in found}
                room -= len(found)
        return cls(share, units, left, right, taste)

    @classmethod
    def even(
        cls, left: Mapping[str, Margin], right: Mapping[str, Margin], *, units: Units, sets: Sequence[Columns]
    ) -> PublicRowSums:
        """The same, centred, for public rows that nothing is known of: every
        combination of values is as frequent as its margins say.
        """
        share: dict[Columns, dict[Code, float]] = {(): {(): 1.0}}
        room = MOST_CODES
        for columns in sorted(dict.fromkeys(sets), key=len):
            values = [range(1, right[c].size) for c in columns]
            if math.prod(map(len, values)) <= room:
                room -= math.prod(map(len, values))
                share[columns] = {
                    tuple(zip(columns, at, strict=True)): math.prod(
                        float(right[c].p[v]) for c, v in zip(columns, at, strict=True)
                    )
                    for at in product(*values)
                }
        return cls(share, units, left, right, chosen.TASTE)

    def around(self, every: Noisy, *, links: float) -> PublicRowSums:
        """The same with the shares that a noisy unit sum of all ``links`` shows. Before
        it, a share may be off by all of it.
        """
        shown = restored(every, lambda _: np.array(links))
        found = {
            code: (y / links, (s / links) ** 2)
            for code, y, s in zip(Question.of(every).codes, shown.counts, shown.noise, strict=True)
        }
        shares: dict[Columns, dict[Code, float]] = {}
        doubt: dict[Code, float] = {}
        for columns, codes in self.share.items():
            shares[columns] = dict(codes)
            for code, p in codes.items() if columns else ():
                if not p:
                    continue
                y, noise = found.get(code, (p, 0.0))
                shares[columns][code] = float(np.clip((y * p**2 + p * noise) / (p**2 + noise), 0.0, 1.0))
                doubt[code] = math.sqrt(p**2 * noise / (p**2 + noise))
        return replace(self, share=shares, taste=chosen.TASTE, doubt=doubt)

    def question(self, columns: Columns, sets: Sequence[Columns], *, declared: bool = False) -> Question:
        """The unit sum over ``columns`` with the codes of some column ``sets``; where
        these were declared, rare codes are worth more.

        A centred unit sum has the code of all rows for one thing: to see by how much
        units were scaled down (:func:`dpweave.measure.estimates.restored`).
        """
        shares = {code: p for s in sets for code, p in self.share.get(s, {}).items() if code or self.taste is None}
        alike = math.prod(float((self.left[c].p ** 2).sum()) for c in columns if c not in self.units.shared)
        d = self.units.many
        doubt = self.doubt
        seen = {c: min(max(p + doubt.get(c, 0.0), RAREST), 1.0) for c, p in shares.items() if p or c in doubt}
        if not seen:  # too many values for any code: only rows are counted
            return Question(columns, ((),), (d,), 1.0, (0.0,))
        square = {code: self._square(p, d, alike) for code, p in seen.items()}
        weight = {
            code: chosen.CODE_WEIGHTS[min(len(code), 2)] / (max(p, chosen.NEXT_TO_NOTHING) if declared else 1.0)
            for code, p in seen.items()
        }
        some = {code: (square[code] / weight[code]) ** (1 / 3) for code in seen}
        length = math.sqrt(sum(square[code] / some[code] ** 2 for code in seen))
        # A value that no public row has takes no part in any unit's length, however little noise it gets.
        least = min(some.values())
        scales = {code: some.get(code, least) for code in shares}
        centres: tuple[float, ...] = ()
        if self.taste is not None:
            scales, centres = {(): d / (chosen.KEPT * length), **scales}, (0.0, *shares.values())
            length *= math.hypot(1.0, chosen.KEPT)
        longest = self.units.rows * math.sqrt(sum(1 / scales[c] ** 2 for c in scales if c in seen or not c))
        clip = min(math.exp(chosen.LENGTHS / 2) * length, longest)
        return Question(columns, tuple(scales), tuple(scales.values()), clip, centres)

    def _square(self, share: float, rows: float, alike: float) -> float:
        """Expected square of what so many ``rows`` of a unit have of a code, which a ``share`` of links has."""
        common, chance = (1.0, alike) if self.taste is None else (self.taste, 1.0)
        return (rows * share * common) ** 2 * alike + rows * share * (1 - share * chance)

    def balanced(self, question: Question, *, rho: float, links: float) -> Question:
        r"""A centred unit sum with the clip at which noise and what scaling takes from
        counts of ``links`` are least together.

        Units whose rows are all alike are longest. They are scaled down most, and what they have comes
        out too rare, which the code of all rows does not show. With lengths that are log-normal around
        that expected, a clip c takes the part :func:`_lost` of the rows' weight, so that what is least is

        .. math:: \sum_j w_j \Bigl( \frac{c\, s_j}{\sqrt{\pi \rho}} + m\, \pi_j\, \mathrm{lost}(c) \Bigr).
        """
        coded = [
            (chosen.CODE_WEIGHTS[min(len(k), 2)], s, p)
            for k, s, p in zip(question.codes, question.scales, question.centres, strict=True)
            if k
        ]
        if not coded:
            return question
        noise = sum(w * s for w, s, _ in coded) / math.sqrt(math.pi * rho)
        count = links * sum(w * p for w, _, p in coded)
        expected = question.clip / math.exp(chosen.LENGTHS / 2)
        clip = min(np.geomspace(1, 4, 60) * expected, key=lambda c: c * noise + count * _lost(c / expected))
        longest = self.units.rows * math.sqrt(sum(1 / s**2 for s in question.scales))
        return replace(question, clip=min(max(question.clip, float(clip)), max(question.clip, longest)))

    def settled(self, question: Question, *, rho: float, links: float) -> Question:
        """A unit sum with the clip at which noise and what scaling makes wrong are least together (:func:`clip_at`).

        Where noise is less than chance it is as long as that allows: then nobody need be scaled down.
        """
        if len(question.codes) < 2:
            return question
        scales, shares = (np.array(x[1:]) for x in (question.scales, question.centres))
        weight = np.array([chosen.CODE_WEIGHTS[min(len(code), 2)] for code in question.codes[1:]])
        cells_ = math.prod(self.left[c].size for c in question.columns)
        noise = question.clip * float(weight @ scales) / math.sqrt(math.pi * rho)
        alike = math.prod(float((self.left[c].p ** 2).sum()) for c in question.columns if c not in self.units.shared)
        # As large as shares may well be: noise may have made all of them nothing.
        likely = [min(p + self.doubt.get(code, 0.0), 1.0) for p, code in zip(shares, question.codes[1:], strict=True)]

        def length(rows: float) -> float:
            return math.sqrt(sum(self._square(p, rows, alike) / s**2 for p, s in zip(likely, scales, strict=True)))

        wrong = chosen.DIFFERENT * links * float(weight @ shares) / cells_
        clip = question.clip * clip_at(self.units, length, noise=noise, wrong=wrong)
        wide = chosen.UNFELT * math.sqrt(2 * rho * links * (shares * (1 - shares)).sum() / cells_ / (scales**2).sum())
        longest = self.units.rows * math.sqrt(sum(1 / s**2 for s in question.scales))
        return replace(question, clip=min(max(clip, wide), longest))

    def informs(self, question: Question) -> dict[Columns, float]:
        """Precision that a unit sum's counts give the contrasts of each set of right
        columns, for one link and noise of scale 1.

        As :func:`dpweave.measure.design.informs`, but for what the unit sum's own columns contribute.
        """
        out: dict[Columns, float] = {}
        for code, scale in zip(question.codes, question.scales, strict=True):
            spread = math.prod(float(self.right[c].p[v] * (1 - self.right[c].p[v])) for c, v in code)
            freedom = math.prod(self.right[c].size - 1 for c, _ in code)
            out[_columns(code)] = out.get(_columns(code), 0.0) + spread / scale**2 / freedom
        return out


def _lost(room: float) -> float:
    r"""Part of the rows' weight that a clip of ``room`` times the expected length
    takes, :math:`E (1 - c/l)_+` for log-normal lengths l.

    >>> [round(_lost(room), 3) for room in (1.0, 1.15, 1.5, 2.0)]
    [0.068, 0.033, 0.006, 0.0]
    """
    z = math.log(room) / chosen.LENGTHS + chosen.LENGTHS
    beyond, far = (0.5 * math.erfc(x / math.sqrt(2)) for x in (z, z + chosen.LENGTHS))
    return beyond - room * math.exp(1.5 * chosen.LENGTHS**2) * far


def clip_at(units: Units, length: Callable[[float], float], *, noise: float, wrong: float) -> float:
    r"""Clip in units of a large unit's length at which noise and what scaling makes wrong are least together.

    ``noise`` is that at a clip of 1, and ``wrong`` what counts would be off by if all rows were
    scaled down to nothing. Numbers of rows of units are taken to be exponential, R mean numbers being
    a large one, and lengths to go with them. Then a clip f takes from the rows' weight the part

    .. math:: \mathrm{lost}(f) = \int_{fR}^\infty \Bigl(1 - \frac{fR}{x}\Bigr) x e^{-x} \, dx = e^{-fR},

    and where the bound on rows is what makes a unit large, so that none is larger,
    :math:`(e^{-fR} - e^{-R}) / (1 - e^{-R})`. Noise grows with f.

    This is about numbers of rows. Vectors of few rows also differ by what these are: those with rare codes
    are longer, and if they were scaled down more, rare codes would come out rarer. So a unit of mean size has
    room for what chance does to its ``length``. Where the mean is not known, units are all taken to be large.

    >>> from dpweave.privacy.window import Units
    >>> units = Units(1000, frozenset(), mean=100.0)
    >>> [round(clip_at(units, lambda rows: rows, noise=1.0, wrong=x), 2) for x in (1.0, 2.0, 10.0, 100.0)]
    [0.43, 0.6, 1.13, 1.9]
    """
    large = length(units.many)
    if units.mean is None or noise <= 0 or large <= 0:
        return 1.0
    mean = max(units.mean, 1.0)
    least = min((1 + chosen.SIGNIFICANT / math.sqrt(mean)) * length(mean) / large, 1.0)
    many = units.many / max(units.mean, 1e-9)
    bounded = units.rows <= units.many
    part = -math.expm1(-many) if bounded else 1.0
    best = math.log(max(wrong * many / (part * noise), 1e-9)) / many
    return min(max(best, least), 1.0 if bounded else chosen.LARGEST_CLIP)


def _columns(code: Code) -> Columns:
    return tuple(c for c, _ in code)


def outer(factors: Sequence[FloatArray]) -> FloatArray:
    """Product table of one vector per axis."""
    table = np.ones(())
    for factor in factors:
        table = np.multiply.outer(table, factor)
    return table

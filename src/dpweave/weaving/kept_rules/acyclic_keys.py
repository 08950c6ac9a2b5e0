"""Self-references without circles: rows that must not lead back to themselves hang on rows that come before them.

What comes before follows from an ordered column where links run along one (a year of birth, a rank): then every
link has to, and no line is longer than the column has steps. Elsewhere lines are followed from the rows that
lead nowhere, and cut where they run in circles or grow longer than a random family of this size would.

A link that cannot stay moves to the target of another row's link that can, taken at the same
time or depth, so that new targets are like the learned ones; no target gets more rows than
its bound. Where links stay within units, it moves to any row of its unit that comes before.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.links.wiring.assign import Candidates, assign
from dpweave.links.wiring.within_groups import UnitGroups, assign_within_groups
from dpweave.schema.domain import Bins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.weaving.state import Mask, WeavingState

_TRIES = 4
"""How often a row draws a target, of those at its time, of those before it, and of any."""


def break_circles(state: WeavingState, name: str) -> None:
    """Let no row lead back to itself by its acyclic keys."""
    keys = [k for k in state.plan.table[name].keys if k.acyclic]
    if not keys or not state.rows[name]:
        return
    rng = state.rng("order", name)
    links = [state.links[name, k.key.name] for k in keys]
    bounds = [k.max_degree for k in keys]
    units = [state.units(name) if k.within else None for k in keys]
    time = time_along_links(ordered_codes(state, name), links, rng)
    if time is None:
        settle(links, bounds, rng, units)
        return
    for link, bound, unit in zip(links, bounds, units, strict=True):
        wrong = np.flatnonzero((link >= 0) & (time[np.maximum(link, 0)] >= time))
        rehang(link, wrong, time, time[wrong], bound=bound, unit=unit, rng=rng)


def ordered_codes(state: WeavingState, name: str) -> list[IntArray]:
    """Codes of a table's ordered columns, with -1 for null."""
    found = []
    for column in state.plan.table[name].columns:
        if isinstance(column.domain, Bins):
            codes = state.codes[name][column.name]
            found.append(np.where(codes < column.domain.cells, codes, -1))
    return found


def time_along_links(columns: list[IntArray], links: list[IntArray], rng: np.random.Generator) -> IntArray | None:
    """Time of each row by the column along which links run most clearly; None where none is clear.

    Rows without a value come just before the first row that leads to them, or after what they lead to, or anywhere.

    >>> years, parents = np.repeat([2, 1, 0], 10), np.r_[np.arange(10, 30), [-1] * 10]
    >>> time_along_links([years], [parents], np.random.default_rng(0))[[0, 10, 20]]
    array([2, 1, 0])
    """
    best, clearest = None, 0.0
    for codes in columns:
        ends = [(codes[at], codes[link[at]]) for link in links for at in (np.flatnonzero(link >= 0),)]
        mine, theirs = (np.concatenate(side) for side in zip(*ends, strict=True))
        known = (mine >= 0) & (theirs >= 0)
        if not known.any():
            continue
        way = float(np.sign(mine - theirs)[known].mean())
        if abs(way) * math.sqrt(known.sum()) < chosen.SIGNIFICANT:  # as by tossing coins
            continue
        if abs(way) >= chosen.CLEAR and abs(way) > clearest:
            clearest = abs(way)
            best = np.where(codes < 0, -1, codes if way > 0 else codes.max() - codes)
    return None if best is None else _completed(best, links, rng)


def _completed(time: IntArray, links: list[IntArray], rng: np.random.Generator) -> IntArray:
    known = time >= 0
    guess = rng.choice(time[known], len(time))
    after, before = np.full(len(time), -1), np.full(len(time), np.iinfo(np.int64).max)
    for link in links:
        up = np.flatnonzero((link >= 0) & known[np.maximum(link, 0)])
        np.maximum.at(after, up, time[link[up]] + 1)
        down = np.flatnonzero((link >= 0) & known)
        np.minimum.at(before, link[down], time[down] - 1)
    guess = np.where(after >= 0, after, guess)
    guess = np.where(before < np.iinfo(np.int64).max, before, guess)
    return np.where(known, time, guess)


def settle(
    links: list[IntArray],
    bounds: list[int | None],
    rng: np.random.Generator,
    units: Sequence[IntArray | None] | None = None,
) -> None:
    """Follow lines from the rows that lead nowhere; move links of rows in circles, or
    too deep, until every line ends.
    """
    units = [None] * len(links) if units is None else units
    most = longest(links)
    while True:
        depth = depths(links, most)
        loose = depth < 0
        if not loose.any():
            return
        stuck = _in_circles(links, loose)
        if not stuck.any():  # too deep: the first ones beyond
            stuck = loose & np.logical_and.reduce([(k < 0) | ~loose[np.maximum(k, 0)] for k in links])
        rows = rng.permutation(np.flatnonzero(stuck))
        rows = rows[: max(min(len(rows), len(loose) - int(loose.sum())) // 4, 1)]  # no more than there are places for
        linked = depth > 0
        wanted = rng.choice(depth[linked], len(rows)) if linked.any() else np.ones(len(rows), dtype=np.int64)
        for link, bound, unit in zip(links, bounds, units, strict=True):
            hangs = link[rows] >= 0
            settled = np.where(loose, np.iinfo(np.int64).max, depth)
            deep = settled[np.maximum(link[rows], 0)] >= np.maximum(wanted, 1)
            rehang(link, rows[hangs & deep], settled, wanted[hangs & deep], bound=bound, unit=unit, rng=rng)


def longest(links: list[IntArray]) -> int:
    """How deep lines may grow: beyond, fewer than one row in a hundred would be by chance, given how many lead nowhere.

    If a share q of rows leads nowhere and the others to any row, depths are geometric;
    a tree that doubles at every second step is never deeper than 2 log2(n / roots).
    """
    rows = len(links[0])
    roots = max(int(np.logical_and.reduce([k < 0 for k in links]).sum()), 1)
    if roots >= rows:
        return 1
    return max(2, math.ceil(min(math.log(chosen.LEVEL) / math.log1p(-roots / rows), 2 + 2 * math.log2(rows / roots))))


def depths(links: list[IntArray], most: int) -> IntArray:
    """Steps of the longest line from each row to one that leads nowhere; -1 for circles
    and what is deeper than ``most``.

    >>> depths([np.array([-1, 0, 1, 4, 3])], 9)
    array([ 0,  1,  2, -1, -1])
    """
    level = np.full(len(links[0]), -1, dtype=np.int64)
    for depth in range(most + 1):
        ready = level < 0
        for link in links:
            ready &= (link < 0) | (level[np.maximum(link, 0)] >= 0)
        if not ready.any():
            break
        level[ready] = depth
    return level


def _in_circles(links: list[IntArray], loose: Mask) -> Mask:
    """Loose rows that are left when those that no loose row leads to are taken away, again and again."""
    core = loose.copy()
    while True:
        led = np.zeros(len(core), dtype=bool)
        for link in links:
            led[link[core & (link >= 0)]] = True
        if (core == (core & led)).all():
            break
        core &= led
    # What is left lies on circles or between them and deep ends; rows all of whose
    # targets are settled are no part of one.
    while core.any():
        held = np.zeros(len(core), dtype=bool)
        for link in links:
            held |= (link >= 0) & core[np.maximum(link, 0)]
        if (core == (core & held)).all():
            break
        core &= held
    return core


def rehang(
    links: IntArray,
    rows: IntArray,
    time: IntArray,
    at: IntArray,
    *,
    bound: int | None,
    rng: np.random.Generator,
    unit: IntArray | None = None,
) -> None:
    """Give ``rows`` targets that rows of time ``at`` (or the nearest before) have; else
    that earlier rows have; else earlier rows.

    ``time`` says what comes before what: a link is right if its target's time is below its row's. Only
    targets of right links are given, which come before ``at`` too. Where ``bound`` leaves no room among
    any of these, a row leads nowhere. With ``unit``s, a row is given any earlier row of its own one.
    """
    if unit is not None:
        links[rows] = -1
        room = None if bound is None else bound - np.bincount(links[links >= 0], minlength=len(links))

        def earlier(i: IntArray, j: IntArray) -> FloatArray:
            return np.where(time[j] < at[i], 0.0, -np.inf)

        groups = UnitGroups(unit[rows], unit, rows)
        links[rows] = assign_within_groups(groups, bound=room, rng=rng, log_odds=earlier)
        return
    donors = np.flatnonzero((links >= 0) & (time[np.maximum(links, 0)] < time))
    donors = donors[np.argsort(time[donors], kind="stable")]
    given, when, every = links[donors], time[donors], np.argsort(time, kind="stable")
    last = np.searchsorted(when, at, side="right")
    nearest = np.searchsorted(when, when[np.maximum(last - 1, 0)]) if len(when) else last
    before = np.searchsorted(time[every], at)
    links[rows] = -1
    tiers = ((given, nearest, last), (given, 0 * last, last), (every, 0 * last, before))
    for among, first, end in (tier for tier in tiers for _ in range(_TRIES)):
        waiting = np.flatnonzero((links[rows] < 0) & (end > first))
        if not len(waiting):
            continue
        target = among[(first + (rng.random(len(rows)) * (end - first)).astype(np.int64))[waiting]]
        degree = np.bincount(links[links >= 0], minlength=len(links))
        capacity = np.full(len(links), len(rows)) if bound is None else bound - degree
        chance = np.where(target == rows[waiting], -np.inf, rng.random(len(waiting)))
        links[rows[waiting]] = assign(Candidates(np.arange(len(waiting)), target, len(waiting)), capacity, chance)

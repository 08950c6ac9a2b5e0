"""Relations of a plan, each with the view its links are learned on, and the columns that engines derive of keys.

A foreign key is learned between the row that holds it, with its own columns and those of parents attached before, and
the row it leads to, with its columns and those of its own parents. A pure junction of two keys is one many-to-many
relation between the rows its keys lead to. :mod:`dpweave.plan.compiled` works out which relations a plan has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from dpweave import chosen
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Type
from dpweave.schema.degree_buckets import buckets
from dpweave.schema.domain import Attribute, Bins, Categories, View, degree, newcomer, presence, repetition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.schema.domain import Path

Kind = Literal["many-to-many", "one-to-many", "one-to-one"]
ANY_DEGREE = buckets(1 << 20, growth=chosen.GROWTH_UNKNOWN)
"""Buckets in which degrees are first counted where the plan does not declare a cap."""


@dataclass(frozen=True)
class Relation:
    """One foreign key, or the two of a pure junction, to be wired.

    ``left`` and ``right`` name the columns of either side as the view calls them. ``joint`` is the first key of a pure
    junction: its target is then the left side; otherwise the left side is ``table`` itself.
    """

    table: str
    key: str
    kind: Kind
    left: tuple[tuple[str, Attribute], ...]
    right: tuple[tuple[str, Attribute], ...]
    joint: str | None = None
    target: str = field(default="", compare=False)
    """The table that the key leads to."""
    method: str = field(default="map", compare=False)
    """How links are made."""
    weight: float = field(default=1.0, compare=False)
    """What the plan says of its importance."""
    varying: tuple[Mapping[str, int], Mapping[str, int]] = field(default=({}, {}), compare=False)
    """Columns of either side that can differ from row to row, with about how many codes they have."""
    is_dictated: bool = field(default=False, compare=False)
    """Its key shares columns with another one, so that its targets are drawn among those that agree."""
    is_selective: bool = field(default=False, compare=False)
    """Its key may lead to some rows of its target rather than to others: a public one,
    or one that links and may be null.
    """
    has_popular_targets: bool = field(default=False, compare=False)
    """It may be counted how often each row is led to: public rows with keys of one column,
    several links to each, under entity neighbours.
    """
    is_owned: bool = field(default=False, compare=False)
    """Its key says who owns the rows, all of which have an owner."""

    @cached_property
    def view(self) -> View:
        """The rows of ``table`` that are linked, with the columns of both sides."""
        linked: tuple[Path, ...] = ((self.key,),) if self.joint is None else ((self.joint,), (self.key,))
        return View(self.table, (*self.left, *self.right), linked)

    @cached_property
    def newcomer_view(self) -> View:
        """The linked rows, by the public row that each leads to."""
        name = newcomer(self.key)
        return View(self.table, ((name, Attribute(name)),), ((self.key,),))

    @property
    def learnable(self) -> bool:
        """Whether both sides have columns that could be correlated."""
        return bool(self.left) and bool(self.right)

    @property
    def is_learned(self) -> bool:
        """Whether there is anything to learn: its method wants to, both sides vary, and no other key dictates it."""
        return self.method != "random" and not self.is_dictated and all(self.varying)

    @property
    def is_popularity_alone(self) -> bool:
        """Whether all there is to learn is how often each row is led to: no columns could go together."""
        return self.has_popular_targets and self.method == "map" and not self.is_dictated and not self.is_learned


def degree_codec(child: str, key: str, edges: tuple[int, ...]) -> Codec:
    """Return the codec of one degree column."""
    return Codec(Column(degree(child, key), Type("integer"), nullable=False), Bins(edges))


def presence_codec(key: str) -> Codec:
    """Return the codec of the column that says whether a nullable foreign key leads somewhere."""
    return Codec(Column(presence(key), Type("boolean"), nullable=False), Categories((False, True)))


def repetition_codec(key: str) -> Codec:
    """Return the codec of a repetition column."""
    return Codec(Column(repetition(key), Type("boolean"), nullable=False), Categories((False, True)))

"""What a link model is, what it may know, and how one is found by name."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from dpweave.errors import PlanError, UsageError, nearest
from dpweave.links.degrees import UNKNOWN, Degrees

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.wiring.within_groups import UnitGroups
    from dpweave.measure.cross_workloads import Workload
    from dpweave.privacy.window import Noisy, Window

Kind = Literal["many-to-many", "one-to-many", "one-to-one"]
KINDS: tuple[str, ...] = get_args(Kind)

METHODS = {
    "map": "dpweave.links.map_learner:MAP",
    "pgd": "dpweave.links.pgd_learner:PGD",
    "random": "dpweave.links.link_method:RandomWiring",
}
"""Link methods by name. A new one is one file and one line here."""


@dataclass(frozen=True)
class LinkProblem:
    """Synthetic rows of two tables, how they may be linked, and how many links to make.

    ``left`` and ``right`` hold codes of synthetic rows by the column names of the window, which are distinct. ``kind``
    is public:

    - ``many-to-many``: any pairs, none twice;
    - ``one-to-many``: every left row (child) has exactly one right row (parent), a parent any number of children;
    - ``one-to-one``: every row is in at most one link.

    ``links_measured`` is the noisy number of real links in the view, those that bounds hide left out, by which measured
    counts become frequencies; the true one is private. ``same_table`` says that left row i and right row i are the same
    row; then it is not linked to itself unless ``self_loops``. ``left_may_repeat`` says that the left rows stand for
    what the view shows of their table, so that some may be linked more than once, as copies, and others not at all,
    where degrees tell that the view hides links. ``ordered`` names columns whose first so many codes are in order
    (ages, prices, dates), along which links may have linear effects. ``units`` says which rows may meet at all; then
    rows without a partner are not linked. ``presence`` names columns of rows further on that only a share of the links
    lead to, and the way to them; the others are not in counts of such columns, and have codes like those that are.
    ``parts`` is how many problems like this one share the right rows, of a database that is linked part by part.
    ``expected`` are log-odds by sets of columns that are known before links are counted, as those of any two rows of
    one unit are; counts are asked how links differ from that.
    """

    left: Mapping[str, IntArray]
    right: Mapping[str, IntArray]
    shape: Mapping[str, int]
    links: int
    links_measured: float
    kind: Kind = "many-to-many"
    same_table: bool = False
    self_loops: bool = False
    left_may_repeat: bool = False
    ordered: Mapping[str, int] = field(default_factory=dict)
    units: UnitGroups | None = None
    presence: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    parts: int = 1
    expected: Mapping[Workload, FloatArray] = field(default_factory=dict)
    left_rows: int = field(init=False)
    right_rows: int = field(init=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"no kind of relation is called {self.kind!r}; {nearest(self.kind, KINDS)}")
        object.__setattr__(self, "left_rows", _checked_rows(self.left, self.shape, "left"))
        object.__setattr__(self, "right_rows", _checked_rows(self.right, self.shape, "right"))
        if both := sorted(set(self.left) & set(self.right)):
            raise UsageError(f"column {both[0]!r} is on both sides; give the two sides distinct names")
        if self.same_table and self.left_rows != self.right_rows:
            raise UsageError(f"one table cannot have {self.left_rows} rows on the left, {self.right_rows} on the right")
        if not (math.isfinite(self.links_measured) and self.links_measured > 0):
            raise UsageError(f"links_measured = {self.links_measured}: the noisy number of links must be positive")
        self._check_links()

    def _check_links(self) -> None:
        n1, n2, barred = self.left_rows, self.right_rows, self.bars_self
        if self.links < 0:
            raise UsageError(f"links = {self.links}: a number of links is not negative")
        if self.kind == "many-to-many" and self.links > n1 * n2 - (n1 if barred else 0):
            raise UsageError(f"links = {self.links} do not fit on {n1} × {n2} rows without repeating a pair")
        if self.kind == "one-to-many" and self.links != n1:
            raise UsageError(f"links = {self.links}: one-to-many gives each of the {n1} left rows exactly one")
        if self.kind == "one-to-many" and n1 and n2 < (2 if barred else 1):
            raise UsageError(f"{n1} left rows need a parent and there are {n2} right rows to choose from")
        if self.kind == "one-to-one" and self.links > min(n1, n2):
            raise UsageError(f"links = {self.links} exceed the smaller side of a one-to-one relation, {min(n1, n2)}")
        if self.kind == "one-to-one" and barred and n1 == 1 and self.links:
            raise UsageError("the only row cannot be linked to itself; declare self_loops to allow it")

    @property
    def selective(self) -> float:
        """How many right rows there are for each link."""
        return self.right_rows / (self.links * self.parts)

    @property
    def bars_self(self) -> bool:
        """Whether left row i must not be linked to right row i."""
        return self.same_table and not self.self_loops


def _checked_rows(codes: Mapping[str, IntArray], shape: Mapping[str, int], side: str) -> int:
    if not codes:
        raise UsageError(f"the {side} side has no columns; rows without columns cannot be told apart")
    lengths = {len(x) for x in codes.values()}
    if len(lengths) > 1:
        raise UsageError(f"columns of the {side} side differ in length")
    for column, values in codes.items():
        if column not in shape:
            raise UsageError(f"{side} column {column!r} is not in the window; {nearest(column, shape)}")
        if len(values) and (values.min() < 0 or values.max() >= shape[column]):
            raise UsageError(f"{side} column {column!r} holds codes outside 0 … {shape[column] - 1}")
    return lengths.pop()


@dataclass(frozen=True)
class LinkResult:
    """Links of synthetic rows (left position, right position) and the noisy counts they were made from.

    ``fit`` is what was fitted to these, where it holds for any rows (:class:`Refittable`), else None.
    """

    pairs: IntArray
    measured: tuple[Noisy, ...] = ()
    rho: float = 0.0
    fit: Any = None


@runtime_checkable
class LinkModel(Protocol):
    """A way to spend rho on one relation."""

    def learn(
        self,
        window: Window,
        problem: LinkProblem,
        *,
        rho: float,
        rng: np.random.Generator,
        progress: Callable[[str, float], None],
        degrees: Degrees = UNKNOWN,
    ) -> LinkResult:
        """Spend exactly ``rho`` through ``window`` and link the rows of ``problem``.

        ``degrees`` says what is known of the rows' degrees; a method that does not use them ignores it.
        """
        ...

    def wire(
        self,
        problem: LinkProblem,
        measured: Sequence[Noisy],
        *,
        rng: np.random.Generator,
        degrees: Degrees = UNKNOWN,
    ) -> IntArray:
        """Link the rows of ``problem`` from what was measured before: post-processing, for nothing."""
        ...


@runtime_checkable
class Refittable(Protocol):
    """A link model whose fit to what was measured holds for any rows, so that many problems can share one."""

    def fit(
        self,
        problem: LinkProblem,
        measured: Sequence[Noisy],
        *,
        rng: np.random.Generator,
        degrees: Degrees = UNKNOWN,
    ) -> Any:
        """Fit what was measured."""
        ...

    def draw(self, fit: Any, problem: LinkProblem, *, rng: np.random.Generator, degrees: Degrees = UNKNOWN) -> IntArray:
        """Link the rows of ``problem``. After :meth:`fit` with the same ``rng``, it does what ``wire`` does."""
        ...

    def state(self, fit: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a fit as plain values and arrays, for a file."""
        ...

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
        """Make a fit again from its :meth:`state`."""
        ...


@dataclass(frozen=True)
class RandomWiring:
    """Links that know nothing about the data: the mark that learning has to beat. Spends nothing."""

    def learn(
        self,
        window: Window,  # noqa: ARG002
        problem: LinkProblem,
        *,
        rho: float,  # noqa: ARG002
        rng: np.random.Generator,
        progress: Callable[[str, float], None],  # noqa: ARG002
        degrees: Degrees = UNKNOWN,  # noqa: ARG002
    ) -> LinkResult:
        """Link at random, whatever the budget."""
        return LinkResult(self.wire(problem, (), rng=rng))

    def wire(
        self,
        problem: LinkProblem,
        measured: Sequence[Noisy],  # noqa: ARG002
        *,
        rng: np.random.Generator,
        degrees: Degrees = UNKNOWN,  # noqa: ARG002
    ) -> IntArray:
        """Uniform over all wirings that ``problem`` allows, up to how self-loops are avoided."""
        return random_links(problem, rng)


def random_links(problem: LinkProblem, rng: np.random.Generator) -> IntArray:
    """Links at random that keep the kind of relation exactly.

    >>> codes = {"a": np.zeros(3, int)}, {"b": np.zeros(3, int)}
    >>> some = LinkProblem(*codes, shape={"a": 1, "b": 1}, links=3, links_measured=3, kind="one-to-one")
    >>> sorted(random_links(some, np.random.default_rng(0))[:, 1].tolist())
    [0, 1, 2]
    """
    n1, n2, m = problem.left_rows, problem.right_rows, problem.links
    if problem.kind == "one-to-many":
        left = np.arange(n1)
        right = rng.integers(0, max(n2 - 1, 1) if problem.bars_self else n2, size=n1)
        if problem.bars_self:
            right += right >= left
    elif problem.kind == "one-to-one":
        left, right = rng.permutation(n1)[:m], rng.permutation(n2)[:m]
        if problem.bars_self:
            right = without_self_pairs(left, right, n2, rng)
    elif problem.bars_self:
        flat = rng.choice(n1 * (n2 - 1), size=m, replace=False, shuffle=False)
        left, right = np.divmod(flat, n2 - 1)
        right = right + (right >= left)
    else:
        left, right = np.divmod(rng.choice(n1 * n2, size=m, replace=False, shuffle=False), n2)
    return np.stack([left, right], axis=1)


def without_self_pairs(
    left: IntArray, right: IntArray, right_rows: int, rng: np.random.Generator, *, twin: IntArray | None = None
) -> IntArray:
    """Mend a matching of a table with itself: rows matched to themselves exchange partners, or take a free one.

    ``twin`` says which right position is the same row as a left position; by default the same one. Returns ``right``.
    """
    right = right.copy()
    same = right == (left if twin is None else twin[left])
    own = np.flatnonzero(same)
    if len(own) > 1:
        right[own] = np.roll(right[own], 1)
    elif len(own) == 1:
        free = np.setdiff1d(np.arange(right_rows), right)
        if len(free):
            right[own] = rng.choice(free)
        else:
            # Partners are distinct, so neither row of the swap can meet itself.
            swap = rng.choice(np.flatnonzero(~same), size=1)
            right[own], right[swap] = right[swap], right[own]
    return right


def link_model(method: str, **options: Any) -> LinkModel:
    """Make the link model called ``method``.

    >>> link_model("pdg")
    Traceback (most recent call last):
    dpweave.errors.PlanError: no link method is called 'pdg'; did you mean 'pgd'?
    """
    if method not in METHODS:
        raise PlanError(f"no link method is called {method!r}; {nearest(method, METHODS)}")
    module, _, name = METHODS[method].partition(":")
    try:
        made: LinkModel = getattr(import_module(module), name)(**options)
    except TypeError as error:
        raise UsageError(f"link method {method!r} does not take these options: {error}") from error
    return made

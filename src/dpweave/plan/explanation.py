"""What is said about a plan before a fit, as values. :mod:`dpweave.explain` works them out."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class LinkForecast:
    """How well the links of one relation can be learned: 100 times the mean L1 error over k columns, from 0 to 200."""

    table: str
    key: str
    target: str
    rows: int
    """About how many links are counted."""
    k: int
    at_random: float
    learned: float
    best_k: int
    """The most columns worth measuring together."""
    best_max_degree: int | None
    """Bound of the owning key that should give the smallest error; None where that cannot be told."""


@dataclass(frozen=True)
class Forecast:
    """Resources of a fit and one copy, and errors of links."""

    seconds: float
    """Of one processor core."""
    memory: float
    """Bytes at the peak."""
    guessed: tuple[str, ...]
    """Private tables that do not declare their rows, so that their number was guessed."""
    links: tuple[LinkForecast, ...]


@dataclass(frozen=True)
class Holding:
    """How many rows of ``table`` one unit of the protected table ``unit`` can own."""

    unit: str
    table: str
    rows: int


@dataclass(frozen=True)
class Spending:
    """One task: what it may spend, and the standard deviation of the noise on each of its counts."""

    task: str
    group: str
    table: str
    item: str
    rho: float
    share: float
    """Part of the budget of the protected table that it weighs on most."""
    touches: tuple[str, ...]
    sigma: float | None
    """Standard deviation of each noisy count; for a table, if every column were measured once with an equal part."""


@dataclass(frozen=True)
class TableOutlook:
    """What will be known about one private table."""

    table: str
    role: str
    mechanism: str
    why: str
    modelled: tuple[str, ...]
    degrees: tuple[str, ...]
    """Tables whose rows per row of this one are counted too."""
    made_up: tuple[str, ...]
    """Columns that are filled with fresh keys or placeholders."""
    nulls: tuple[str, ...]
    """Those of them of which it is modelled whether they are null."""
    cells: int | None
    """Cells of all one-way marginals, where every domain is declared."""
    public_rows: int | None = None
    """Number of rows that was declared public: exact and free."""


@dataclass(frozen=True)
class KeyOutlook:
    """One foreign key between private tables, or from a private to a public one."""

    table: str
    key: str
    target: str
    role: str
    max_degree: int | None
    method: str


@dataclass(frozen=True)
class Learned:
    """A domain that is learned, and what that costs."""

    column: str
    kind: str
    """``categories``, ``bins``, or ``degrees``: how many rows one row owns."""
    rho: float
    delta: float
    sigma: float
    threshold: int | None
    """Rows that a category needs (about) to be kept, and a range to be learned well; None for degrees."""
    by_unit: bool = False
    """Whether a category needs so many owners, and not rows: one that has k categories counts 1/√k for each."""


@dataclass(frozen=True)
class ServedWorkload:
    """A declared workload, the task that measures it, and the noise to expect."""

    columns: tuple[str, ...]
    weight: float
    task: str
    cells: int
    """Cells of its counts; guessed for domains that are still to be learned."""
    sigma: float
    """Standard deviation of each count from the part of the task's budget that its weight reserves."""


@dataclass(frozen=True)
class Judged:
    """What a copy is worth for one table or one relation (:mod:`dpweave.measure.expected_error`)."""

    kind: str
    """``table`` or ``relation``."""
    name: str
    word: str
    """``useful``, ``coarse`` or ``noise only``."""
    error: float
    """Part of the rows that noise puts in the wrong place, the mean over columns, or over pairs across a key."""
    rows: float | None = None
    band: float | None = None
    """Number of rows of a table, and two standard deviations of its noise; None where it is public."""
    unlearned: tuple[str, ...] = ()
    """Columns of a table whose domains are not learned, or not well."""


def _about(number: float) -> str:
    """Write a number of rows in at most eight characters.

    >>> _about(12345.4), _about(1234567.0), _about(3.2e12)
    ('12,345', '1.23e+06', '3.2e+12')
    """
    return f"{number:,.0f}" if abs(number) < 1e6 else f"{number:.3g}"


@dataclass(frozen=True)
class Verdict:
    """What a copy is worth: predicted by ``explain``, and said again after the fit."""

    judged: tuple[Judged, ...]
    advice: tuple[str, ...]
    """What to change first, at most three."""

    @property
    def supported(self) -> float:
        """Share of tables and relations that are useful."""
        return sum(j.word == "useful" for j in self.judged) / max(len(self.judged), 1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        return {"supported": self.supported, **asdict(self)}

    def __str__(self) -> str:
        """A table of at most 80 columns, and the advice."""
        lines = [f"  {'':<38} {'verdict':<10} {'error':>6} {'rows ± 2 sigma':>20}"]
        for j in self.judged:
            size = "" if j.rows is None else _about(j.rows) + (f" ± {_about(j.band)}" if j.band else "")
            name = j.name if len(j.name) <= 38 else j.name[:37] + "…"
            lines.append(f"  {name:<38} {j.word:<10} {j.error:>6.2f} {size:>20}".rstrip())
            if j.unlearned:
                text = f"domains not learned, or not well: {', '.join(j.unlearned)}"
                lines.append(textwrap.fill(text, 80, initial_indent="    ", subsequent_indent="    "))
        for i, text in enumerate(self.advice, 1):
            lines.append(textwrap.fill(f"{i}. {text}", 80, initial_indent="  ", subsequent_indent="     "))
        return "\n".join(lines)


@dataclass(frozen=True)
class Explanation:
    """All of it as values; ``str`` gives plain text of at most 80 columns."""

    epsilon: float
    delta: float
    rho: float
    neighbours: str
    statement: str
    protect: tuple[str, ...]
    public: tuple[str, ...]
    holdings: tuple[Holding, ...]
    budget: tuple[Spending, ...]
    tables: tuple[TableOutlook, ...]
    relations: tuple[KeyOutlook, ...]
    learned: tuple[Learned, ...]
    k: int
    """Columns counted together to learn relations."""
    largest_marginal: int | None
    """Cells of the largest marginal over k columns of one table, where every domain is declared."""
    forecast: Forecast
    workloads: tuple[ServedWorkload, ...]
    warnings: tuple[str, ...]
    verdict: Verdict
    """What the copy will be worth, as far as that can be predicted."""
    text: str = field(default="", repr=False, compare=False)
    """The same in words."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        plain = {name: value for name, value in asdict(self).items() if name != "text"}
        return plain | {"verdict": self.verdict.to_dict()}

    def __str__(self) -> str:
        return self.text

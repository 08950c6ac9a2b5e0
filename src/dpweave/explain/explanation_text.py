"""An explanation in words: plain text of at most 80 columns."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

from dpweave import chosen
from dpweave.budget.tasks import COUSINS, ORDER, SIBLINGS
from dpweave.plan.compiled import DEFAULT_METHOD
from dpweave.privacy.certificate import said_of_sizes
from dpweave.schema.domain import parse_newcomer, parse_repetition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dpweave.plan.explanation import Explanation, Spending

WIDTH = 80
DECLARED = "made elsewhere:"


def explanation_text(e: Explanation) -> str:
    """Return every section that has something to say."""
    sections = (
        _promise,
        _holdings,
        _relations,
        _tables,
        _budget,
        _workloads,
        _learned,
        _guesses,
        _links,
        _resources,
        _verdict,
        _warnings,
    )
    return "\n\n".join(text for section in sections if (text := section(e)))


def short(value: float) -> str:
    """Write a figure with about three digits.

    >>> short(1234.5), short(12.345)
    ('1,234', '12.3')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _wrap(text: str, *, first: str = "  ", rest: str = "  ") -> str:
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _promise(e: Explanation) -> str:
    lines = ["The promise", _wrap(e.statement)]
    factor = f"{math.exp(min(e.epsilon, 700)):,.3g}"
    lines.append(
        _wrap(
            f"epsilon {e.epsilon:g}, delta {e.delta:g}: whatever anybody concludes from the release is at most "
            f"{factor} times as likely with that row as without it, but for a chance of {e.delta:g}."
        )
    )
    declared = {t.table: t.public_rows for t in e.tables if t.public_rows is not None}
    lines += [_wrap(f"{said[0].upper()}{said[1:]}.") for said in said_of_sizes(declared, neighbours=e.neighbours)]
    if e.public:
        lines.append(_wrap(f"Public, copied as they are and promised nothing: {', '.join(e.public)}."))
    return "\n".join(lines)


def _holdings(e: Explanation) -> str:
    lines: list[str] = []
    for unit in e.protect:
        if lines:
            lines.append("")
        lines.append(_clip(f"One row of {unit} stands for at most", WIDTH))
        lines += [
            f"  {_clip(h.table, 50):<50} {h.rows:>12,} {'row' if h.rows == 1 else 'rows'}"
            for h in e.holdings
            if h.unit == unit
        ]
    return "\n".join(lines)


def _relations(e: Explanation) -> str:
    if not e.relations:
        return ""
    lines = ["Foreign keys", f"  {'key':<45} {'role':<9} {'at most':>10} {'links':>11}"]
    for r in e.relations:
        bound = "any" if r.max_degree is None else f"{r.max_degree:,}"
        lines.append(f"  {_clip(f'{r.table}.{r.key} → {r.target}', 45):<45} {r.role:<9} {bound:>10} {r.method:>11}")
    return "\n".join(lines)


def _tables(e: Explanation) -> str:
    lines = ["Tables"]
    for t in e.tables:
        lines.append(_wrap(f"{t.table}: {t.role}", first="  ", rest="    "))
        if t.public_rows is not None:
            lines.append(f"    number of rows: {t.public_rows:,}, declared public, so it is exact and free")
        cells = f" ({t.cells:,} cells)" if t.cells else ""
        columns = [*t.modelled, *(f"count of {child}" for child in t.degrees)]
        if columns:
            lines.append(
                _wrap(f"modelled by {t.mechanism}, {t.why}: {', '.join(columns)}{cells}", first="    ", rest="      ")
            )
        if t.made_up:
            lines.append(_wrap(f"made up afresh: {', '.join(t.made_up)}", first="    ", rest="      "))
        if t.nulls:
            lines.append(_wrap(f"of these, with as many nulls: {', '.join(t.nulls)}", first="    ", rest="      "))
    if e.largest_marginal is not None and e.largest_marginal > 1:
        megabytes = e.largest_marginal * 8 / 1e6
        lines.append(
            _wrap(f"The largest marginal that may be asked for has {e.largest_marginal:,} cells ({megabytes:,.1f} MB).")
        )
    return "\n".join(lines)


def _budget(e: Explanation) -> str:
    lines = [
        f"Where the budget goes (rho {e.rho:.4g} for each protected table)",
        f"  {'what':<43} {'rho':>9} {'share':>7} {'noise per count':>16}",
    ]
    for name, rho, share, sigmas in _budget_lines(e):
        noise = _noise_words(name, sigmas)
        lines.append(f"  {_clip(name, 43):<43} {rho:>9.3g} {share:>7.1%} {noise:>16}")
    if any(parse_repetition(s.item) for s in e.budget):
        lines.append(
            _wrap(
                "Repeated pairs: how many rows have the same owner and lead to the same row by that key as another row"
                " does, such as a product that is on an invoice twice."
            )
        )
    if any(s.group == "tables" for s in e.budget):
        lines.append(
            _wrap(
                "Noise is one standard deviation, in rows. For columns it is what each cell gets if every column is "
                "measured once; a mechanism that measures pairs of columns too divides the same budget further."
            )
        )
    return "\n".join(lines)


def _noise_words(name: str, sigmas: Sequence[float]) -> str:
    if not sigmas:
        return "as declared" if name.startswith(DECLARED) else "chosen later"
    low, high = short(min(sigmas)), short(max(sigmas))
    words = f"± {low}" if low == high else f"± {low} to {high}"
    return words if len(words) <= 16 else f"± up to {high}"


def _budget_lines(e: Explanation) -> Iterable[tuple[str, float, float, list[float]]]:
    """One line per task, but one for all domains of a table: name, rho, share, noise scales."""
    domains = [s for s in e.budget if s.group == "domains"]
    for table in dict.fromkeys(s.table for s in domains):
        own = [s for s in domains if s.table == table]
        name = f"{len(own)} learned {'domain' if len(own) == 1 else 'domains'} of {table}"
        yield name, sum(s.rho for s in own), sum(s.share for s in own), [s.sigma for s in own if s.sigma is not None]
    for s in e.budget:
        if s.group != "domains":
            yield task_words(s), s.rho, s.share, [] if s.sigma is None else [s.sigma]


OF_UNITS = {
    SIBLINGS: "rows of {table} with one {key}",
    COUSINS: "rows of {table} of one unit, over each {key}",
    ORDER: "order of rows of {table} with one {key}",
}
"""Questions on rows of one owner as a whole, by how their names end."""


def task_words(s: Spending) -> str:
    """Name a task as a person would: size of visits, links of visits.patient_id."""
    words = {
        "external": DECLARED,
        "sizes": "size of",
        "domains": "learned domain of",
        "tables": "columns of",
        "links": "links of",
    }
    again, led = parse_repetition(s.item), parse_newcomer(s.item)
    key, _, end = s.item.partition(":")
    if f":{end}" in OF_UNITS and s.group == "links":
        return OF_UNITS[f":{end}"].format(table=s.table, key=key)
    name = f"{words[s.group]} {s.table}" + (f".{s.item}" if s.item else "")
    if led:
        return f"popularity of where {s.table}.{led} leads"
    return f"repeated pairs of {s.table}.{again}" if again else name


def _workloads(e: Explanation) -> str:
    if not e.workloads:
        return ""
    lines = ["Declared workloads, and who serves them"]
    for w in e.workloads:
        group, _, where = w.task.partition(":")
        by = f"the columns of {where}" if group == "tables" else f"the links of {where}"
        text = f"{' × '.join(w.columns)}: by {by}, about {w.cells:,} cells with noise of ± {short(w.sigma)} each"
        lines.append(_wrap(text, first="  ", rest="    "))
    return "\n".join(lines)


def _learned(e: Explanation) -> str:
    if not e.learned:
        return ""
    lines = ["Domains that are learned, and their price"]
    alike: dict[tuple[str, int | None, str, bool], list[str]] = {}
    for item in e.learned:
        alike.setdefault((item.kind, item.threshold, short(item.sigma), item.by_unit), []).append(item.column)
    for (kind, threshold, sigma, by_unit), columns in alike.items():
        whose = "owners (more where one owner has several)" if by_unit else "rows"
        price = {
            "categories": f"a category needs about {threshold or 0:,} {whose} to be kept, rarer ones become 'other'",
            "bins": (
                f"bins from quantiles with noise of ± {sigma} rows; a range needs about {threshold or 0:,} rows to be"
                " learned well"
            ),
            "degrees": f"how many there are, from counts with noise of ± {sigma} rows",
        }[kind]
        lines.append(_wrap(f"{', '.join(columns)}: {price}", first="  ", rest="    "))
    return "\n".join(lines)


def _guesses(e: Explanation) -> str:
    """What stands above everything that is predicted from rows."""
    if not e.forecast.guessed:
        return ""
    return "Rows that are guessed\n" + _wrap(
        f"What follows may be far off: {', '.join(e.forecast.guessed)}"
        f" {'declares' if len(e.forecast.guessed) == 1 else 'declare'} no rows. A protected table is taken to have"
        f" {chosen.UNDECLARED_ROWS:,}, and owners to use half of their bounds. Write rows = N under [tables.NAME], if"
        " about how many is no secret."
    )


def _links(e: Explanation) -> str:
    if not e.forecast.links:
        return ""
    lines = [
        "How well links can be learned (rough; 0 is perfect, 200 the worst)",
        f"  {'key':<33} {'at random':>9} {'learned':>8} {'best max_degree':>16} {'best k':>7}",
    ]
    for f in e.forecast.links:
        best = "–" if f.best_max_degree is None else f"{f.best_max_degree:,}"
        name = _clip(f"{f.table}.{f.key} → {f.target}", 33)
        lines.append(f"  {name:<33} {f.at_random:>9.3g} {f.learned:>8.3g} {best:>16} {f.best_k:>7}")
    most = max(f.best_k for f in e.forecast.links)
    advice = f" Sets of more than {most} are not worth their noise: k = {most} would do." if most < e.k else ""
    lines.append(_wrap(f"100 times the mean L1 error over sets of {e.k} columns from both sides of a key.{advice}"))
    if any(f.best_max_degree is None for f in e.forecast.links):
        lines.append(
            _wrap(
                "– stands where no bound is recommended: the table declares no rows, nobody owns it, or its links are"
                " counted in a way that a higher bound costs next to nothing."
            )
        )
    public = {(r.table, r.key) for r in e.relations if r.target in e.public and r.method == DEFAULT_METHOD}
    led = dict.fromkeys(f.target for f in e.forecast.links if (f.table, f.key) in public)
    if led and e.neighbours == "entity":
        lines.append(
            _wrap(
                f"How often each row of {', '.join(led)} is led to is counted with up to {chosen.LOOK:.0%} of"
                " what its links get, where noise would let it show. Errors there hold for files, data frames, DuckDB"
                " and SQLite; links on a server may come out with more."
            )
        )
    return "\n".join(lines)


def _verdict(e: Explanation) -> str:
    head = "What a copy should be worth, and what to change first"
    legend = _wrap(
        "The error is the part of the rows that noise puts in the wrong place, in the mean over columns, or over pairs"
        f" of columns across a key: up to {chosen.USEFUL:g} is useful, up to {chosen.COARSE:g} coarse, above that"
        " noise only."
    )
    return f"{head}\n{e.verdict}\n{legend}"


def _resources(e: Explanation) -> str:
    f = e.forecast
    guessed = (
        f" That is for {chosen.UNDECLARED_ROWS:,} rows of each protected table that declares none, and grows with them:"
        " ten times the rows take about ten times as long."
    )
    return "Time and memory\n" + _wrap(
        f"A fit and one copy should take about {duration(f.seconds)} of one processor core and {_bytes(f.memory)} of "
        "memory, give or take a factor of four; how fast the database answers comes on top."
        + (guessed if f.guessed else "")
    )


def duration(seconds: float) -> str:
    """Write a time in words.

    >>> duration(3.2), duration(200), duration(9000), duration(1e7)
    ('3 seconds', '3 minutes', '2.5 hours', '116 days')
    """
    if seconds < 90:
        return f"{max(math.ceil(seconds - 0.5), 2)} seconds"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 2 * 86400 else f"{seconds / 86400:,.0f} days"


def _bytes(count: float) -> str:
    return f"{count / 1e6:.0f} MB" if count < 1e9 else f"{count / 1e9:,.1f} GB"


def _warnings(e: Explanation) -> str:
    return "\n".join(["Mind", *(_wrap(w, first="  ! ", rest="    ") for w in e.warnings)]) if e.warnings else ""

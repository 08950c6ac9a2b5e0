"""A plan as TOML that people edit: one line per column, comments where a choice is theirs to make."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dpweave.errors import PlanError
from dpweave.schema.domain import Bins, even_bins, from_axis, to_axis

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.plan.declared import DeclaredPlan
    from dpweave.plan.entries import ColumnPlan

WIDTH = 100


@dataclass(frozen=True)
class Comments:
    """Words to put into the text: before a top-level key, before a table, behind a column or a foreign key."""

    head: tuple[str, ...] = ()
    before: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    columns: Mapping[tuple[str, str], str] = field(default_factory=dict)
    keys: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)


def plan_text(plan: DeclaredPlan, comments: Comments | None = None) -> str:
    """Return TOML that :meth:`Plan.from_toml` reads back to an equal plan."""
    notes = comments or Comments()
    content = plan.to_dict()
    tables = content.pop("tables")
    budget = content.pop("budget")
    lines = _comment(notes.head)
    for name, value in content.items():
        lines += [*_comment(notes.before.get(name, ())), f"{name} = {_value(value)}"]
    lines += [
        "",
        *_comment(notes.before.get("budget", ())),
        "[budget]",
        *(f"{k} = {_value(v)}" for k, v in budget.items()),
    ]
    for name, table in tables.items():
        columns, keys = table.pop("columns"), table.pop("keys", {})
        lines += ["", *_comment(notes.tables.get(name, ())), f"[tables.{_key(name)}]"]
        lines += [f"{k} = {_value(v)}" for k, v in table.items()]
        lines.append(f"[tables.{_key(name)}.columns]")
        for column, entry in columns.items():
            entry["domain"] = _domain(plan.table[name].column[column], entry["domain"])
            said = notes.columns.get((name, column))
            lines.append(f"{_key(column)} = {_value(entry)}" + (f"  # {said}" if said else ""))
        for key, entry in keys.items():
            lines += [*_comment(notes.keys.get((name, key), ())), f"[tables.{_key(name)}.keys.{_key(key)}]"]
            lines += [f"{k} = {_value(v)}" for k, v in entry.items()]
    return "\n".join(lines) + "\n"


def _domain(column: ColumnPlan, value: Any) -> Any:
    """Shorten bins of equal width to ``{low, high, bins}`` where that gives the very same edges."""
    bins, kind = column.domain, column.column.type
    if not isinstance(bins, Bins) or bins.cells < 3:
        return value
    last = to_axis(kind, bins.edges[-1])
    low, high = bins.edges[0], from_axis(kind, last if kind.kind == "float" else last - 1)
    try:
        even = even_bins(kind, low, high, bins.cells, step=bins.step)
    except PlanError:
        return value
    if even != bins:
        return value
    short = {"low": low, "high": high, "bins": bins.cells}
    return short if bins.step is None else short | {"step": bins.step}


def _comment(paragraphs: tuple[str, ...]) -> list[str]:
    """Fold paragraphs into comment lines; one that begins with a space keeps its indentation."""
    lines: list[str] = []
    for text in paragraphs:
        indent = " " * (len(text) - len(text.lstrip()))
        plain = "".join(c if c.isprintable() else " " for c in text)  # TOML allows no others in a comment
        lines += textwrap.wrap(
            plain.strip(), WIDTH, initial_indent=f"# {indent}", subsequent_indent=f"# {indent}", break_on_hyphens=False
        ) or [""]
    return lines


def _key(name: str) -> str:
    from tomlkit.items import SingleKey

    return SingleKey(name).as_string()


def _value(value: Any) -> str:
    """Write any plain value on one line."""
    import tomlkit

    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, Decimal):
        return _value(str(value))
    return str(tomlkit.item(value).as_string())

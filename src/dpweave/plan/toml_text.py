"""A plan as TOML that people edit: one line per column, comments where a choice is theirs to make."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dpweave.schema.domain import Bins, even_range

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
        lines += [*_comment(notes.before.get(name, ())), f"{name} = {value_text(value)}"]
    lines += [
        "",
        *_comment(notes.before.get("budget", ())),
        "[budget]",
        *(f"{k} = {value_text(v)}" for k, v in budget.items()),
    ]
    for name, table in tables.items():
        columns, keys = table.pop("columns"), table.pop("keys", {})
        lines += ["", *_comment(notes.tables.get(name, ())), f"[tables.{_key(name)}]"]
        lines += [f"{k} = {value_text(v)}" for k, v in table.items()]
        lines.append(f"[tables.{_key(name)}.columns]")
        for column, entry in columns.items():
            entry["domain"] = _domain(plan.table[name].column[column], entry["domain"])
            said = notes.columns.get((name, column))
            lines.append(f"{_key(column)} = {value_text(entry)}" + (f"  # {said}" if said else ""))
        for key, entry in keys.items():
            lines += [*_comment(notes.keys.get((name, key), ())), f"[tables.{_key(name)}.keys.{_key(key)}]"]
            lines += [f"{k} = {value_text(v)}" for k, v in entry.items()]
    return "\n".join(lines) + "\n"


def as_written(plan: DeclaredPlan) -> dict[str, Any]:
    """Return the values of a plan as :func:`plan_text` writes them: even bins by their ends and their number."""
    content = plan.to_dict()
    for name, table in content["tables"].items():
        for column, entry in table["columns"].items():
            entry["domain"] = _domain(plan.table[name].column[column], entry["domain"])
    return content


def _domain(column: ColumnPlan, value: Any) -> Any:
    """Shorten bins of equal width to ``{low, high, bins}`` where that gives the very same edges."""
    bins = column.domain
    short = None if not isinstance(bins, Bins) or bins.cells < 3 else even_range(column.column.type, bins)
    return value if short is None else short


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


def value_text(value: Any) -> str:
    """Write any plain value on one line, as a plan does."""
    import tomlkit

    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {value_text(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(value_text(v) for v in value) + "]"
    if isinstance(value, Decimal):
        return value_text(str(value))
    return str(tomlkit.item(value).as_string())

"""One change of a plan, made in its text: what is not changed stays as it is, comments and order too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

from dpweave import chosen
from dpweave.errors import PlanError, UsageError
from dpweave.explain.draft_notes import COSTS
from dpweave.plan.plan import draft_plan
from dpweave.plan.toml_text import value_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.plan.entries import KeyPlan
    from dpweave.plan.plan import Plan

LISTS = ("constraints", "workloads")
"""Lists of tables: an edit may add to their end, and remove by number."""
BY_ROLE = {
    "owning": {"max_degree", "degree_cap", "degree_edges", "acyclic", "min_degree", "order_by"},
    "shared": {"max_degree", "acyclic"},
    "linking": {"max_degree", "acyclic", "within"},
    "attribute": {"max_degree"},
}
"""What a foreign key may say beside its role. The rest goes when the role changes."""
SPECIFIC = {"max_degree", "degree_cap", "degree_edges", "acyclic", "within", "min_degree", "order_by"}


@dataclass(frozen=True)
class Edit:
    """Put ``value`` at ``path``, as a plan writes it; None removes what is there."""

    path: tuple[str | int, ...]
    value: Any

    @classmethod
    def of(cls, data: object, plan: Plan) -> Edit:
        """Read an edit that the page asks for."""
        path = data.get("path") if isinstance(data, dict) else None
        if not isinstance(path, list) or not path or not all(isinstance(p, str | int) for p in path):
            raise UsageError("an edit needs the path of what it changes")
        assert isinstance(data, dict)
        return cls(tuple(path), _typed(tuple(path), data.get("value"), plan))


def apply(document: Any, edits: Sequence[Edit]) -> None:
    """Make the changes in a TOML document of tomlkit."""
    import tomlkit

    for edit in edits:
        *way, last = edit.path
        if edit.path[0] in LISTS and len(edit.path) == 2:
            _edit_list(document, str(edit.path[0]), edit)
            continue
        here = document
        for name in way:
            if isinstance(here, dict) and name not in here:
                here[name] = tomlkit.table()
            here = here[name]
        if edit.value is None:
            if last in here:
                del here[last]
        else:
            here[last] = item(edit.value)
        if last in ("domain", "type"):
            _forget_price(here)


def _forget_price(column: Any) -> None:
    """Take away what a draft said that learning this column costs. What a person wrote beside it stays."""
    trivia = getattr(column, "trivia", None)
    if trivia is not None and trivia.comment.startswith(f"# {COSTS}"):
        trivia.comment = trivia.comment_ws = ""


def item(value: Any) -> Any:
    """Return a value as the text of a plan has it."""
    import tomlkit

    return tomlkit.parse(f"x = {value_text(value)}")["x"]


def _edit_list(document: Any, name: str, edit: Edit) -> None:
    """Add an entry at the end, or take one out by number. Inline lists stay inline."""
    import tomlkit

    at = edit.path[1]
    here = document.get(name)
    if edit.value is None:
        if here is None or not isinstance(at, int) or not 0 <= at < len(here):
            raise UsageError(f"{name} has no entry {at!r}")
        del here[at]
        if not here:
            del document[name]
        return
    if here is None:
        here = document.setdefault(name, tomlkit.aot())
        here = document[name]
    if isinstance(here, tomlkit.items.AoT):
        table = tomlkit.table()
        for key, part in edit.value.items():
            table[key] = item(part)
        here.append(table)
    else:
        here.append(item(edit.value))


def _typed(path: tuple[str | int, ...], value: Any, plan: Plan) -> Any:
    """Give dates and times, which JSON writes as text, the type that their column has."""
    match path:
        case ("tables", str(table), "columns", str(column), "domain"):
            kind = plan.table[table].column[column].column.type.kind if table in plan.table else ""
            return _typed_values(value, kind)
        case ("constraints", _) if isinstance(value, dict) and value.get("table") in plan.table:
            return value
    return value


def _typed_values(value: Any, kind: str) -> Any:
    if isinstance(value, dict):
        return {k: _typed_values(v, kind) for k, v in value.items()}
    if isinstance(value, list):
        return [_typed_values(v, kind) for v in value]
    read = {"date": date.fromisoformat, "timestamp": datetime.fromisoformat, "time": time.fromisoformat}.get(kind)
    if read is None or not isinstance(value, str) or value in ("learn", "opaque", "key"):
        return value
    try:
        return read(value)
    except ValueError:
        raise PlanError(f"{value!r} is no {kind}; write it as in 2025-12-31 or 2025-12-31T08:30:00") from None


# -- who is protected --------------------------------------------------------------------------------------------------


def require_role(plan: Plan, table: str, role: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return who is protected and who is public once ``table`` has this role."""
    if table not in plan.table:
        raise UsageError(f"the plan has no table {table!r}")
    if role not in ("protected", "public", "owned"):
        raise UsageError(f"a table is protected, public or owned, not {role!r}")
    protect = tuple(t for t in plan.protect if t != table)
    public = tuple(t for t in plan.public if t != table)
    if role == "protected":
        protect = tuple(t for t in plan.database.names if t in (*protect, table))
    if role == "public":
        public = tuple(t for t in plan.database.names if t in (*public, table))
    return protect, public


def role_edits(plan: Plan, protect: tuple[str, ...], public: tuple[str, ...]) -> list[Edit]:
    """Return the changes that give tables these roles: keys play the part that a draft gives them, where a draft for
    the old roles and one for the new differ, or where the old part cannot stay. Keys that a person set stay set.
    """
    new = _drafted(plan, protect, public)
    try:
        old: Mapping[tuple[str, str], KeyPlan] = _drafted(plan, plan.protect, plan.public)
    except PlanError:  # what the person has made of it could not be drafted
        old = {}
    found = [Edit(("protect",), list(protect)), Edit(("public",), list(public))]
    for table in plan.tables:
        for key in table.keys:
            where = table.name, key.key.name
            proposed = new[where]
            free = table.name in public or (key.key.target in public) == (key.role == "attribute")
            stays = where in old and old[where].role == proposed.role and free
            owns_protected = key.role == "owning" and table.name in protect
            if stays and not owns_protected:
                continue
            found += key_edits(replace(proposed, max_degree=key.max_degree or proposed.max_degree), key, table.name)
    return found


def _drafted(plan: Plan, protect: tuple[str, ...], public: tuple[str, ...]) -> dict[tuple[str, str], KeyPlan]:
    drafted = draft_plan(
        plan.database, protect=protect, public=public, neighbours=plan.neighbours, max_degree=chosen.DEFAULT_DEGREE
    )
    return {(t.name, k.key.name): k for t in drafted.tables for k in t.keys}


def key_edits(proposed: KeyPlan, key: KeyPlan, table: str) -> list[Edit]:
    """Return the changes that give a foreign key another role, and drop what means nothing beside it."""
    way = ("tables", table, "keys", key.key.name)
    found = [Edit((*way, "role"), proposed.role)] if proposed.role != key.role else []
    if proposed.role == "attribute":
        found += [Edit((*way, name), None) for name in sorted(SPECIFIC)]
        return found
    if proposed.max_degree != key.max_degree:
        found.append(Edit((*way, "max_degree"), proposed.max_degree))
    if proposed.role != key.role:
        found += [Edit((*way, name), None) for name in sorted(SPECIFIC - BY_ROLE[proposed.role])]
    return found

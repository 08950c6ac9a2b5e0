"""What a draft tells the person who will edit it: who might be protected, what is not modelled, what is learned."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpweave import chosen
from dpweave.budget.allocation import allocate
from dpweave.explain.explanation_text import short
from dpweave.explain.prices import learnings, spendings
from dpweave.plan.drafting import (
    looks_like_a_key,
    owned_by,
    propose_protect,
    proposed_placeholder,
    proposed_type,
    sounds_like_people,
)
from dpweave.plan.toml_text import Comments, plan_text
from dpweave.schema.domain import Opaque

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal

    from dpweave.plan.entries import ColumnPlan, KeyPlan
    from dpweave.plan.explanation import Learned, Spending
    from dpweave.plan.plan import Plan
    from dpweave.schema.database import Column, Database

CANDIDATES = 6
HEAD = (
    "A plan: everything public about one release. Edit it, read what it means, then spend:",
    "  dpweave explain plan.toml --epsilon 1",
    "  dpweave fit SOURCE --plan plan.toml --epsilon 1 -o model.dpw",
    (
        "Nothing here was read off a row, and nothing here should be: a category or a largest value that you know only"
        " from the data is itself private. Declare what you know without looking, and let the rest be learned."
    ),
    "Domains of columns:",
    '  domain = "learn": measured with noise, which costs budget',
    (
        "  domain = { learn = true, low = 0, high = 99, bins = 20 }: learned too, but inside what you know; one end is"
        " enough"
    ),
    '  domain = ["a", "b"] or { values = ["a", "b"], other = true }: these values, and perhaps others',
    "  domain = { low = 0, high = 99, bins = 20 }: a range; what lies outside counts as its first or last bin",
    "  domain = { edges = [0, 18, 65, 120] }: bins of your own, each from one edge to below the next",
    "  step = 0.01 beside a range or edges: floats come out as multiples of it",
    '  domain = "opaque": not modelled, filled with placeholders; domain = "key": dictated by keys',
    (
        '  placeholder = "email" beside "opaque": values that people recognise, never from a row (needs the extra fake:'
        ' pip install "dpweave[fake]"); locale = "de_DE" beside it, or above, says whose'
    ),
)
BEFORE = {
    "neighbours": (
        "",
        "entity: nobody can tell whether a unit (a protected row with all it owns) is in the database at all.",
        "record: nobody can tell what a protected row says and is linked to; that it exists is not hidden.",
    ),
    "on_excess": (
        "Under record, what to do when a max_degree does not hold: refuse or truncate. entity always truncates.",
    ),
    "views": (
        (
            "Views of the source that are taken for tables. The promise holds if each row of a view comes from rows of"
            " one unit alone: a view that adds up or ranks the rows of several units breaks it. Say its keys below."
        ),
    ),
    "k": ("Relations are learned from marginals of so many columns, counted over both sides.",),
    "budget": (
        (
            "Shares of the budget, relative to each other: numbers of rows, columns of tables, links between them."
            " Learned domains get a tenth, and of the last two what they need to be useful; domains = 0.1 holds them to"
            " it."
            " delta_domains is the part of delta for learned categories."
        ),
    ),
}


def draft_text(
    source: object,
    *,
    protect: tuple[str, ...] = (),
    public: tuple[str, ...] = (),
    neighbours: Literal["entity", "record"] = "entity",
    max_degree: int = 10,
    schema: str | None = None,
    views: tuple[str, ...] = (),
) -> tuple[Plan, str]:
    """Draft a plan and write it with comments; where ``protect`` leaves tables open,
    more are proposed. Reads no row.
    """
    from dpweave.engines.opening import open_source
    from dpweave.plan.plan import draft_plan
    from dpweave.schema.proposed_keys import propose_keys, propose_keys_of

    with open_source(source, schema=schema, views=views) as opened:
        opened.require_tables(views)
        declared = opened.database
        database = propose_keys_of(declared, views) if opened.declares_keys else propose_keys(declared)
        complete = propose_protect(database, protect=protect, public=public)
        plan = draft_plan(database, protect=complete, public=public, neighbours=neighbours, max_degree=max_degree)
        plan = replace(plan, views=views)
        left_out, without_types = opened.not_copied, opened.untyped
    added = complete[len(protect) :] if protect else ()
    said = comments(plan, added=added, left_out=left_out, source=database, untyped=without_types)
    return plan, plan_text(plan, said)


def not_copied(source: object, *, schema: str | None = None, views: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return CHECK constraints and views of a source, in words. Reads no row."""
    from dpweave.engines.opening import open_source

    with open_source(source, schema=schema, views=views) as opened:
        return opened.not_copied


def untyped(source: object, *, schema: str | None = None) -> frozenset[str]:
    """Return the tables of a source whose columns have no type there. Reads no row."""
    from dpweave.engines.opening import open_source

    with open_source(source, schema=schema) as opened:
        return opened.untyped


def said_of_left_out(left_out: tuple[str, ...]) -> str:
    """Say which CHECK constraints and views a copy will lack."""
    return (
        f"Not copied, CHECK constraints and views of the source: {'; '.join(left_out)}. A domain keeps values in a list"
        " or a range; [[constraints]] keeps columns in order."
    )


def comments(
    plan: Plan,
    *,
    added: tuple[str, ...] = (),
    left_out: tuple[str, ...] = (),
    source: Database | None = None,
    untyped: frozenset[str] = frozenset(),
) -> Comments:
    """Return the words for a drafted plan.

    ``added`` are tables that became protected because nothing owns them, ``left_out``
    is what no copy will have, ``source`` the schema that the plan was drafted from, and
    ``untyped`` the tables whose columns have no type there.
    """
    private = [plan.table[n] for n in plan.promise.private]
    allocation = allocate(plan, epsilon=chosen.EPSILON, delta=chosen.DELTA)
    learned = learnings(plan.compile(), allocation)
    prices = {item.column: item for item in learned}
    return Comments(
        head=(*HEAD, said_of_left_out(left_out)) if left_out else HEAD,
        before=BEFORE
        | {
            "protect": _who(plan, added),
            "public": _public(plan),
            "budget": (*BEFORE["budget"], *_price(plan, learned, spendings(plan, allocation))),
        },
        tables={
            t.name: (*_table(plan, t.name), *((said_of_untyped(plan, t.name),) if t.name in untyped else ()))
            for t in plan.tables
        },
        columns={
            (t.name, c.name): said
            for t in private
            for c in t.columns
            if (
                said := _column(
                    c,
                    prices.get(f"{t.name}.{c.name}"),
                    was=None if source is None else source[t.name].column[c.name],
                    people=sounds_like_people(t.table),
                    untyped=t.name in untyped,
                )
            )
        },
        keys={(t.name, k.key.name): said_of_key(plan, t.name, k) for t in private for k in t.keys},
    )


def _who(plan: Plan, added: tuple[str, ...]) -> tuple[str, ...]:
    database = plan.database
    lines = [
        "",
        (
            "Who is protected. One row of these tables, with every row it owns, is the unit that stays hidden."
            " Protecting a table further down hides less: one order, not the customer behind it. The choices, and what"
            " a unit would be:"
        ),
    ]
    ranked = sorted(
        (t.name for t in database if t.primary_key and t.name not in plan.public),
        key=lambda n: (n not in plan.protect, -len(owned_by(database, n, public=plan.public)), database.names.index(n)),
    )
    for name in ranked[:CANDIDATES]:
        owned = owned_by(database, name, public=plan.public)
        what = f"a row with its rows of {', '.join(owned)}" if owned else "a single row, and nothing else"
        lines.append(f"  {name}: {what}")
    if len(plan.protect) > 1:
        lines.append(
            "If one person can have a row in several of the protected tables, the guarantees add up for that person: "
            f"epsilon counts up to {len(plan.protect)} times."
        )
    if added:
        lines.append(
            f"Nothing leads from {', '.join(added)} to the tables you named, so they are protected too. Reference data"
            " that anybody may see belongs under public: draft again with --public."
        )
    return tuple(lines)


def could_be_public(plan: Plan) -> list[str]:
    """Return protected tables that look like reference data: they lead to no private rows and sound like no people."""
    return [
        t.name
        for t in plan.database
        if t.name in plan.protect and all(k.target in plan.public for k in t.foreign_keys) and not sounds_like_people(t)
    ]


def _public(plan: Plan) -> tuple[str, ...]:
    open_to_it = could_be_public(plan)
    text = "Public tables are copied as they are, real keys and values included, and are promised nothing."
    if open_to_it:
        text += f" Could be public, if anybody may see them: {', '.join(open_to_it)}."
    return (text,)


def _table(plan: Plan, name: str) -> tuple[str, ...]:
    if name in plan.public:
        return (f"{name}: public, copied as it is.", *_behind_junctions(plan, name))
    root, chain = plan.promise.root(name), plan.promise.chain(name)
    if not chain:
        return (
            (
                f"{name}: protected. Give rows = N (about how many, if that is no secret) to have errors predicted;"
                " with rows_public = true it is the exact number, and nothing is spent on it."
            ),
        )
    rows = plan.promise.owned_rows(root, name)
    return (f"{name}: owned. One row of {root} counts with at most {rows:,} rows here.",)


def _behind_junctions(plan: Plan, name: str) -> Iterable[str]:
    """Say which columns a public table could gather, where private rows lead to it and public ones do too."""
    led_to = {k.key.target for t in plan.promise.private for k in plan.table[t].keys}
    junctions = [t for t in plan.public if len(plan.table[t].keys) > 1 and t != name] if name in led_to else []
    for key, table in ((k.key, t) for t in junctions for k in plan.table[t].keys):
        others = sorted({k.key.target for k in plan.table[table].keys} - {name})
        if key.target == name and others:
            yield (
                f"Rows of {table} lead from here to {' and '.join(others)}. For links to go by that, add columns with"
                f' gathered = {{ table = "{table}", key = "{key.name}", column = ..., value = ... }}.'
            )


def said_of_untyped(plan: Plan, name: str) -> str:
    """Say that a table's file has no types, and what to write instead of text."""
    of_keys = " (of a key, at both of its ends)" if plan.database[name].key_columns else ""
    return (
        f"The file of {name} says no types, so all of its columns are text. Give those that you know{of_keys}: int64,"
        " float64, decimal(12,2), boolean, date, time or timestamp, and a range as the domain. A value that is not of"
        " its type counts as null. Codes with leading zeros are text."
    )


def _column(column: ColumnPlan, price: Learned | None, *, was: Column | None, people: bool, untyped: bool) -> str:
    if isinstance(column.domain, Opaque):
        if looks_like_a_key(column.column):
            return "looks like a key that is not declared; if it leads to a table, write it under keys"
        kind = proposed_placeholder(column.column, people=people)
        return "looks like an identifier or prose" + (f'; placeholder = "{kind}" would look real' if kind else "")
    if price is None:
        return ""
    if price.kind == "categories":
        whose = "owners" if price.by_unit else "rows"
        declare = proposed_type(column.column) if untyped else None
        return f"{COSTS} and delta; a value needs about {price.threshold:,} {whose}" + (
            f'; by its name perhaps type = "{declare}"' if declare else ""
        )
    declare = "" if was is None or was.type == column.column.type else PLACES
    return f"{COSTS}; bins are found with noise of {short(price.sigma)} rows{declare}"


COSTS = "costs epsilon"
"""How a draft begins what it says of a learned domain: no longer true once another one is declared."""

PLACES = "; declared without places, so read as a float: decimal(12,2) would keep two"


def _price(plan: Plan, learned: Sequence[Learned], budget: Sequence[Spending]) -> tuple[str, ...]:
    """What all learned domains cost together, and that declaring them is free."""
    count = sum(item.kind != "degrees" for item in learned)
    if not count:
        return ()
    part = max(sum(s.share for s in budget if s.group == "domains" and u in s.touches) for u in plan.protect)
    return (
        (
            f"{count} domains are to be learned here, which takes {part:.0%} of the budget; declared ones are free."
            f" Rows and noise beside the columns are for epsilon {chosen.EPSILON:g}: half of that about doubles them."
        ),
    )


def said_of_key(plan: Plan, table: str, key: KeyPlan) -> tuple[str, ...]:
    """Say what a foreign key's role hides, and what its bound costs."""
    target = key.key.target
    role = "linking" if plan.neighbours == "record" and key.role == "shared" else key.role
    match role:
        case "owning":
            bare = plan.database[table].is_nullable(key.key)
            return (
                (
                    f"Rows of {table} belong to the row of {target} they lead to; per row of {target} at most"
                    f" max_degree are counted and the others left out. {_price_of_bound(plan, table, key)} How many"
                    " there are is measured without it; degree_cap = N declares the most that can occur, which saves"
                    " noise."
                ),
                *((f"This key may be null. {said_of_bare_rows(table, key)}",) if bare else ()),
            )
        case "shared":
            return (said_of_second_owner(plan, table, key),)
        case "linking":
            said = (
                f"A link between units: at most max_degree rows of {table} keep theirs per row of {target}. When that"
                " row goes, they stay with all they say"
            )
            said += '; role = "shared" would hide that too.' if plan.neighbours == "entity" else "."
            root, ends = plan.promise.root, {table, target}
            if plan.neighbours == "entity" and not ends & {*plan.protect} and root(table) == root(target):
                said += (
                    f" If it never leads to a row of another {root(table)}, say within = true: then it needs much less"
                    " noise."
                )
            return (said,)
    return (f"{target} is public, so this is an ordinary attribute.",)


def said_of_bare_rows(table: str, key: KeyPlan) -> str:
    """Say what it saves to declare that every row has an owner, and what it says."""
    columns = " and ".join(key.key.columns)
    return (
        f"If every row of {table} has its row of {key.key.target}, say nullable = false of {columns}: then no budget"
        f" goes into which rows have one, no row of a copy is without, and what rows of {table} say is usually counted"
        " with less noise. It says in public that no row lacks one. If one does all the same, what it says is left out"
        " of most counts."
    )


def _price_of_bound(plan: Plan, table: str, key: KeyPlan) -> str:
    if plan.promise.graph.kind(table, key.key) == "one-to-one":
        return "The key is unique, so 1 hides nothing."
    if plan.compile().table[table].has_cheap_bound:
        return (
            "In files, data frames, DuckDB and SQLite a high bound costs little: take one that hides next to nothing."
            " On a server noise grows in proportion to it."
        )
    return "Noise grows in proportion to it: take the lowest that most rows keep."


def said_of_second_owner(plan: Plan, table: str, key: KeyPlan) -> str:
    """Say what a shared key hides, and what the other roles would."""
    target, owning = key.key.target, plan.promise.owning.get(table)
    owner = plan.database[table].key[owning].target if owning else "nobody else"
    return (
        f"Rows of {table} belong to a row of {owner}, which owns them, and to a row of {target}, which shares them."
        f" Shared: a row of {target} is hidden with all that is counted of these rows; rows beyond max_degree per row"
        f" of {target} are not counted at all, so set it to about the most that one has. Linking would hide only which"
        f" row of {target} they lead to: what they say stays. Owning would make {target} the owner, and {owner} the one"
        " that shares or links."
    )

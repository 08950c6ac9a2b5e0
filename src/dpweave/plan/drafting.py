"""A first plan from a catalogue alone: who owns what, which columns are keys, identifiers, free text or data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from dpweave.schema.database import Column, Database, ForeignKey, Table


IDENTIFIERS = re.compile(
    r"(^|_)(id|uuid|guid|ssn|nin|iban|email|e_mail|mail|phone|telephone|mobile|fax|name|firstname|lastname|surname|username|"
    r"login|password|passwd|hash|token|secret|address|address2|street|postal_?code|post_?code|zip|zip_?code|company|url|uri|link|ip|"
    r"picture|photo|image|file)(_|$)",
    re.IGNORECASE,
)
FREE_TEXT = re.compile(
    r"(^|_)(description|comment|comments|notes?|text|body|message|title|bio|remarks?|content)(_|$)", re.IGNORECASE
)

RECOGNISED = (
    ("email", r"e_?mail"),
    ("first_name", r"first_?name|given_?name|forename"),
    ("last_name", r"last_?name|family_?name|surname"),
    ("username", r"user_?name|login"),
    ("phone", r"phone|telephone|mobile|fax"),
    ("iban", r"iban"),
    ("postcode", r"postal_?code|post_?code|zip|zip_?code"),
    ("street", r"street|address"),
    ("company", r"company"),
    ("name", r"(full|contact|display|person|customer|patient|employee|student)_?name"),
    ("sentence", r"description|comments?|notes?|message|remarks?"),
)
"""Kinds of made-up values, and the names of columns that ask for them. The first that fits is proposed."""

TYPES = (
    ("timestamp", r"timestamp|date_?time|at|created|updated|modified"),
    ("date", r"date|day|dob|birthday|born"),
    ("time", r"time"),
    ("boolean", r"is|has|was|can|flag|active|enabled|deleted"),
    (
        "decimal(12,2)",
        r"price|amount|costs?|salary|income|fees?|balance|paid|payment|revenue|sales|tax|discount|total|budget",
    ),
    (
        "int64",
        r"n|num|number|count|quantity|qty|age|year|month|week|hours?|minutes?|seconds?|days|nights|size|rank|floor|level",
    ),
    (
        "float64",
        r"lat|latitude|lon|lng|longitude|weight|height|length|width|depth|rate|ratio|share|percent|score|temperature",
    ),
)
"""Types, and the words in a column's name that speak for them. The first that fits is
proposed, in a comment; nothing is declared by it.
"""

KEYS = re.compile(r"(^|_)(id|uuid|guid)$", re.IGNORECASE)


PEOPLE = re.compile(
    r"(^|_)(users?|customers?|clients?|persons?|people|patients?|employees?|staff|members?|students?|pupils?|subscribers?|"
    r"citizens?|residents?|passengers?|drivers?|guests?|donors?|voters?|accounts?|contacts?|individuals?|workers?)$",
    re.IGNORECASE,
)


STAFF = re.compile(
    r"(^|_)(employees?|staff|workers?|drivers?|agents?|clerks?|sellers?|vendors?|suppliers?|doctors?|physicians?|nurses?|"
    r"teachers?|instructors?|managers?|operators?|technicians?|couriers?|reps?|representatives?)$",
    re.IGNORECASE,
)
"""Names of those who serve others. Of two possible owners of a row the one who is
served comes first: they have fewer rows each.
"""


def looks_opaque(column: Column) -> bool:
    """Whether a text column's name says that its values single people out or are prose."""
    words = _words(column.name)
    return column.type.kind == "text" and bool(IDENTIFIERS.search(words) or FREE_TEXT.search(words))


def proposed_placeholder(column: Column, *, people: bool = False) -> str | None:
    """Return the kind of made-up values that a column's name asks for; ``people`` says that rows are people.

    >>> from dpweave.schema.database import Column, Type
    >>> [proposed_placeholder(Column(n, Type("text")), people=True) for n in ("homePhone", "name", "token")]
    ['phone', 'name', None]
    """
    words = _words(column.name)
    if column.type.kind != "text":
        return None
    found = (kind for kind, pattern in RECOGNISED if re.search(rf"(^|_)({pattern})(_|$|\d)", words, re.IGNORECASE))
    return next(found, "name" if people and words.lower() == "name" else None)


def proposed_type(column: Column) -> str | None:
    """Return the type that a column's name speaks for, where nothing else says one.

    >>> from dpweave.schema.database import Column, Type
    >>> [proposed_type(Column(n, Type("text"))) for n in ("birthDate", "created_at", "unit_price", "nVisits", "city")]
    ['date', 'timestamp', 'decimal(12,2)', 'int64', None]
    """
    words = _words(column.name)
    return next((t for t, pattern in TYPES if re.search(rf"(^|_)({pattern})(_|$)", words, re.IGNORECASE)), None)


def proposed_order(table: Table, key: ForeignKey, *, but: Collection[str] = ()) -> str | None:
    """Return the column by which rows of one owner may come one after the other: the first date or moment, or a number
    that tells them apart. Of whole numbers nobody knows: a drafted plan orders by one only where a key says so.

    >>> from dpweave.schema.database import Column, ForeignKey, Table, Type
    >>> key, kinds = ForeignKey(("who",), "people", ("id",)), {"who": "integer", "nr": "integer", "came": "date"}
    >>> columns = tuple(Column(name, Type(kind)) for name, kind in kinds.items())
    >>> proposed_order(Table("visits", columns, ("who", "nr"), foreign_keys=(key,)), key)
    'came'
    >>> proposed_order(Table("visits", columns[:2], ("who", "nr"), foreign_keys=(key,)), key)
    'nr'
    """
    dates = [c.name for c in table.columns if c.type.kind in ("date", "timestamp")]
    numbers = [c.name for c in table.columns if c.type.kind == "integer"]
    unique_numbers = [
        n for n in numbers for unique in (table.primary_key, *table.unique) if {*unique} == {n, *key.columns}
    ]
    keys = table.key_columns - set(unique_numbers)
    return next((n for n in (*dates, *unique_numbers) if n not in {*keys, *but}), None)


def looks_like_a_key(column: Column) -> bool:
    """Whether a column's name says that it leads to a row of some table, even if no foreign key is declared.

    >>> from dpweave.schema.database import Column, Type
    >>> [looks_like_a_key(Column(name, Type("text"))) for name in ("title_id", "textID", "title", "paid")]
    [True, True, False, False]
    """
    return bool(KEYS.search(_words(column.name)))


def propose_owning(database: Database, *, protect: tuple[str, ...], public: tuple[str, ...]) -> dict[str, str]:
    """For every table that is neither protected nor public, the key that leads towards a protected table.

    Short chains first; among equally long ones a mandatory key before a nullable one, then one to those who are served
    before one to those who serve (:data:`STAFF`), then the catalogue's order.
    """
    distance = dict.fromkeys(protect, 0)
    owning: dict[str, str] = {}
    while True:
        found: list[tuple[int, bool, bool, int, str, str]] = []
        for table in database:
            if table.name in distance or table.name in public:
                continue
            found += [
                (
                    distance[key.target] + 1,
                    table.is_nullable(key),
                    serves(database[key.target]),
                    i,
                    table.name,
                    key.name,
                )
                for i, key in enumerate(table.foreign_keys)
                if key.target in distance
            ]
        if not found:
            return owning
        nearest_first = min(found)[0]
        for length, *_, name, key_name in sorted(found):
            if length == nearest_first and name not in distance:
                owning[name] = key_name
                distance[name] = length


def propose_protect(database: Database, *, protect: tuple[str, ...], public: tuple[str, ...]) -> tuple[str, ...]:
    """Complete ``protect`` so that every table is protected, owned or public. Errs on
    the safe side: never adds to public.

    Where nothing is named, tables that sound like people come first. What is then still open is protected itself, the
    table that would own most before the others.
    """
    chosen = protect or tuple(
        t.name for t in database if t.primary_key and t.name not in public and sounds_like_people(t)
    )
    while True:
        owned = propose_owning(database, protect=chosen, public=public) if chosen else {}
        open_ = [t.name for t in database if t.name not in {*chosen, *public, *owned} and t.primary_key]
        if not open_:
            return chosen
        chosen = (*chosen, max(open_, key=lambda n: len(owned_by(database, n, public=public))))


def owned_by(database: Database, name: str, *, public: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tables whose rows a row of ``name`` would own if ``name`` alone were protected."""
    return tuple(propose_owning(database, protect=(name,), public=public))


def sounds_like_people(table: Table) -> bool:
    """Whether a table's name says that its rows are people, or accounts of people."""
    return bool(PEOPLE.search(_words(table.bare_name)))


def serves(table: Table) -> bool:
    """Whether a table's name says that its rows serve others, such as employees."""
    return bool(STAFF.search(_words(table.bare_name)))


def _words(name: str) -> str:
    """Put underscores between the words of a name.

    >>> _words("SalesClerk")
    'Sales_Clerk'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)

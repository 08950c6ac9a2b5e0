"""The list of mutations: one short piece of text of the trusted core each, and what stands there instead.

Every one breaks the promise, or lets a claim be stronger than what was done. Changes that
only cost accuracy, and changes that another check makes harmless, do not belong here.
Keep ``old`` short and stable, and ``tests`` narrow: the whole list is run one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

ARRAYS = "large_arrays.py"
"""The one file outside of the core's folder on whose right work the promise stands as much."""


@dataclass(frozen=True)
class Mutation:
    """A planted bug: in ``file`` of ``src/dpweave/privacy`` (or of the engines' arrays, by which it goes through rows),
    ``old`` becomes ``new``, and one of ``tests`` must fail.
    """

    name: str
    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Where the file is, below ``src``."""
        return Path("dpweave", "engines" if self.file == ARRAYS else "privacy", self.file)

    def mutated(self) -> str:
        """Text of the file with the bug in it; refused unless ``old`` is there once."""
        text = (ROOT / "src" / self.path).read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)


def _in(file: str, *tests: str):
    """Make mutations of one file whose tests, unless others are named, are the same."""

    def make(name: str, old: str, new: str, breaks: str, *others: str) -> Mutation:
        return Mutation(name, file, old, new, breaks, others or tests)

    return make


ACCOUNTING = "tests/privacy/test_accounting.py"
UNIT_SUMS = "tests/privacy/test_unit_sums.py"
BOUNDING = "tests/privacy/test_bounding.py"
COUNTS = "tests/privacy/test_counts.py"
CURATOR = "tests/privacy/test_curator.py"
LEDGER = "tests/privacy/test_ledger.py"
NOISE = "tests/privacy/test_noise.py"
ORDER = "tests/privacy/test_budget_order.py"
PROMISE = "tests/privacy/test_promise.py"
SELECTION = "tests/privacy/test_selection.py"
SENSITIVITY = "tests/privacy/test_sensitivity.py"
WORDS = "tests/privacy/test_categories.py"
LAWS = "tests/statistical/test_noise_distribution.py"

WORDS_ALONE = f"{WORDS}::test_every_number_of_categories_is_covered"
WORDS_COUNTED = f"{WORDS}::test_engines_agree_with_the_oracle"
WORDS_MOVE = f"{WORDS}::test_no_unit_moves_weights_further_than_is_claimed"
WORDS_WHERE = f"{WORDS}::test_units_are_counted_only_where_rows_of_others_stay"
ENTITY = f"{SENSITIVITY}::test_entity_neighbours_never_move_more_than_the_calculus_says"
RECORD = f"{SENSITIVITY}::test_record_neighbours_never_move_more_than_the_calculus_says"
REPEATED = f"{SENSITIVITY}::test_entity_neighbours_never_move_repetition_more_than_the_calculus_says"
ATTAINED = f"{SENSITIVITY}::test_attained_"
FEW_REFUSED = f"{SENSITIVITY}::test_newcomers_are_refused_where_nothing_is_proved"
SHARED = f"{SENSITIVITY}::test_shared_keys_never_move_more_than_the_calculus_says"
ENGINE = f"{COUNTS}::test_duckdb_agrees_with_the_oracle"
BLANKED = f"{ENGINE}[0-0.6]"
TOGETHER = "tests/test_shared.py::test_guarantees_add_up_in_the_best_order_and_are_never_said_too_small"
CERTIFIED = f"{CURATOR}::test_a_certificate_says_what_was_spent_by_whom_and_on_whose_word"
MOMENTS = "tests/privacy/test_unit_moments.py"
SUMMED = f"{UNIT_SUMS}::test_engines_agree_with_the_oracle"
HAIR = f"{UNIT_SUMS}::test_a_hair_is_seen_in_memory_and_in_engines"
CLIPPED = tuple(
    f"{UNIT_SUMS}::test_{name}"
    for name in (
        "units_are_clipped_alike_in_one_block_and_in_many",
        "no_rounding_of_floats_is_trusted",
        "a_hair_is_seen_in_memory_and_in_engines",
        "units_of_any_size_are_no_longer_than_the_clip",
        "a_unit_at_its_clip_keeps_its_length",
        "a_cell_that_no_codec_should_give_stays_with_its_unit",
        "nothing_is_charged_for_what_is_refused",
    )
)

_promise = _in("promise.py", PROMISE)
_calculus = _in("sensitivity.py", ENTITY)
_bounding = _in("bounding.py", BOUNDING)
_counts = _in("counts.py", COUNTS)
_arrays = _in(ARRAYS, "tests/engines/test_large_arrays.py")
_unit_sums = _in("unit_sums.py", *CLIPPED)
_noise = _in("noise.py", NOISE)
_selection = _in("selection.py", SELECTION)
_accounting = _in("accounting.py", ACCOUNTING)
_ledger = _in("ledger.py", LEDGER)
_curator = _in("curator.py", CURATOR)
_release = _in("release.py", CURATOR)

_MOVES = "down, up = removed + staying.lost + staying.moved, gained + staying.moved"
_DEGREE = "return 2 * (self._replaced(child) + relinked)"
_RELINKED = "return staying.gained + staying.lost + staying.moved"

MUTATIONS = (
    # -- promise ---------------------------------------------------------------------------------------------------
    _promise(
        "protected and public",
        "            if name in self.public:",
        "            if False:",
        "a protected table may be copied through as public",
    ),
    _promise(
        "protected and owned",
        "            if name in self.owning:",
        "            if False:",
        "a protected row may belong to another unit, whose bound nobody counts",
    ),
    _promise(
        "protected without a key",
        "if not self.database[name].primary_key:",
        "if False:",
        "units of a table without a primary key cannot be told apart",
    ),
    _promise(
        "public leads to private",
        "if key.target not in self.public:",
        "if False:",
        "a public table publishes keys of private rows",
    ),
    _promise("bound of 0", "or bound < 1:", "or bound < 0:", "a bound of 0 makes every claim about a key 0"),
    _promise(
        "within two units",
        "if others or self.is_owning(name, key_name) or self.root(ends[0]) != self.root(ends[1]):",
        "if others or self.is_owning(name, key_name):",
        "a key between rows of two protected tables may claim to stay within one unit",
        PROMISE,
    ),
    _promise(
        "keys of two types",
        "if not alike or a.zone != b.zone or (a.scale or 0) != (b.scale or 0):",
        "if False:",
        "an engine may take two keys for one, so that joins multiply rows",
    ),
    _promise(
        "names of derived columns",
        'startswith(("#", "?", "=", "@", "<", "!"))',
        'startswith(("#", "?", "=", "<", "!"))',
        "a column of the user's is taken for a derived one, which moves otherwise",
    ),
    _promise(
        "rows of a unit",
        "math.prod(self.bounds[step]",
        "max(self.bounds[step]",
        "bounds along a chain of owners are not multiplied",
        SENSITIVITY,
    ),
    _promise(
        "private is protected",
        "return key.target not in self.public",
        "return key.target in self.protected",
        "links to owned rows count as links to public ones",
        SENSITIVITY,
    ),
    _promise(
        "private rows that are not there",
        "            if self.is_private(table.key[path[i]]):\n                break",
        "            if False:\n                break",
        "rows that lose a link to a private row move to another cell, where the calculus lets them drop out",
        COUNTS,
    ),
    _promise(
        "owning and shared",
        "if {name, target} & self.public or self.is_owning(name, key_name) or (name, key_name) in self.within:",
        "if False:",
        "a key may own and share at once, and the calculus counts one of both",
        "tests/test_shared.py::test_what_cannot_be_shared_is_refused",
    ),
    _promise(
        "owned by shared rows",
        "(table, *(self.database[t].key[k].target for t, k in self.chain(table)))",
        "(table,)",
        "rows of a blank row count",
        BLANKED,
    ),
    # -- sensitivity -----------------------------------------------------------------------------------------------
    _calculus(
        "L1 of one side", "float(self.down + self.up)", "float(max(self.down, self.up))", "L1 forgets rows that come"
    ),
    _calculus("L2 of one side", " + self.up**2", "", "L2 forgets rows that come"),
    _calculus(
        "L2 rounded down",
        "math.nextafter(math.sqrt(square), math.inf)",
        "math.nextafter(math.sqrt(square), 0)",
        "a square root is rounded in our favour",
        f"{SENSITIVITY}::test_l2_is_never_rounded_down",
    ),
    _calculus(
        "one row per target",
        "min(self.each, self.down)",
        "1",
        "newcomers count as one row for each target",
        f"{ATTAINED}newcomers",
    ),
    _calculus(
        "gained further along",
        "factor * self.gained",
        "self.gained",
        "rows that gain a link bring no others along",
        f"{ATTAINED}target_only_with_movement_further_along",
    ),
    _calculus("lost further along", "factor * self.lost", "self.lost", "rows that lose a link take no others along"),
    _calculus("moved further along", "factor * self.moved", "self.moved", "rows that move take no others along"),
    _calculus(
        "lost by two keys", "self.lost + other.lost", "max(self.lost, other.lost)", "losses by two keys do not add up"
    ),
    _calculus(
        "gained by two keys",
        "self.gained + other.gained",
        "max(self.gained, other.gained)",
        "gains by two keys do not add up",
        f"{ATTAINED}two_branches",
    ),
    _calculus(
        "record without its rows",
        "moved = self._replaced(base) + self._staying(base, ()).moved",
        "moved = self._staying(base, ()).moved",
        "a changed record's own rows move nothing",
        RECORD,
    ),
    _calculus(
        "record without others",
        "moved = self._replaced(base) + self._staying(base, ()).moved",
        "moved = self._replaced(base)",
        "rows linked to a changed record move nothing",
        RECORD,
    ),
    _calculus(
        "record comes nowhere",
        "return Movement(moved, moved)",
        "return Movement(moved, 0)",
        "replaced rows only leave",
        RECORD,
    ),
    _calculus("removed forgotten", _MOVES, _MOVES.replace("removed + ", ""), "a unit's own rows move nothing"),
    _calculus(
        "lost forgotten", _MOVES, _MOVES.replace("staying.lost + ", ""), "rows that lose their link move nothing"
    ),
    _calculus(
        "moved stay",
        _MOVES,
        _MOVES.replace("staying.lost + staying.moved,", "staying.lost,"),
        "rows that move leave no cell",
    ),
    _calculus(
        "moved vanish", _MOVES, _MOVES.replace("gained + staying.moved", "gained"), "rows that move come into no cell"
    ),
    _calculus(
        "gained forgotten",
        _MOVES,
        _MOVES.replace("gained + staying.moved", "staying.moved"),
        "rows that take a free place move nothing",
    ),
    _calculus(
        "always one target",
        "(removed if self._looks_at_one_target_only() else 0)",
        "min(removed, staying.gained)",
        "backfilled links cancel even where they land in other cells",
    ),
    _calculus(
        "one target and own columns",
        "if len(first) != 1 or any(not self.view.attribute[c].path for c in self.columns):",
        "if len(first) != 1:",
        "backfilled links cancel even where a row's own columns are seen",
    ),
    _calculus(
        "newcomers with others",
        "each if (down, up) == (removed, 0) else None",
        "each",
        "rows of other units count as newcomers of one",
        f"{SENSITIVITY}::test_newcomers_never_move_more_than_the_calculus_says",
    ),
    _calculus(
        "newcomers of all owners",
        "return max(self._removed(base if owner is None else promise.database[base].key[owner].target), 1)",
        "return 1",
        "a unit with two owners counts as one of them",
        f"{ATTAINED}newcomers",
    ),
    _calculus(
        "newcomers under record",
        'not path and base not in promise.public and promise.neighbours == "entity"',
        "not path and base not in promise.public",
        "targets are counted one by one where nothing is proved",
        FEW_REFUSED,
    ),
    _calculus(
        "newcomers of private rows",
        "if not covered or promise.is_private(promise.database[base].key[name]):",
        "if not covered:",
        "private rows are counted one by one",
        FEW_REFUSED,
    ),
    _calculus(
        "strangers",
        "if not (column in own.column or key in own.key or parse_degree(column) in led):",
        "if False:",
        "a derived column of another table is charged nothing",
        ORDER,
    ),
    _calculus(
        "degrees of public rows",
        "if attribute.path and seen in self.promise.public and parse_degree(column) is not None:",
        "if False:",
        "a degree that any number of rows see is charged as one row",
        f"{SENSITIVITY}::test_a_degree_of_public_rows_is_refused_where_no_bound_holds",
    ),
    _calculus(
        "relationships stay",
        "return self._removed(table) + self._relationships(table)",
        "return self._removed(table)",
        "relationships of a changed record are not replaced",
        RECORD,
    ),
    _calculus(
        "one relationship each",
        "promise.bounds[table, key.name] * self._removed(key.target)",
        "self._removed(key.target)",
        "a record has one relationship where the bound allows more",
        RECORD,
    ),
    _calculus(
        "derived columns stand still",
        "_Staying(moved=self._moved_derived(table, path))",
        "_Staying()",
        "derived columns move nothing",
    ),
    _calculus("one branch", "total += self._along(", "total = self._along(", "of two keys only the last counts"),
    _calculus(
        "bound not inherited", "inherited = bound * further", "inherited = further", "one row leads to what moves"
    ),
    _calculus(
        "children move once",
        "moved=2 * bound *",
        "moved=bound *",
        "children leave a record and none come to it",
        RECORD,
    ),
    _calculus(
        "protected relationships",
        "return table not in {*self.promise.protected, *self.promise.public} and",
        "return",
        "protected rows with two keys count as relationships of others",
        f"{ATTAINED}record_protected_rows_with_two_keys",
    ),
    _calculus(
        "one derived column",
        "return sum(self._moved_column(table, path, a.column) for a in attributes if a.path == path)",
        "return max((self._moved_column(table, path, a.column) for a in attributes if a.path == path), default=0)",
        "what two derived columns move does not add up",
    ),
    _calculus(
        "links gained",
        _RELINKED,
        _RELINKED.replace("staying.gained + ", ""),
        "a link that appears lets no row repeat another",
        REPEATED,
    ),
    _calculus(
        "links lost",
        _RELINKED,
        _RELINKED.replace("staying.lost + ", ""),
        "a link that disappears lets no row repeat another",
        REPEATED,
    ),
    _calculus(
        "presence moved",
        _RELINKED,
        _RELINKED.replace(" + staying.moved", ""),
        "a link that changes moves nothing",
        RECORD,
    ),
    _promise(
        "presence under record",
        'return self.neighbours == "entity" and self.is_linking(table, key)',
        "return self.is_linking(table, key)",
        "a row that a changed record takes from another keeps its key",
        RECORD,
    ),
    _bounding(
        "presence of what leads nowhere",
        "if self.promise.says_itself(name, key)",
        "if False",
        "whether a link is lost or gained shows, and is charged as the row's own",
        ENGINE,
    ),
    _calculus(
        "repetition by one side",
        "relinked + 2 * self._relationships(table, but=key.name)",
        "relinked + self._relationships(table, but=key.name)",
        "relationships that come let no other row repeat them",
        f"{ATTAINED}record_repetition_by_relationships_that_are_replaced",
    ),
    _calculus(
        "repetition stays",
        "others = relinked + 2 * self._relationships(table, but=key.name) if record else 0",
        "others = 0",
        "rows repeat or cease to for nobody",
        f"{ATTAINED}record_repetition_by_links_that_change",
    ),
    _calculus(
        "repetition of relinked rows",
        "else others + relinked",
        "else others",
        "rows whose own link changes repeat as before",
        REPEATED,
    ),
    _calculus(
        "degrees by links", "return 0 if owning else self._removed(child)", "return 0", "degrees by links move nothing"
    ),
    _calculus(
        "degrees of owners under record",
        "return 2 * self._relationships(child)",
        "return self._relationships(child)",
        "owners lose relationships and none gain any",
        RECORD,
    ),
    _calculus("degrees under record", _DEGREE, _DEGREE.replace("2 * ", ""), "degrees sink and none rise", RECORD),
    _calculus(
        "degrees of relinked rows",
        _DEGREE,
        _DEGREE.replace(" + relinked", ""),
        "links that change move no degree",
        RECORD,
    ),
    _calculus(
        "unit sums under record",
        'belong = promise.neighbours == "entity" and view.base not in promise.public',
        "belong = view.base not in promise.public",
        "units are clipped where rows of others move",
        UNIT_SUMS,
    ),
    _calculus(
        "unit sums of rows that come and go",
        "return self._staying(self.view.base, ()) == _Staying()",
        "return self._staying(self.view.base, ()).moved == 0",
        "units are clipped where rows of others are gained and lost",
        UNIT_SUMS,
    ),
    _calculus(
        "unit sums for one table",
        "and all(c.rows_stay() for c in calculi)",
        "and any(c.rows_stay() for c in calculi)",
        "units are clipped where those of another table move their rows",
        UNIT_SUMS,
    ),
    _calculus(
        "categories of what others move",
        "if rows <= 1 or not stays(promise, View(table, ()), ()):",
        "if rows <= 1:",
        "units are counted where rows of others come and go",
        WORDS_MOVE,
        WORDS_WHERE,
    ),
    _calculus(
        "categories of half a unit",
        "{promise.root(table): float(GRID)}",
        "{promise.root(table): float(GRID) / 2}",
        "noise hides half of what a unit gives to its categories",
        WORDS_MOVE,
    ),
    _calculus(
        "categories paid by others",
        "{promise.root(table): float(GRID)}",
        "{promise.protected[-1]: float(GRID)}",
        "units pay whose rows were not counted",
        f"{WORDS}::test_owners_are_counted_and_pay",
    ),
    _calculus(
        "fewer categories",
        "min((2 << i) - 1, rows)",
        "min(1 << i, rows)",
        "δ forgets that a unit may have almost twice as many categories",
        WORDS_ALONE,
    ),
    _calculus(
        "lighter categories",
        "share(1 << i, length=GRID)",
        "share((2 << i) - 1, length=GRID)",
        "δ takes categories of a unit to be lighter than they may be",
        WORDS_ALONE,
    ),
    _calculus(
        "no unit with many categories",
        "for i in range(rows.bit_length()))",
        "for i in range(rows.bit_length() - 1))",
        "δ forgets units that have as many categories as rows",
        WORDS_ALONE,
    ),
    _calculus(
        "no unit with few categories",
        "for i in range(rows.bit_length()))",
        "for i in range(1, rows.bit_length()))",
        "δ forgets a unit with all its weight in one category",
        WORDS_ALONE,
    ),
    _calculus(
        "threshold of rows that go",
        "rows = max(max(m.down, m.up) for m in moves.values())",
        "rows = max(m.down for m in moves.values())",
        "δ forgets categories of rows that come back",
        CURATOR,
    ),
    _calculus(
        "categories under record",
        "{t: m.l2 for t, m in moves.items()}",
        "{t: float(m.down) for t, m in moves.items()}",
        "rows that come have no noise",
        CURATOR,
    ),
    _calculus(
        "one target within",
        "return self.promise.is_private(key) and not self._stays(base, name) and",
        "return self.promise.is_private(key) and",
        "places that nobody takes over are taken off all the same",
    ),
    _calculus(
        "nothing further along",
        "self._staying(key.target, further, owner=owns))",
        "_Staying())",
        "what happens two keys away moves nothing",
    ),
    _calculus(
        "nothing gained",
        "return inherited + _Staying(gained=self._removed(table), ",
        "return inherited + _Staying(gained=0, ",
        "no row takes over a free place",
    ),
    _calculus(
        "one link lost",
        "return inherited + _Staying(gained=self._removed(table), lost=bound * ",
        "return inherited + _Staying(gained=self._removed(table), lost=",
        "of the rows that lead to a unit one loses its link",
    ),
    _calculus(
        "relationships under entity",
        "or (self._is_relationship(table) and not entity):",
        "or self._is_relationship(table):",
        "links of junctions are neither lost nor gained",
    ),
    _calculus(
        "blanks forgotten",
        "(_Staying() if owner else self._blanks(table))",
        "_Staying()",
        "rows that a second unit shares stay when it goes",
        SHARED,
    ),
    _calculus(
        "blanks gained",
        "total += _Staying(gained=self._removed(table), ",
        "total += _Staying(gained=0, ",
        "no blank row takes over a free place",
        SHARED,
    ),
    _calculus(
        "blanks lost",
        "total += _Staying(gained=self._removed(table), lost=bound * ",
        "total += _Staying(gained=self._removed(table), lost=",
        "of the rows that share a unit one goes with it",
        SHARED,
    ),
    _calculus(
        "blank owners",
        "total += bound * self._blanks(key.target)",
        "total += self._blanks(key.target)",
        "of the rows that a blank row owns one goes with it",
        SHARED,
    ),
    _calculus(
        "degrees by blank rows",
        " + blanks.gained + blanks.lost",
        "",
        "rows that begin or cease to be blank move no degree",
        SHARED,
    ),
    _calculus(
        "presence of blank rows",
        "_Staying() if owns else self._blanks(key.target)",
        "_Staying()",
        "a link to a row that is blank or not moves nothing",
        SHARED,
    ),
    # -- bounding --------------------------------------------------------------------------------------------------
    _bounding(
        "constant salt",
        "secrets.token_hex(16) if salt is None",
        '"" if salt is None',
        "everybody can foresee which rows are kept",
        f"{BOUNDING}::test_every_bounding_orders_rows_by_a_salt_of_its_own",
    ),
    _bounding(
        "short salt",
        "secrets.token_hex(16) if salt is None",
        "secrets.token_hex(1) if salt is None",
        "a salt can be guessed by trying all of them",
        f"{BOUNDING}::test_every_bounding_orders_rows_by_a_salt_of_its_own",
    ),
    _bounding(
        "salt unused",
        'f"{self._salt}|{table.name}"',
        'f"{table.name}"',
        "everybody can foresee which rows are kept",
        f"{COUNTS}::test_order_depends_on_the_salt_and_on_nothing_else",
    ),
    _bounding(
        "order without hash",
        "return [rows.place, *(",
        "return [*(",
        "rows are kept by their key, which an attacker may choose",
        COUNTS,
    ),
    _bounding(
        "no cuts under entity",
        'promise.neighbours == "entity" or promise.on_excess == "truncate"',
        'promise.on_excess == "truncate"',
        "bounds are claimed and not enforced",
    ),
    _bounding(
        "null keys",
        "if table.primary_key and not self.source.proves_unique(table.name, table.primary_key):",
        "if False:",
        "rows without a primary key are ordered by nothing",
        f"{BOUNDING}::test_null_primary_keys_are_refused",
    ),
    _bounding(
        "repeated keys",
        "if self._has_repeats(",
        "if False and self._has_repeats(",
        "joins multiply rows",
        f"{BOUNDING}::test_duplicate_keys_are_refused_by_name_and_never_by_value",
    ),
    _bounding(
        "keys repeated once",
        "filter(ibis._.n > 1)",
        "filter(ibis._.n > 2)",
        "joins double rows",
        f"{BOUNDING}::test_duplicate_keys_are_refused_by_name_and_never_by_value",
    ),
    _bounding(
        "keys as declared",
        "if self.source.proves_unique(table.name, columns):",
        "if table.is_unique(columns):",
        "keys that the plan declares and the engine does not prove are trusted",
        f"{BOUNDING}::test_a_key_that_is_unique_as_stored_but_not_as_read_is_refused",
    ),
    _bounding(
        "several targets",
        "self._check_single(table.name, key)",
        "pass",
        "a row that leads to two rows at once counts twice",
        "tests/engines/test_collation.py",
    ),
    _bounding(
        "bounds unchecked",
        "self._check_bound(name, key)",
        "pass",
        "record takes bounds on trust",
        f"{BOUNDING}::test_record_refuses_rows_beyond_the_bound_and_entity_cuts_them",
    ),
    _bounding(
        "bounds checked loosely",
        "filter(ibis._.n > bound)",
        "filter(ibis._.n > bound + 1)",
        "record lets one row too many in",
        f"{BOUNDING}::test_record_refuses_rows_beyond_the_bound_and_entity_cuts_them",
    ),
    _bounding(
        "dropped rows counted",
        "return raw.inner_join(left, raw.rid == left.left)",
        "return raw.left_join(left, raw.rid == left.left)",
        "rows beyond the bound come back",
    ),
    _bounding("one row too many", '(rows["rank"] < bound)', '(rows["rank"] <= bound)', "an owner keeps one row more"),
    _bounding(
        "rows of dropped owners",
        "rows.filter(rows.owner.notnull() | rows.there.isnull())",
        "rows",
        "rows stay whose owner was cut off, as units of their own",
        COUNTS,
    ),
    _bounding(
        "one link too many",
        'keep = rows["rank"] < self',
        'keep = rows["rank"] <= self',
        "a target keeps one link more",
        COUNTS,
    ),
    _bounding(
        "links uncut",
        "if self.promise.is_private(key) and self._cuts:",
        "if False:",
        "a target keeps all links",
        COUNTS,
    ),
    _bounding(
        "links by place in the file",
        "group_by=rows[link], order_by=self.order(table.name, rows)",
        "group_by=rows[link], order_by=rows.rid",
        "which links are kept depends on where rows happen to stand",
        COUNTS,
    ),
    _bounding(
        "links to dropped rows",
        'self._follow(table, key, rows, self.kept(key.target), "rid", link)',
        'self._follow(table, key, rows, self.raw(key.target), "rid", link)',
        "rows lead to rows that were cut off",
        f"{ENGINE}[1-0.0]",
    ),
    _bounding(
        "links out of the unit",
        "if self.promise.is_within(table.name, key.name):",
        "if False:",
        "links that leave their unit are counted where the calculus says none does",
        f"{ENGINE}[1-0.0]",
    ),
    _bounding(
        "links to rows of nobody",
        "ibis.ifelse(rows.unit == rows.theirs,",
        "ibis.ifelse((rows.unit == rows.theirs) | rows.theirs.isnull(),",
        "links to rows without a unit count as links within one",
        f"{ENGINE}[2-0.0]",
    ),
    _bounding(
        "degrees of raw rows",
        "rows = self.raw(name) if self.promise.is_owning(name, key.name) else self.left(name)",
        "rows = self.raw(name)",
        "a unit moves as many degrees as it has rows, beyond any bound",
        f"{ENGINE}[1-0.0]",
    ),
    _bounding(
        "half a key",
        "for i, (c, _) in enumerate(pairs)]",
        "for i, (c, _) in enumerate(pairs[:1])]",
        "rows lead to several rows by the first column of a key",
        f"{BOUNDING}::test_composite_keys",
    ),
    _bounding(
        "large numbers as floats",
        "on += [rows",
        "_ = [rows",
        "two whole numbers are taken for one",
        f"{BOUNDING}::test_whole_numbers_and_floats_are_compared_without_taking_two_for_one",
    ),
    _bounding(
        "salt from the plan",
        "secrets.token_hex(16) if salt is None",
        'f"{promise.bounds!r:0>32}" if salt is None',
        "whoever knows the plan can foresee which rows are kept",
        f"{BOUNDING}::test_every_bounding_orders_rows_by_a_salt_of_its_own",
    ),
    _bounding(
        "twins at random",
        'last = [rows.rid] if "rid" in rows.columns else []',
        "last = []",
        "which of two rows alike has which link is up to the engine, and one row more moves hundreds",
        f"{BOUNDING}::test_one_of_two_twins_has_both_links_or_none",
    ),
    _bounding(
        "blank rows counted",
        'return rows.filter(rows.blank.isnull()).drop("blank") if',
        'return rows.drop("blank") if',
        "rows count whose second unit is gone",
        BLANKED,
    ),
    _bounding(
        "blank rows left",
        "return self.counted(name) if self.promise.may_blank(name) else self.kept(name)",
        "return self.kept(name)",
        "rows count whose second unit is gone",
        BLANKED,
    ),
    _bounding(
        "links to blank rows",
        'ibis.ifelse(rows.blank.isnull(), rows[link], ibis.null("int64"))',
        "rows[link]",
        "rows lead to rows whose second unit is gone",
        BLANKED,
    ),
    _bounding(
        "rows of blank owners",
        "flags.append(rows.blank.notnull())",
        "flags.append(rows.blank < 0)",
        "rows count that a blank row owns",
        BLANKED,
    ),
    _bounding(
        "shared rows beyond the bound",
        "& rows[self._link_column(name, key)].isnull())",
        "& rows[self._link_column(name, key)].isnull() & (rows.rid < 0))",
        "rows count that have no place with their second unit",
        BLANKED,
    ),
    _bounding(
        "units of two tables",
        "level=above.level.coalesce(len(chain))",
        "level=above.level.coalesce(0)",
        "a row without owner is taken for the protected row of the same number",
        WORDS_COUNTED,
    ),
    _bounding(
        "units of owners",
        "top=above.top.coalesce(rows.rid)",
        "top=rows.rid",
        "each row counts as a unit of its own",
        WORDS_COUNTED,
    ),
    # -- counts ----------------------------------------------------------------------------------------------------
    _counts(
        "rows that lead nowhere",
        "self._in_memory(view, alike, self._present(view.base, *needs))",
        "self._in_memory(view, alike, None)",
        "rows without a link are counted as if they had one",
    ),
    _counts(
        "left join",
        'how = "inner" if path in needed else "left"',
        'how = "left"',
        "a server counts rows without a link",
    ),
    _counts(
        "newcomers again",
        "ibis.ifelse(again | (link >= codec.size)",
        "ibis.ifelse(link >= codec.size",
        "rows that repeat a target count as newcomers",
        f"{COUNTS}::test_newcomers_agree_with_the_oracle",
    ),
    _counts(
        "third time",
        "(so_far > 1)",
        "(so_far > 2)",
        "a second row counts as a first",
        f"{COUNTS}::test_newcomers_agree_with_the_oracle",
    ),
    _counts(
        "repetition by place in the file",
        "group_by=[linked.owner, link], order_by=order",
        "group_by=[linked.owner, link], order_by=linked.rid",
        "which row repeats another depends on links that come back",
        f"{COUNTS}::test_repetition_follows_the_order_of_bounding_and_not_the_place_in_the_file",
    ),
    _counts(
        "repetition of others",
        "group_by=[linked.owner, link]",
        "group_by=[link]",
        "whether a row repeats another depends on other units",
        f"{COUNTS}::test_newcomers_agree_with_the_oracle",
    ),
    _counts(
        "all rows",
        "return None if all_of([(there, np.equal, True)]) is None else places_of(there)",
        "return None",
        "rows beyond the bound are counted",
    ),
    _arrays(
        "rows counted twice",
        "yield slice(start, min(start + rows, length))",
        "yield slice(start, min(start + rows + 1, length))",
        "a row at the border of two blocks counts twice",
        f"{COUNTS}::test_cliques_counted_in_blocks_are_those_counted_alone",
    ),
    _counts(
        "categories of raw rows",
        "rows, source = self._bounding.rows(table), self._bounding.source",
        "rows, source = self._bounding.raw(table), self._bounding.source",
        "a unit brings more categories than its bound",
        f"{CURATOR}::test_categories_are_counted_over_bounded_rows",
    ),
    _counts(
        "categories of every row",
        '.select("value", "bits", "top", "level").distinct()',
        '.select("value", "bits", "top", "level")',
        "a unit gives weight to a category for each of its rows",
        WORDS_COUNTED,
    ),
    _counts(
        "one unit for all levels",
        "group_by=[own.top, own.level]",
        "group_by=[own.top]",
        "what a unit gives depends on the categories of another",
        WORDS_COUNTED,
    ),
    _counts(
        "texts that come out alike",
        "in alike.items():",
        'in [((one["value"], one["k"]), one["n"]) for one in found.to_pylist()]:',
        "a unit gives its weight many times to texts that are read as one",
        f"{WORDS}::test_texts_that_come_out_alike_count_once",
    ),
    _counts(
        "texts that are taken for equal",
        "else source.hash(text)",
        "else text",
        "one row decides under which of two spellings all others are counted",
        "tests/engines/test_collation.py::test_categories_are_told_apart_byte_by_byte",
    ),
    _arrays(
        "unit sums of nobody",
        "return rows_of(0, top)",
        "return rows_of(-1, top)",
        "rows without a unit are clipped as if they were one",
        SUMMED,
    ),
    _arrays(
        "units cut in two",
        "bisect_right(rows, last, lo=a, key=lambda i, group=group: group[i])",
        "min(a + ROWS, len(rows))",
        "rows of one unit that come in two blocks are clipped twice",
    ),
    _counts(
        "unit sums of the owner",
        "unit = self._position(view.base, self._bounding.promise.owning_path(view.base))",
        "unit = self._position(view.base, self._bounding.promise.owning_path(view.base)[:1])",
        "each order of a customer has a clip of its own",
        SUMMED,
    ),
    _counts(
        "unit sums of rows that lead nowhere",
        "in_order(unit, self._present(*key[1:]))",
        "in_order(unit, None)",
        "rows without a link are summed as if they had one",
        SUMMED,
    ),
    _counts(
        "blank rows on a server",
        "rows = self._bounding.counted(view.base)",
        "rows = self._bounding.linked(view.base)",
        "rows count whose second unit is gone",
        BLANKED,
    ),
    _counts(
        "blank rows in memory",
        "left = self._bounding.left(base)",
        "left = self._bounding.kept(base)",
        "rows count whose second unit is gone",
        BLANKED,
    ),
    # -- unit sums
    # ------------------------------------------------------------------------------------------------------
    _unit_sums(
        "weights rounded up",
        "return math.isqrt(length * length // categories)",
        "return math.isqrt(length * length // categories) + 1",
        "a unit's weights are longer than its length",
        f"{WORDS}::test_shares_are_as_large_as_the_length_allows",
        WORDS_MOVE,
    ),
    _unit_sums(
        "whole weight for each category",
        "return math.isqrt(length * length // categories)",
        "return length",
        "a unit with k categories weighs √k times as much",
        f"{WORDS}::test_shares_are_as_large_as_the_length_allows",
    ),
    _unit_sums(
        "length unchecked",
        "k -= k * k * q > LENGTH**2",
        "pass",
        "a factor that floats made too large is used",
    ),
    _unit_sums(
        "length unchecked in engines",
        "units.k * units.k * units.q > LENGTH**2, units.k - 1",
        "units.k * units.k * units.q > LENGTH**2, units.k",
        "a factor that floats made too large is used, on servers",
        HAIR,
    ),
    _unit_sums(
        "no clip",
        "+ ROUNDED).clip(None, LENGTH // CLIP).astype",
        "+ ROUNDED + LENGTH).clip(None, LENGTH // CLIP).astype",
        "a unit is summed at its full length",
    ),
    _unit_sums(
        "no clip in engines",
        "+ ROUNDED).floor()",
        "+ ROUNDED + LENGTH).floor()",
        "a unit is summed at its full length, on servers",
        SUMMED,
    ),
    _unit_sums(
        "length of what is there",
        "return few * few * whole +",
        "return 0 * few * whole +",
        "codes that a unit lacks do not make it longer, though its centre does",
    ),
    _unit_sums(
        "numbers beyond 64 bits",
        "+ (every - few).clip(None, 1) * BEYOND**2",
        "",
        "a unit of very many rows comes out short",
    ),
    _unit_sums(
        "products beyond 64 bits",
        ".clip(-BEYOND, BEYOND)",
        "",
        "the square of a very long unit comes out short",
    ),
    _unit_sums(
        "carry forgotten",
        "+ (low.astype(np.int64) >> 31)",
        "",
        "a unit with many codes comes out short",
    ),
    _unit_sums(
        "units cut by blocks",
        'int(np.searchsorted(units, units[min(start + rows, len(units)) - 1], side="right"))',
        "min(start + rows, len(units))",
        "a unit at the border of two blocks has two clips",
    ),
    _unit_sums(
        "rows as units",
        "whose = np.cumsum(np.diff(units[block], prepend=units[start]) != 0)",
        "whose = np.arange(len(units[block]))",
        "each row has a clip of its own",
    ),
    _unit_sums(
        "cells of the next unit",
        "np.clip(cells[block], 0, size - 1)",
        "cells[block]",
        "a code that should not be there moves another unit's vector",
    ),
    _unit_sums(
        "scales unchecked",
        "or len(scales) != len(codes)",
        "or False",
        "a request fails after its charge",
    ),
    _unit_sums(
        "odd clips",
        "if not all(SMALLEST <= x <= LARGEST for x in (clip, *scales)):",
        "if False:",
        "weights are worked out of numbers that are none",
    ),
    # -- noise -----------------------------------------------------------------------------------------------------
    _noise(
        "half the noise",
        '_secure_gaussian(require_scale("sigma", sigma))',
        '_secure_gaussian(require_scale("sigma", sigma) / 2)',
        "half the noise that was charged for",
        f"{LAWS}::test_discrete_gaussian",
    ),
    _noise(
        "half the noise in choices",
        '_secure_noisy_max(require_scale("scale", scale))',
        '_secure_noisy_max(require_scale("scale", scale) / 2)',
        "choices at half the scale that was charged for",
        f"{LAWS}::test_noisy_max",
    ),
    _noise(
        "rounded normal noise",
        "sampler(counts.ravel().tolist())",
        "np.rint(counts + np.random.default_rng().normal(0, sigma, counts.shape))",
        "floating-point noise, which can be attacked",
        f"{LAWS}::test_discrete_gaussian",
    ),
    _noise(
        "seeded noise",
        "sampler(counts.ravel().tolist())",
        "InsecureNoise(0).discrete_gaussian(counts, sigma=sigma)",
        "noise that everybody can take off again",
        f"{NOISE}::test_insecurity_is_stamped_and_seeded",
    ),
    _noise(
        "seeded choices",
        'return int(_secure_noisy_max(require_scale("scale", scale))([float(score) for score in scores]))',
        "return InsecureNoise(0).noisy_max(scores, scale=scale)",
        "choices that everybody can foresee",
        f"{LAWS}::test_noisy_max",
    ),
    _noise(
        "one draw for all cells",
        "sampler(counts.ravel().tolist())",
        "counts.ravel() + sampler([0])[0]",
        "differences between cells have no noise",
        f"{NOISE}::test_cells_get_independent_noise",
    ),
    _noise(
        "unproven noise",
        "if not proven <= claim * (1 + 1e-9):",
        "if False:",
        "a library that proves less is taken",
        f"{NOISE}::test_a_library_that_proves_less_is_refused",
    ),
    _noise(
        "lower threshold",
        "if count >= threshold}",
        "if count >= threshold - 1}",
        "rare categories pass more often than δ",
        f"{NOISE}::test_released_counts_reach_the_threshold_and_may_equal_it",
    ),
    _noise(
        "absent categories",
        "if count > 0)",
        "if count >= 0)",
        "categories that no row has may pass",
        f"{NOISE}::test_absent_and_zero_are_the_same",
    ),
    _noise(
        "tail from 0",
        "    k = threshold - linf\n",
        "    k = threshold\n",
        "δ forgets a unit's own rows in a category",
        f"{NOISE}::test_threshold_delta_is_the_exact_tail_on_the_safe_side",
    ),
    _noise(
        "one category",
        "l0 * (tail / whole",
        "(tail / whole",
        "δ forgets that a unit has several categories",
        f"{NOISE}::test_threshold_delta_is_the_exact_tail_on_the_safe_side",
    ),
    _noise(
        "wide law",
        "whole = max(sigma",
        "whole = max(2 * sigma",
        "the probability of passing is halved",
        f"{NOISE}::test_threshold_delta_is_the_exact_tail_on_the_safe_side",
    ),
    _noise(
        "threshold too low",
        "    return high\n",
        "    return low\n",
        "the threshold is that of a larger δ",
        f"{NOISE}::test_threshold_for_is_the_smallest",
    ),
    _noise(
        "insecure unsaid",
        "    insecure = True",
        "    insecure = False",
        "a seeded release is not stamped INSECURE",
        f"{NOISE}::test_insecurity_is_stamped_and_seeded",
    ),
    # -- selection -------------------------------------------------------------------------------------------------
    _selection(
        "half the sensitivity",
        "round_up(max(w * Fraction(bound)",
        "round_up(max(w * Fraction(bound) / 2",
        "scores move twice as far",
    ),
    _selection(
        "least sensitive candidate", "round_up(max(w", "round_up(min(w", "the candidate that moves least decides"
    ),
    _selection(
        "weights ignored",
        "round_up(max(w * Fraction",
        "round_up(max(Fraction",
        "heavy scores move as far as light ones",
    ),
    _selection(
        "weights off the grid",
        "Fraction(_on_grid(candidate.weight), GRID)",
        "Fraction(candidate.weight)",
        "weights are rounded up in scores and not in what is charged",
    ),
    _selection(
        "scores that overflow",
        "np.abs(np.clip(counts, -LARGEST_COUNT, LARGEST_COUNT) - predicted)",
        "np.abs(counts - predicted)",
        "a score jumps from one end of the numbers to the other",
    ),
    _selection(
        "scores in floats",
        "min(gap, LARGEST_NUMERATOR // max(weight, 1))",
        "gap",
        "rounding moves a score further than one unit may",
    ),
    _selection(
        "predictions that are no numbers",
        "if not np.isfinite(candidate.prediction).all():",
        "if False:",
        "scoring fails, or not, after the charge",
    ),
    _selection(
        "earlier draws forgotten",
        "else among(tuple(drawn))",
        "else among(())",
        "a choice does not know what was chosen before it",
    ),
    # -- accounting ------------------------------------------------------------------------------------------------
    _accounting(
        "conversion",
        "terms = ((1 + b) * rho,",
        "terms = (b * rho,",
        "ε comes out too small",
        f"{ACCOUNTING}::test_epsilon_never_below_oracle",
    ),
    _accounting(
        "conversion rounded down",
        "sum(terms) + FLOAT_ERROR * sum(map(abs, terms))",
        "sum(terms) - FLOAT_ERROR * sum(map(abs, terms))",
        "ε is rounded in our favour",
        f"{ACCOUNTING}::test_epsilon_never_below_oracle",
    ),
    _accounting(
        "ρ beyond ε",
        "    return low\n",
        "    return high * (1 + 1e-9)\n",
        "ρ is more than ε allows",
        f"{ACCOUNTING}::test_conversion_agrees_with_oracle_on_the_safe_side",
    ),
    _accounting(
        "rounded to nearest",
        "return nearest if nearest >= value else math.nextafter(nearest, math.inf)",
        "return nearest",
        "costs are rounded in our favour half of the time",
        f"{ACCOUNTING}::test_rounding_is_tight",
    ),
    _accounting(
        "left rounded up",
        "max(0.0, round_down(Fraction(total) - Fraction(spent)))",
        "max(0.0, round_up(Fraction(total) - Fraction(spent)))",
        "more is left than was not spent",
        f"{ACCOUNTING}::test_subtract_rounds_down",
    ),
    _accounting(
        "half the cost",
        "round_up((delta_2 / scale) ** 2 / 2)",
        "round_up((delta_2 / scale) ** 2 / 4)",
        "noise costs half",
        f"{ACCOUNTING}::test_gaussian_rho_rounds_up",
    ),
    _accounting(
        "cost without square",
        "round_up((delta_2 / scale) ** 2 / 2)",
        "round_up((delta_2 / scale) / 2)",
        "large moves cost too little",
        f"{ACCOUNTING}::test_gaussian_rho_rounds_up",
    ),
    _accounting(
        "scale rounded down",
        "while gaussian_rho(sensitivity, sigma) > rho:",
        "while False:",
        "noise is a trifle too small",
        f"{ACCOUNTING}::test_gaussian_sigma_is_the_smallest_that_fits",
    ),
    _accounting(
        "monotone choices",
        "return gaussian_rho(sensitivity, scale)",
        "return gaussian_rho(sensitivity / 2, scale)",
        "scores that move both ways are charged as if they moved one way",
        f"{ACCOUNTING}::test_selection_cost_is_eps_squared_over_eight",
    ),
    _accounting(
        "half the scale of choices",
        "return gaussian_sigma(sensitivity, rho)",
        "return gaussian_sigma(sensitivity / 2, rho)",
        "choices are too exact",
        f"{NOISE}::test_calibrated_selection_meets_its_rho_by_opendps_map",
    ),
    _accounting(
        "external tables cheap",
        "high=1e100, closed=True)) ** 2 / 2)",
        "high=1e100, closed=True)) ** 2 / 8)",
        "a mechanism of which only ε is known is charged as a choice",
        "tests/fitting/test_external_rows.py::test_the_price_of_an_epsilon_is_rounded_up",
    ),
    _accounting(
        "shares rounded up",
        "round_down(whole * part / sum(parts))",
        "round_up(whole * part / sum(parts))",
        "shares add up to more",
        f"{ACCOUNTING}::test_split_never_exceeds_and_loses_nothing",
    ),
    _accounting(
        "weights as they are",
        "round_down(whole * part / sum(parts))",
        "round_down(whole * part)",
        "shares add up to more",
        f"{ACCOUNTING}::test_split_never_exceeds_and_loses_nothing",
    ),
    _accounting(
        "largest charge",
        "a.get(t, Fraction()) + b.get(t, Fraction())",
        "max(a.get(t, Fraction()), b.get(t, Fraction()))",
        "of all charges only the largest counts",
        f"{ACCOUNTING}::test_cost_sums_are_exact",
    ),
    _accounting(
        "limit in floats",
        "if x > limit}",
        "if float(x) > limit}",
        "many small charges pass a limit",
        f"{ACCOUNTING}::test_budget_is_exact_where_floats_are_not",
    ),
    _accounting(
        "no limit on δ",
        "(self.rho, self.delta), strict=True)",
        "(self.rho, 1.0), strict=True)",
        "δ is spent without limit",
    ),
    _accounting(
        "amounts that are no numbers",
        "if not (low < number < high or (closed and number == low)):",
        "if number < low or number >= high or (number == low and not closed):",
        "a charge that is no number passes every limit",
        f"{ACCOUNTING}::test_bad_rho",
    ),
    _accounting(
        "one person in two tables",
        "epsilon += Fraction(e)",
        "epsilon = max(epsilon, Fraction(e))",
        "who has a row in two protected tables is told the ε of one",
        TOGETHER,
    ),
    _accounting(
        "δ of one person in two tables",
        "delta += d * math.exp(",
        "delta += d + 0 * math.exp(",
        "who has a row in two protected tables is told too small a δ",
        TOGETHER,
    ),
    # -- ledger ----------------------------------------------------------------------------------------------------
    _ledger("nothing refused", "self._require(check, begins=begins)", "pass", "neither limit nor cap stop a charge"),
    _ledger(
        "single charges",
        "self.spent if begins else self.spent + cost",
        "self.spent if begins else cost",
        "each charge has the whole limit",
    ),
    _ledger(
        "cap for each charge",
        "cap.allows(total + cost, table)",
        "cap.allows(cost, table)",
        "each charge has the whole cap",
    ),
    _ledger(
        "cap for each run",
        "spent = self._journal.databases.get(self.database, Cost.zero())",
        "spent = self.spent",
        "what other runs spent does not count",
    ),
    _ledger(
        "δ beside the cap",
        "left = subtract(self.delta, total.delta.get(table, 0.0))",
        "left = self.delta",
        "δ is spent twice",
    ),
    _ledger("not on disk", "os.fsync(file.fileno())", "pass", "a crash forgets a charge whose rows were read"),
    _ledger("name not on disk", "os.fsync(directory)", "pass", "a crash forgets a new ledger whose rows were read"),
    _ledger("not written", "        file.flush()\n", "", "a killed process forgets a charge whose rows were read"),
    _ledger("others unread", "                self.catch_up(file)\n", "", "what other processes spent does not count"),
    _ledger(
        "no lock",
        'FileLock(f"{self.path}.lock", timeout=LOCK_SECONDS), self',
        "self",
        "two processes spend the same budget",
        f"{LEDGER}::test_a_stuck_lock_is_reported",
    ),
    _ledger(
        "chain unchecked",
        "if not line.startswith(self._header()):",
        "if False:",
        "lines can be taken out of the ledger",
    ),
    _ledger(
        "runs do not add up",
        "self.runs[at] = self.runs.get(at, Cost.zero()) + cost",
        "self.runs[at] = cost",
        "of all charges of a run only the last counts",
    ),
    _ledger(
        "databases do not add up",
        "self.databases[entry.database] = self.databases.get(entry.database, Cost.zero()) + cost",
        "self.databases[entry.database] = cost",
        "of all charges of a database only the last counts",
    ),
    _ledger("strange tables", "        if unknown:", "        if False:", "a table is charged that no cap knows"),
    _ledger("passwords", "_scrub(body)[1:]", "body[1:]", "credentials stand in the ledger"),
    _ledger(
        "reservations ignored",
        "total = self._journal.committed(self.database, but=self.run) if begins else spent",
        "total = spent",
        "a run begins on what other runs that are open still may spend",
    ),
    _ledger(
        "a run that goes on begins at nothing",
        "return self._journal.runs.get((self.database, self.run), Cost.zero())",
        "return sum((e.cost for e in self.entries[max((i for i, e in enumerate(self.entries) if e.kind == 'open')) :]),"
        " Cost.zero())",
        "a run has its whole limit each time it is opened",
        f"{LEDGER}::test_a_run_that_goes_on_has_spent_what_it_has_spent",
    ),
    # -- curator ---------------------------------------------------------------------------------------------------
    _curator(
        "counts before the charge",
        "cost, sigmas = Cost.zero(), []",
        "cost, sigmas = Cost.zero(), list(self._counts.marginals(view, cliques))[:0]",
        "rows are read that nobody may have paid for",
        ORDER,
    ),
    _curator(
        "unit sums before the charge",
        "shares = split(rho, [1.0] * len(unit_sums)",
        "self._counts.unit_sum(view, unit_sums[0])\n        shares = split(rho, [1.0] * len(unit_sums)",
        "rows are read that nobody may have paid for",
        ORDER,
    ),
    _curator(
        "choices before the charge",
        'scale = require_scale("scale", selection_scale(worst, each)) if worst else 0.0',
        "scale = (self._counts.marginals(view, [c.columns for c in candidates]), selection_scale(worst, each))[1]",
        "rows are read that nobody may have paid for",
        ORDER,
    ),
    _curator(
        "counts for nothing",
        "Question(asked, view, domains), cost, read",
        "Question(asked, view, domains), Cost.zero(), read",
        "counts cost nothing",
    ),
    _curator(
        "unit sums for nothing",
        "cost = Cost({self.promise.root(view.base): rho}, {})",
        "cost = Cost({}, {})",
        "unit sums cost nothing",
        ORDER,
    ),
    _curator(
        "unit sums paid by others",
        "cost = Cost({self.promise.root(view.base): rho}, {})",
        "cost = Cost({self.promise.protected[-1]: rho}, {})",
        "units pay whose rows were not summed",
    ),
    _curator(
        "moments for nothing",
        "(moments,)), Cost({self.promise.root(view.base): rho}, {}), read",
        "(moments,)), Cost({}, {}), read",
        "second moments cost nothing",
        MOMENTS,
    ),
    _curator(
        "moments paid by others",
        "(moments,)), Cost({self.promise.root(view.base): rho}, {}), read",
        "(moments,)), Cost({self.promise.protected[-1]: rho}, {}), read",
        "units pay whose moments were not summed",
        MOMENTS,
    ),
    _curator(
        "answers before the charge",
        "        answer = None if self._kept is None else self._kept.recall(question)\n",
        "        answer = read()\n",
        "rows are read that nobody may have paid for",
        ORDER,
    ),
    _curator(
        "answers used before they are kept",
        "                self._kept.keep(question, answer)\n",
        "                pass\n",
        "an answer is used that a crash forgets, and its charge is paid again",
    ),
    _curator("choices for nothing", "Cost(pay, {}), read", "Cost({}, {}), read", "choices cost nothing"),
    _curator(
        "δ for nothing", "Cost(pay, dict.fromkeys(pay, delta)), read", "Cost(pay, {}), read", "categories cost no δ"
    ),
    _curator("last clique", "cost += Cost(", "cost = Cost(", "of several cliques only the last is paid for"),
    _curator(
        "L2 for L1",
        "[self.l1(view, c.columns)[t] for c in candidates]",
        "[self.l2(view, c.columns)[t] for c in candidates]",
        "scores move further",
    ),
    _curator(
        "noise for the least table",
        "worst = max(l2.values())",
        "worst = min(x for x in l2.values() if x)",
        "units that move most are hidden least",
    ),
    _curator(
        "choices for the least table",
        "worst = max(by_table.values())",
        "worst = min(x for x in by_table.values() if x)",
        "units that move most are hidden least",
    ),
    _curator(
        "one table pays",
        "for t, x in l2.items() if x > 0}",
        "for t, x in l2.items() if x == worst}",
        "other tables pay nothing",
    ),
    _curator(
        "others pay for one choice",
        "round_up(count * Fraction(selection_rho(x, scale)))",
        "selection_rho(x, scale)",
        "tables that move less pay for the first choice only",
    ),
    _curator(
        "every choice gets all", "each = split(rho, [1.0] * count)[0]", "each = rho", "several choices are paid as one"
    ),
    _curator(
        "every unit_sum gets all",
        "shares = split(rho, [1.0] * len(unit_sums)",
        "shares = [rho] * len(unit_sums) or split(rho, [1.0] * len(unit_sums)",
        "several unit_sums are paid as one",
    ),
    _curator(
        "half the noise in unit sums",
        "gaussian_sigma(float(LENGTH), share)",
        "gaussian_sigma(float(LENGTH) / 2, share)",
        "unit sums have half the noise",
    ),
    _curator(
        "unit sums of what others move",
        "if units is None or not all(units.hold(unit_sum.all_columns) for unit_sum in unit_sums):",
        "if units is None:",
        "units are clipped where those of another table move their rows",
        f"{UNIT_SUMS}::test_all_columns_of_a_unit_sum_are_asked_of_what_is_counted",
    ),
    _curator(
        "keys as values",
        "if column in key.columns and self.promise.is_private(key) and table not in self.promise.public:",
        "if False:",
        "keys of private rows are counted as categories",
        ORDER,
    ),
    _curator(
        "private rows one by one", "if self.promise.is_private(led):", "if False:", "keys of private rows become codes"
    ),
    _curator("codes of newcomers", "if parse_newcomer(column):", "if False:", "codes of rows are declared by clients"),
    _curator(
        "empty cells stay empty",
        "            exact = self._counts.marginals(view, cliques)  # private from here ...\n"
        "            pairs = zip(exact, sigmas, strict=True)\n"
        "            return Answer(tuple(self._noise.discrete_gaussian(x, sigma=s) for",
        "            exact = self._counts.marginals(view, cliques)  # private from here ...\n"
        "            pairs = zip(exact, sigmas, strict=True)\n"
        "            return Answer(tuple(np.where(x > 0, self._noise.discrete_gaussian(x, sigma=s), 0) for",
        "whether a cell has any row is told without noise",
        CURATOR,
    ),
    _curator(
        "insecure unstamped", "return self._noise.insecure", "return False", "a seeded release is not stamped INSECURE"
    ),
    _curator("counts unrecorded", "self.release.measured.append(", "[].append(", "counts cross that no release shows"),
    _curator(
        "unit sums unrecorded", "self.release.summed_by_unit +=", "_ =", "unit sums cross that no release shows", ORDER
    ),
    _curator(
        "choices unrecorded", "self.release.selected.append(", "[].append(", "choices cross that no release shows"
    ),
    _curator(
        "categories unrecorded",
        "self.release.discovered.append(",
        "[].append(",
        "categories cross that no release shows",
    ),
    _curator(
        "categories before the charge",
        "sigma = gaussian_sigma(worst, rho)",
        "sigma = (self._counts.categories(table, column, length=1), gaussian_sigma(worst, rho))[1]",
        "rows are read that nobody may have paid for",
        ORDER,
    ),
    _curator("threshold of one category", "l0=categories,", "l0=1,", "δ is too small by the number of rows of a unit"),
    _curator(
        "threshold of one row", "linf=weight)", "linf=1)", "a category that one unit has passes with several rows"
    ),
    _curator(
        "threshold of the easiest case",
        "threshold = max(threshold_for(",
        "threshold = min(threshold_for(",
        "δ holds for some numbers of categories of a unit and not for all",
        f"{WORDS}::test_owners_are_counted_and_pay",
        "tests/audit/test_audit.py::test_rare_categories_stay_hidden_with_probability_delta",
    ),
    # -- release ---------------------------------------------------------------------------------------------------
    _release(
        "δ spent twice", "left = subtract(delta, used)", "left = delta", "ε is converted with a δ that is spent already"
    ),
    _release("no δ left", 'else float("inf")', "else 0.0", "where no δ is left, ε is said to be 0"),
    _release(
        "least table's ε", "epsilon=max(", "epsilon=min(", "the certificate names the best protected table", CERTIFIED
    ),
    _release("least table's ρ", "rho=max(", "rho=min(", "the certificate names the best protected table", CERTIFIED),
    _release(
        "nothing was spent",
        "guarantees(ledger.spent, promise",
        "guarantees(Cost.zero(), promise",
        "the certificate says that nothing was spent",
        CERTIFIED,
    ),
    _release(
        "INSECURE left out",
        "insecure=insecure,",
        "insecure=False,",
        "the certificate does not say that noise was seeded",
        CERTIFIED,
    ),
    _release(
        "trust unsaid",
        "caveats=caveats(columns, external, neighbours=promise.neighbours),",
        "caveats=(),",
        "the certificate vouches for tables made elsewhere",
        CERTIFIED,
    ),
)

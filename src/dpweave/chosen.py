"""Numbers that somebody chose.

They could be others, and copies would then be a little other. Each says what it means and why it has this value. Where
it was tried, the text ends with the range in which it does not matter. Numbers that follow from others are computed
where they are needed. Three kinds are no choices and stay where they are used: limits on memory and time, which say
so; facts of a format or of mathematics; and what the privacy core proves with.

Read a number as ``chosen.NAME`` when it is used, so that a trial can move it.
"""

from __future__ import annotations

# -- The budget --------------------------------------------------------------------------------------------------------

EPSILON = 1.0
"""What drafted plans show noise for. Any usual value shows the same order of columns."""

DELTA = 1e-6
"""Delta where nobody says another: below one in the rows of most databases. ``explain`` warns where it is not."""

DOMAINS_SHARE = 0.1
"""Part of epsilon's and of delta's budget for learning domains, where a plan does not say."""

COUNTING = 0.05
"""Part of a budget for plain numbers of rows or links, and weight of one next to a column: one count needs little."""

TABLES_SHARE = 0.4
"""Part of the budget for tables, where a plan does not say. Links get what domains and sizes leave."""

SELECTION = 0.1
"""Part of a table's budget for choosing what to measure, as in the papers on AIM and MST."""

SINGLES = 0.2
"""Part of a table's budget for its columns one by one, before pairs are chosen."""

SINGLES_ON_TOP = 0.4
"""The same for columns that are added to rows from elsewhere: fewer pairs are asked of them."""

FIRST_COUNT = 0.125
"""Part of a budget for first counts, around which others are centred, or which show where others are needed. With a
third, noise in single degrees is an eighth larger."""

LOOK = 0.25
"""Part of a budget for a look that shows where the rest is spent best: at where the values of a column are, and (at
most) at how often each target is chosen. Range: 0.2 to 0.33."""

FOR_SIBLINGS = 0.3
"""Part of the links' budget for what rows of one owner have in common. Set with the census in view; no range was
measured on other data (docs/decisions/siblings.md)."""

IN_COMMON = 0.03
"""Part of the length of units' vectors of moments that all units have in common: what a clip takes from it is lost,
the rest averages out. Set with the census in view; no range was measured."""

LEAST_PART = 0.25
"""No task gets less than this part of an even share, since priorities rest on guesses. A set of columns that would get
less is not asked for: small ones need little and may be all there is of a column."""

WORTHWHILE = 0.05
"""A part that is worth another step: of the budget, for sets of columns of one size to be asked for; of what groups of
degrees explain, for one more group."""

# -- What is taken for granted before counts are seen ------------------------------------------------------------------

FIRST_ORDER = 0.05**2
"""Prior variance of a log-odds coefficient of one column: links depend on a column by some five percent."""

DECAY = 0.25
"""Each further column in a component has this part of the variance: it halves the typical size."""

STRONG = 0.01
"""Part of the components that are strong. Their prior variance is larger by one over this, as is that of a column which
may decide who is linked to: fathers by age, films by genre."""

VARIANCES_DOUBT = 2.0
"""Spread of the log variance of a component or a linear effect within its order, and of the order's around what is
expected: few are strong, most next to nothing. With 3 for components and 1.5 for linear effects the mean error of eight
copies is the same (``benchmarks/chosen.py``: 52.7, 0.09 ± 0.09 more)."""

DOUBT = 0.1
"""Relative error of what is taken as known before counts show it: links, rows that a model predicts, how many lead on,
what clipping leaves (never taken for less), sums of degrees in buckets. With a third or a half of it for two, links of
all ratings of MovieLens are off by 2.25 and 1.52 at eps 0.5 and 1 either way (``benchmarks/links.py``, seed 0)."""

DECLARED_DOUBT = 0.5
"""Relative error of a number of rows that a plan declares. It matters only where noise is of the size of the table.
Range: 0.3 to 1."""

UNDECLARED_ROWS = 10_000
"""Rows that a protected table is taken to have where the plan does not say."""

UNKNOWN_CATEGORIES = 12
"""Categories that a column is taken to have before they are learned."""

UNSEEN_TYPES = 200.0
"""Different rows that a public table is taken to have in a forecast. Set with ``benchmarks/databases.py`` in view."""

DEFAULT_DEGREE = 10
"""Bound of a key that a draft proposes, for a person to change: nothing is known of the rows."""

# -- How units differ, and where their vectors are clipped -------------------------------------------------------------

TASTE = 0.5
"""Relative standard deviation of a unit's own share of a code or cell around that of all."""

LENGTHS = 0.3
"""How much units differ in the length of their vectors: standard deviation of the log. Clips leave room for half of one
more than is expected."""

DIFFERENT = 0.2
"""By which part of their counts units that are scaled down may differ from all others: who has more rows has others."""

LARGEST_CLIP = 3.0
"""Clips at most, in units of the length of a large unit's vector."""

KEPT = 0.3
"""Length of the code of all rows in a centred unit sum, relative to all others: enough to be seen, and next to nothing
of the clip."""

UNFELT = 0.5
"""Noise below this part of what chance does to counts is not worth the price of clipping."""

MEAN_LINKS = 2.0
"""Mean number of links of a unit that has any, before they are counted."""

UNLIKE = 2.0
"""Where vectors are r times as long as expected in the mean, clips are longer by this power of r: those of rare values
are longer still."""

CODE_WEIGHTS = (3.0, 1.0, 0.3)
"""Weight of precision for the code of every row, whose noise enters all others, for single values and for sets."""

# -- When a figure is believed -----------------------------------------------------------------------------------------

SIGNIFICANT = 3.0
"""Standard deviations from which on a count is taken to be more than noise, where a mistake costs little. The number of
rows in use stays within as many of the direct count: where degrees are right, that costs a fiftieth of a standard
deviation, and at 2 a tenth."""

BEYOND_DOUBT = 5.5
"""Standard deviations from which on a count is believed where a mistake would spoil a domain."""

LEVEL = 0.01
"""Chance of a mistake that is accepted where noise or chance alone could make it. From 0.05 to 0.001 the threshold for
ten sets of columns moves from 2.6 to 3.7 standard deviations. Range: 0.001 to 0.05."""

HOPELESS = 2.0
"""Noise above so many mean counts says too little of most targets. Then only those that stand out count."""

MANY_TARGETS = 500
"""Targets from which on counts shape their own law of popularity: of fewer, noise would."""

SIGN = 0.5
"""Standard deviations that a cell beside the body of a histogram must reach to belong to it, once for every doubling of
its width. A cell of the body's own width may be taken wrongly, one sixteen times as wide would change the whole
picture. Range: 0.4 to 0.7."""

SURE = 1.65
"""Standard deviations for 95 % on one side."""

UNNOTICED = 0.01
"""Part of the rows that an end of a range may hold and still be cut off, and that noise may hide without being worth
more budget. Differences below this part are not worth a word."""

NEXT_TO_NOTHING = 1e-3
"""A part that nobody would miss: it stands for values that were never seen, so that nothing is divided by nothing."""

CLIFF = 10.0
"""A rise of the density between buckets of degrees, as a factor, that is taken for the start of a distribution."""

UNEVEN = 3.0
"""How many times the noise of even values a sum along a linear effect may have."""

CLEAR = 0.6
"""An ordered column says what comes first if this many more links run one way along it than the other."""

# -- How finely values and degrees are divided -------------------------------------------------------------------------

FINE_CELLS = 128
"""Cells of the histogram of a learned range, about. Whole numbers up to a hundred are kept apart one by one."""

PIECES = 16
"""Cells of a closer look at most. Range: 8 to 32."""

GROUPS = 6
"""Groups of degrees that a table model keeps apart."""

GROWTH = 1.25
"""How much wider each bucket of degrees is than the one before, where a plan declares a cap."""

GROWTH_UNKNOWN = 1.4
"""The same where it does not, and buckets reach up to a million."""

TAIL = 4
"""How far, as a multiple of its beginning, a tail of degrees is taken to go on where counts say that it does."""

# -- What people are shown ---------------------------------------------------------------------------------------------

USEFUL = 0.1
"""Error of a distribution up to which it is called useful. Noise beyond this part of a figure drowns it; one with
less is as good as known, and more precision is not worth its price. Range: 0.05 to 0.125."""

COARSE = 0.3
"""Error of a distribution up to which it is called coarse. A bound that hides a larger part of the rows gets advice."""

WEAK_EPSILON = 10.0
"""Epsilon above which ``explain`` warns: hardly anything is hidden."""

HELD_OUT = 0.3
"""Part of the rows on which ``evaluate`` judges what a learner learned from the others."""

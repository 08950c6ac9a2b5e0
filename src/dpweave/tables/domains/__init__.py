"""Domains that a plan leaves open, learned under the budget.

Lives here:
  - ``learned_domains``: categories. ``learned_ranges``: bins of numbers, dates and times.
    ``learned_gaps``: how far rows of one owner are apart.

Does not live here: domains that a plan declares (``schema``).

Start with ``learned_ranges``.
"""

"""Questions that are sums over units: each unit's vector is cut to a length, and noise hides that length.

Lives here:
  - ``centred_counts``: rows of a unit, counted around what all rows show. ``clipped_counts``: links within units.
  - ``public_row_sums``: links to public rows. ``sibling_moments``: what rows of one owner have in common.
    ``order_moments``: in what order they come.

Does not live here: the exact sums (``privacy``).

Start with ``centred_counts``.
"""

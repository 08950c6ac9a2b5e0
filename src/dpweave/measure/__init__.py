"""Questions that clients ask through a window, and what their noisy answers say.

Lives here:
  - ``design``: which counts are worth their noise. ``margins``: shares of values.
    ``cross_workloads``: sets of columns on both sides of a relation.
  - ``centred_counts``, ``clipped_counts``, ``public_row_sums``: three ways to count rows of units with little noise.
  - ``expected_error``: how far off counts with noise are, in one figure.
  - ``purse``: what a client may still spend.

Does not live here: exact counts and noise (``privacy``), and the plan.

Start with ``design``.
"""

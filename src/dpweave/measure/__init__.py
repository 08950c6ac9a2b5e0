"""Questions that clients ask through a window, and what their noisy answers say.

Lives here:
  - ``design``: which counts are worth their noise. ``margins``: shares of values.
    ``cross_workloads``: sets of columns on both sides of a relation.
  - ``expected_error``: how far off counts with noise are, in one figure.
  - ``question``: one question, which knows its noise and asks itself. ``estimates``: what its answer says.
    ``answers``: counts of one table, added up and averaged.
  - ``per_unit``: questions about rows of units, put with little noise.
  - ``dependence``: whether columns go together beyond chance.
  - ``purse``: what a client may still spend.

Does not live here: exact counts and noise (``privacy``), and the plan.

Start with ``question``.
"""

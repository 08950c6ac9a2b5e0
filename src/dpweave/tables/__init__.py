"""Table mechanisms: from noisy marginals of one table to rows of codes. Clients of the wall, which never hold rows.

Lives here:
  - ``base``: what a mechanism is. One file per mechanism: ``aim``, ``mst``, ``independent``, ``woven``, ``external``;
    ``auto`` chooses one. The name of the file is the name in the plan (``dpweave.plan.mechanisms``).
  - ``graphical``: graphical models from noisy marginals. ``session`` and ``reduction``: what such mechanisms share.
  - ``domains``: ranges and categories learned under the budget.
  - ``owned_row_counts``: how many rows owners have. ``centred_rows``: counts of owned rows.

Does not live here: sources, exact counts, the Curator. Links may not import tables.

Start with ``base``, then ``mst``.
"""

"""Graphical models estimated from noisy marginals.

Lives here: ``junction_tree`` (which joint tables are needed), ``inference`` (sum-product), ``estimation``
(mirror descent), ``mbi_estimation`` (the same by mbi, for large models), ``sub_marginals`` (sums that are
shared), ``row_generation`` (rows from expected counts), ``dependencies`` (columns that follow from others) and
``graphical_table`` (the fitted table).

Does not live here: what to measure. That is a mechanism's choice (``tables.aim``, ``tables.mst``).

Start with ``graphical_table``, then ``estimation``.
"""

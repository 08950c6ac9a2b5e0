"""The order of the questions that a fit asks. Here the budget is spent.

Lives here:
  - ``fit``: from a source and a plan to a model. ``measured_sizes``: numbers of rows and degrees.
    ``link_learning``: relation after relation, as weaving comes to it. ``sibling_learning``: what rows of one owner
    have in common. ``order_learning``: in what order they come. ``unit_windows``: windows for unit sums.
  - ``refit``: from a release to another model, without a question. ``replanning``: what its plan may change.
    ``learned_tables``: tables learned from what a release says of them.
  - ``link_tables``: ``dw.link()``, for two tables that were made by any mechanism.
  - ``external_rows``: tables made by another mechanism are read and checked.
  - ``rule_structure``: what the rules of a plan mean for table models.

Does not live here: how a table or a relation is learned (``tables``, ``links``), and what a count costs (``privacy``).

Start with ``fit``: one straight page, top to bottom.
"""

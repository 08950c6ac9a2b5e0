"""Link methods: which synthetic rows belong together. Clients of the wall, which never hold rows.

Lives here:
  - ``link_method``: what a method is and how it is found. ``relation_model``: the method of one relation of a plan.
  - ``map_learner`` (the default) with ``link_fit``, ``fit_inputs``,
    ``prior_variances``, ``row_types``, ``evidence`` and ``draw_links``.
  - ``pgd_learner``, the paper's method, with the folder ``relaxed``.
  - ``degrees``, ``degrees_by_values``, ``popularity``: how many links each row has. ``wiring``: links as exact pairs.

Does not live here: sources, exact counts, the Curator, and tables.

Start with ``link_method``, then ``map_learner``.
"""

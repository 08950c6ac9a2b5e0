"""Comparison of a synthetic database with the real one. NOT PRIVATE: every figure is made from real rows.

Lives here:
  - ``evaluate``: the public function and its result.
  - ``figures``: its values. ``comparisons``: errors over sets of columns, degrees,
    association. ``unit_comparisons``: what rows of one owner have in common, and their order.
    ``distances``: the formulas.
  - ``learners``: figures that train a model. ``baselines``: what a copy is compared with.
  - ``evaluation_page``: the result as text and as a page.

Does not live here: anything that ``fit``, ``sample`` or ``report`` use. Nothing below may import this package.

Start with ``evaluate``.
"""

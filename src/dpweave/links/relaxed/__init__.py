"""The relaxed problem of the paper: weights between 0 and 1, descended, projected and rounded.

Lives here: ``gradient_descent``, ``projections`` onto feasible sets, ``exact_rounding``, ``random_slices``,
``dense_block``, and one module per kind of relationship: ``many_to_many``, ``one_to_many``, ``one_to_one``.

Does not live here: what is measured. That is ``links.pgd_learner``.

Start with ``gradient_descent``.
"""

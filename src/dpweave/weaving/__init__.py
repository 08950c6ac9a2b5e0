"""From fitted tables and links to whole rows, with keys that hold. Everything here is post-processing.

Lives here:
  - ``weaver``: the order of the work. ``blueprint``: what is woven from. ``state``: rows, codes and links so far.
  - ``parts``: large databases in parts.
  - ``key_targets``, ``unit_composition``, ``acyclic_keys``: where foreign keys lead.
  - ``values``: codes become values. ``rule_repair``: the rules of the plan are kept.

Does not live here: anything that asks the rows. Weaving sees a model and a seed, and nothing else.

Start with ``weaver``.
"""

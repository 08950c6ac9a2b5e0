"""From fitted tables and links to whole rows, with keys that hold. Everything here is post-processing.

Lives here:
  - ``weaver``: the order of the work. ``blueprint``: what is woven from. ``state``: rows, codes and links so far.
  - ``drawn_rows``: rows and degrees. ``link_problems``: what is to be linked. ``known_links``: links from fits.
  - ``key_targets``, ``unit_composition``, ``places_with_targets``: where foreign keys lead. ``rows_in_order``: when
    rows of one owner come. ``parts``: large databases.
  - ``keys_and_values``: codes become values, keys and an order of rows. ``kept_rules``: the rules of the plan are kept.

Does not live here: anything that asks the rows. Weaving sees a model and a seed, and nothing else.

Start with ``weaver``.
"""

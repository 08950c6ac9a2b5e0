"""The rules of a plan, kept by the rows of a copy.

Lives here:
  - ``rule_repair``: rules of one row; ``order_in_rows``: orders of its columns, before links are made.
  - ``declared_rules``: rules about keys and links.
  - ``acyclic_keys``: rows that lead to rows of their own table without a circle. ``never_back``: columns that only go
    on as rows of one owner follow each other.

Does not live here: what a rule says (``plan``), and what models know of it (``fitting``).

Start with ``declared_rules``.
"""

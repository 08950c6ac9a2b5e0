"""SQLite files.

``catalogue`` reads tables and keys, ``types`` maps types both ways, ``source`` counts private
rows, ``sink`` writes a copy. Only the Curator may use ``source``. Start with ``source``.
"""

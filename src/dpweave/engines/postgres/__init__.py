"""PostgreSQL servers.

``connection`` connects and words errors, ``catalogue`` reads tables and keys, ``types``
maps types both ways, ``source`` counts private rows on the server, ``sink`` writes a
copy in one transaction. Only the Curator may use ``source``. Start with ``connection``.
"""

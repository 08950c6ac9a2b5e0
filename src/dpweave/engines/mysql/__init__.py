"""MySQL and MariaDB servers.

``connection`` connects and words errors, ``catalogue`` reads tables and keys, ``types`` maps types both ways,
``reading`` spells how each stored type is read, ``compiler`` turns Ibis expressions into SQL, ``source`` counts private
rows on the server, ``sink`` writes a copy beside what is there and renames it. Only the Curator may use ``source``.
Start with ``reading``: it says what a text, a date or a number of MySQL is to us.
"""

"""Databases to read from and to write to: one folder per engine, with catalogue, types, source and sink.

Lives here:
  - ``opening``: which engine opens a source. ``writing``: which engine writes a target. One line each per engine.
  - ``source_base``: what every source is. ``ddl``, ``stream``, ``spill``, ``staging``: what sinks share.
  - ``stored_tables``: tables of an open source or in temporary files, read in batches by whoever compares copies.
  - ``large_arrays``: arrays with a number for each row, on disk where they are large.
  - ``gathered_columns``: columns that say what lies behind public junctions, joined.
  - ``catalogue_rows``: what the catalogues of SQL engines share. ``file_locks``: files that a process holds.

Does not live here: anything about privacy. Sources hand over what the Curator asks for, and nobody else may ask.

Start with ``source_base``, then the folder ``duckdb``.
"""

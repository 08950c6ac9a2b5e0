"""Folders of Parquet or CSV files.

``data_package`` keeps types and keys beside the files (Frictionless), ``source`` reads them through
DuckDB, ``sink`` writes them. Only the Curator may use ``source``. Start with ``data_package``.
"""

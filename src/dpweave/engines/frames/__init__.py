"""Data frames in memory: pandas, polars, pyarrow, or anything that exports Arrow.

``source`` reads them through DuckDB. There is no sink: a synthetic database is a mapping of Arrow tables already.
"""

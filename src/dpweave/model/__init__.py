"""What was learned, as a value and as a file, and the synthetic database that is drawn from it.

Lives here:
  - ``model``: the public class ``Model``, and ``load``. ``file_format``: the entries of a model file.
  - ``own_words``: what digests are of, in the words of the version that wrote a model.
  - ``verification``: whether a certificate is true, worked out from the release.
  - ``extension``: two fits of one database as one release, and their total.
  - ``synthetic_database``: what ``Model.sample`` returns, and how it is written.
  - ``part_workers``: processes that weave the parts of a large copy at the same time.
  - ``spark_copy``: the same by executors of Spark, which write from there.
  - ``coded_database``: Arrow tables as codes and positions, for the report and the evaluation.

Does not live here: private rows. The import contract keeps this package away from sources and from the Curator.

Start with ``model``.
"""

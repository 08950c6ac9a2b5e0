"""Bring two synthetic tables from any mechanism, and let dpweave learn only the links between them."""

import numpy as np
import pandas as pd

import dpweave as dw

rng = np.random.default_rng(1)
readers = pd.DataFrame({"reader": np.arange(3000), "age": rng.choice(["old", "young"], 3000)})
books = pd.DataFrame({"book": np.arange(1000), "genre": rng.choice(["crime", "poetry"], 1000)})
likes = {"old": books.index[books.genre == "poetry"], "young": books.index[books.genre == "crime"]}
loans = pd.DataFrame(
    [(r, b) for r in range(3000) for b in rng.choice(likes[readers.age[r]], 4, replace=False)],
    columns=["reader", "book"],
)

# Synthetic tables from wherever you like; here they are simply drawn anew.
fake_readers = pd.DataFrame({"age": rng.choice(["old", "young"], 3000)})
fake_books = pd.DataFrame({"genre": rng.choice(["crime", "poetry"], 1000)})

links = dw.link(
    readers,
    books,
    loans,
    left_key="reader",
    right_key="book",
    synthetic_left=fake_readers,
    synthetic_right=fake_books,
    kind="many-to-many",
    max_degree=(4, 25),
    k=2,
    epsilon=2.0,
    delta=1e-6,
    neighbours="entity",
    method="map",
)
print(links.certificate)
found = links.pairs.to_pandas()
joined = pd.crosstab(fake_readers.age.iloc[found.left].to_numpy(), fake_books.genre.iloc[found.right].to_numpy())
print(joined)

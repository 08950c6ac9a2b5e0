"""Types of arrays, and what is done to arrays in every room."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]


def running_number(group: IntArray) -> IntArray:
    """Number the members of each group from 0, in order.

    >>> running_number(np.array([3, 1, 3, 3, 1]))
    array([0, 0, 1, 2, 1])
    """
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(group) else np.zeros(0, dtype=np.int64)
    lengths = np.diff(np.r_[starts, len(group)])
    number = np.empty(len(group), dtype=np.int64)
    number[order] = np.arange(len(group)) - np.repeat(starts, lengths)
    return number

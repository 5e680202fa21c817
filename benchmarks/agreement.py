"""Compares the scores of different tools."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def differs(theirs: Any, ours: Any, tolerance: float) -> NDArray[np.bool_]:
    """Where two tools are further apart than ``tolerance``; a score that is none agrees with none.

    >>> differs([0.5, float("nan"), None], [0.5, 0.5, None], 1e-9).tolist()
    [False, True, True]
    """
    with np.errstate(invalid="ignore"):  # inf - inf is NaN
        apart = np.abs(np.asarray(theirs, np.float64) - np.asarray(ours, np.float64))
    return np.asarray(~(apart <= tolerance))  # not `>`: no comparison with NaN holds

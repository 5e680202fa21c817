"""What to do where the packages of an extra are not installed."""

from __future__ import annotations


def install_hint(what: str, package: str, extra: str) -> str:
    """The message for ``what`` that needs ``package``, which ``extra`` of this package installs.

    >>> install_hint("Parquet", "pyarrow", "parquet")
    "Parquet needs pyarrow. In a clone of stream-metrics, run: pip install '.[parquet]'"
    """
    return f"{what} needs {package}. In a clone of stream-metrics, run: pip install '.[{extra}]'"

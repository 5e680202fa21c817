"""Write everything in ``docs`` that is made from code: ``python -m docs.generate``."""

from __future__ import annotations

from pathlib import Path

from stream_metrics.cli import docs as reference
from stream_metrics.events import schema


def main() -> None:
    """The contract, the table of rejections, and the pages about metrics and settings."""
    folder = Path(__file__).parent
    schema.write(folder)
    reference.write(folder)


if __name__ == "__main__":
    main()

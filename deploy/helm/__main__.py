"""``python -m deploy.helm FOLDER``: write a complete chart to the folder, and print its path."""

from __future__ import annotations

import sys
from pathlib import Path

from deploy.helm import write_chart

if __name__ == "__main__":
    print(write_chart(Path(sys.argv[1])))

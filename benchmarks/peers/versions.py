"""``python -m benchmarks.peers.versions NAME…``: which versions are installed, as JSON."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

if __name__ == "__main__":
    print(json.dumps({name: version(name) for name in sys.argv[1:]}))

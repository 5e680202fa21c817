"""Stores captures for the quick tests: ``python -m tests.conformance.keep FOLDER…``."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Final

from tests.conformance.verdicts import interpret_lines, verdict

CAPTURES: Final = Path(__file__).parents[1] / "data" / "conformance"


def keep(folder: Path) -> None:
    """Store a program's traces with their verdict, unless that is wrong."""
    lines = (folder / "traces.jsonl").read_text().splitlines()
    account = json.loads((folder / "truth.json").read_text())
    found = verdict(interpret_lines(lines), [tuple(row) for row in account])
    if found.kind == "WRONG":
        raise SystemExit(f"{folder.name}: {found.why}")
    place = CAPTURES / "accounts.json"
    accounts = json.loads(place.read_text()) if place.exists() else {}
    accounts[folder.name] = {"account": account, "verdict": [found.kind, found.why]}
    packed = gzip.compress("".join(line + "\n" for line in lines).encode(), 9, mtime=0)
    (CAPTURES / f"{folder.name}.jsonl.gz").write_bytes(packed)
    rows = (f" {json.dumps(name)}: {json.dumps(accounts[name])}" for name in sorted(accounts))
    place.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    CAPTURES.mkdir(exist_ok=True)
    for name in sys.argv[1:]:
        keep(Path(name))

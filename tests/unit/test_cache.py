"""Files that are fetched or built once per user."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from deploy.local.cache import made


def test_concurrent_requests_build_a_file_once(tmp_path: Path) -> None:
    """All get the same complete file, which one of them has built."""
    path, together, makers = tmp_path / "cache" / "tool", Barrier(4), list[Path]()

    def make(unfinished: Path) -> None:
        makers.append(unfinished)
        unfinished.write_text("whole")

    def ask(_: int) -> str:
        together.wait(10)
        return made(path, make).read_text()

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(ask, range(4))) == {"whole"}
    assert len(makers) == 1


def test_a_failed_build_is_tried_again_next_time(tmp_path: Path) -> None:
    """A failure leaves nothing under the name, not even a partial file."""
    path = tmp_path / "tool"

    def fail(unfinished: Path) -> None:
        unfinished.write_text("half")
        raise RuntimeError("the network is away")

    with pytest.raises(RuntimeError, match="away"):
        made(path, fail)
    assert [one.name for one in tmp_path.iterdir()] == ["tool.lock"]
    assert made(path, lambda unfinished: Path.touch(unfinished)) == path
    assert path.exists()

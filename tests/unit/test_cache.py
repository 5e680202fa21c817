"""What is fetched or built once per user."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from deploy.local.cache import made


def test_it_is_made_once_however_many_ask_for_it(tmp_path: Path) -> None:
    """All of those who ask at once get the same whole thing, which one of them has made."""
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


def test_what_could_not_be_made_is_made_the_next_time(tmp_path: Path) -> None:
    """A failure leaves nothing under the name, nor anything that is half done."""
    path = tmp_path / "tool"

    def fail(unfinished: Path) -> None:
        unfinished.write_text("half")
        raise RuntimeError("the network is away")

    with pytest.raises(RuntimeError, match="away"):
        made(path, fail)
    assert [one.name for one in tmp_path.iterdir()] == ["tool.lock"]
    assert made(path, lambda unfinished: Path.touch(unfinished)) == path
    assert path.exists()

"""The folder with the data and logs of ``make stack``: a temporary one, or one that is kept."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local.process import ServerFailed

KEY_FILE = "digest.key"


class Folder:
    """The folder of one stack; ``named`` is the user's, which may have data of an earlier stack."""

    def __init__(self, named: Path | None = None, *, keep: bool = False) -> None:
        self._kept = keep or named is not None
        self.path = Path(tempfile.mkdtemp(prefix="stream-metrics-")) if named is None else named
        self.path = self.path.resolve()
        self.path.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[Path]:
        """Its path, while no other stack uses it; raises ``ServerFailed`` if one does."""
        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ServerFailed(
                    f"another stack runs in {self.path}; stop it, or name another folder"
                ) from None
            yield self.path

    def leave(self, code: int) -> str | None:
        """Delete it after a stack that ended with this exit code, or say where it is.

        It stays if it is to be kept, or if the stack failed and there are logs that may say why.
        """
        if self._kept or (code != 0 and any(self.path.glob("*/*.log"))):
            return (
                f"data and logs are kept: {self.path}\n"
                f'to go on with them: make stack STACK="--folder {self.path}"'
            )
        shutil.rmtree(self.path, ignore_errors=True)
        return None


def digest_key(folder: Path) -> str:
    """The digest key of the state in this folder, which is made if there is none."""
    file = folder / KEY_FILE
    if not file.exists():
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as made:
            made.write(secrets.token_hex(32))
    return file.read_text()

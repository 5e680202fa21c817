"""Secrets, which are settings or lie in files that settings name."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr


def read_secret(secret: SecretStr | None, file: Path | None) -> str | None:
    """A secret from its setting or from its file; raises ``OSError`` and ``ValueError``."""
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").strip()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{file}: not text in UTF-8. `openssl rand -hex 32` writes a key that is"
            ) from error
    return secret.get_secret_value() if secret is not None else None

"""Secrets, which are settings or lie in files that settings name."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from stream_metrics.clients.setting_files import read_text


def read_secret(secret: SecretStr | None, file: Path | None, name: str) -> str | None:
    """A secret, or the content of ``file``, which the setting ``name`` names and which takes
    precedence; None without either. Raises ``UnreadableFile``."""
    if file is not None:
        return read_text(name, file).strip()
    return secret.get_secret_value() if secret is not None else None

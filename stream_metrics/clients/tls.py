"""Loads TLS certificates; errors say which setting is wrong."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from stream_metrics.clients.setting_files import check_readable


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A certificate and its key, which may be in the same file and may be encrypted.

    ``names`` are the settings of the certificate, of the key and of its password.
    """

    names: tuple[str, str, str]
    certificate: Path | None = None
    key: Path | None = None
    password: str | None = field(default=None, repr=False)

    def load(self, context: ssl.SSLContext) -> None:
        """Load the certificate, if set, into ``context``; ``ValueError`` for unusable files."""
        certificate, key, password = self.names
        if self.certificate is None:
            if self.key is not None:
                raise ValueError(f"`{key}` without `{certificate}`; set both or neither")
            return
        for name, path in ((certificate, self.certificate), (key, self.key)):
            if path is not None:
                check_readable(name, path)
        try:
            # Without a password, OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(self.certificate, self.key, self.password or "")
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(
                f"{certificate} {self.certificate}: {_reason(error)}; certificate and key must be "
                f"PEM and match, and an encrypted key needs the right `{password}`"
            ) from None


def client_context(name: str, path: Path | None) -> ssl.SSLContext:
    """A client context that trusts only the certificates of a file, or the system's without one.

    Raises ``ValueError`` for a file without certificates.
    """
    if path is None:
        return ssl.create_default_context()
    check_readable(name, path)
    try:
        return ssl.create_default_context(cafile=str(path))
    except ssl.SSLError as error:
        raise ValueError(
            f"{name} {path}: {_reason(error)}; it must hold PEM certificates"
        ) from None


def _reason(error: Exception) -> str:
    """The library's reason, without the location in its source."""
    reason = getattr(error, "reason", None) or "it cannot be loaded"
    return str(reason).replace("_", " ").lower()

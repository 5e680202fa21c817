"""Certificates of our own, loaded with an error that says which setting is wrong."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """A certificate with its key, which may lie in the same file and may be encrypted.

    ``names`` are the settings of the certificate, of the key and of its password.
    """

    names: tuple[str, str, str]
    certificate: Path | None = None
    key: Path | None = None
    password: str | None = field(default=None, repr=False)

    def load(self, context: ssl.SSLContext) -> None:
        """Let ``context`` show it, if there is one; ``ValueError`` for files that are unfit."""
        certificate, key, password = self.names
        if self.certificate is None:
            if self.key is not None:
                raise ValueError(f"`{key}` without `{certificate}`; set both or neither")
            return
        for name, path in ((certificate, self.certificate), (key, self.key)):
            if path is not None:
                readable(name, path)
        try:
            # without a password of ours OpenSSL would ask for one at the terminal
            context.load_cert_chain(self.certificate, self.key, self.password or "")
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(
                f"{certificate} {self.certificate}: {_reason(error)}; certificate and key must be "
                f"PEM and match, and an encrypted key needs the right `{password}`"
            ) from None


def readable(name: str, path: Path) -> None:
    """Raise ``ValueError`` unless the file of a setting can be read."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise ValueError(f"{name} {path}: {error.strerror}") from None


def trusting(name: str, path: Path | None) -> ssl.SSLContext:
    """A client's context that trusts the certificates of a file only, or the system's without one;
    ``ValueError`` for a file that has none."""
    if path is None:
        return ssl.create_default_context()
    readable(name, path)
    try:
        return ssl.create_default_context(cafile=str(path))
    except ssl.SSLError as error:
        raise ValueError(
            f"{name} {path}: {_reason(error)}; it must hold PEM certificates"
        ) from None


def _reason(error: Exception) -> str:
    """What the library says, which is little, without a place in its source."""
    reason = getattr(error, "reason", None) or "it cannot be loaded"
    return str(reason).replace("_", " ").lower()

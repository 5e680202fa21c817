"""Short-lived certificates for servers on the loopback interface, created with openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from deploy.local.install import OPENSSL, program

DAYS = "30"
NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Two PEM files: a certificate and its private key."""

    certificate: Path
    key: Path

    def combined_file(self) -> Path:
        """Both in one file, as Kafka needs them."""
        file = self.key.with_suffix(".pem")
        file.write_bytes(self.key.read_bytes() + self.certificate.read_bytes())
        return file


class Authority:
    """A certificate authority with its files in ``folder``; clients trust ``certificate``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder.resolve()
        self.certificate = self._folder / "ca.crt"
        self._key = self._folder / "ca.key"
        _openssl(
            *("req", "-x509", "-days", DAYS, "-subj", "/CN=authority of the tests", "-nodes"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-addext", "keyUsage=critical,keyCertSign"),
            *("-keyout", str(self._key), "-out", str(self.certificate)),
        )

    def issue(self, name: str, password: str | None = None) -> Certificate:
        """A certificate for ``localhost``, whose key is encrypted if there is a password."""
        made = Certificate(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"{NAMES}\nextendedKeyUsage=serverAuth,clientAuth\n")
        secret = ["-nodes"] if password is None else ["-passout", "env:PASSWORD"]
        _openssl(
            *("req", "-new", "-subj", f"/CN={name}", *secret),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-keyout", str(made.key), "-out", str(request)),
            password=password,
        )
        _openssl(
            *("x509", "-req", "-days", DAYS, "-in", str(request), "-extfile", str(extensions)),
            *("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial"),
            *("-out", str(made.certificate)),
        )
        return made


def _openssl(*arguments: str, password: str | None = None) -> None:
    environment = {"PASSWORD": password} if password is not None else {}
    done = subprocess.run(
        [program(OPENSSL), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]} failed:\n{done.stderr[-2000:]}")

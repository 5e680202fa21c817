"""Kubernetes' API server and its etcd, built from their Go modules once per user.

There is no cluster behind them: they check and keep objects, and nothing runs.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp

from deploy.local.cache import cached, made
from deploy.local.certificates import Authority
from deploy.local.golang import run_go
from deploy.local.process import ChildProcess, free_port

FOLDER: Final = Path(__file__).parent
SOURCES: Final = ("go.mod", "go.sum", "etcd/main.go")
TOKEN: Final = "of-the-tests"  # noqa: S105 - for a server that only this machine reaches
_TIMEOUT: Final = aiohttp.ClientTimeout(total=60)

Document = dict[str, Any]


def build_apiserver(go: str) -> Path:
    """The folder with ``kube-apiserver`` and ``etcd``, which are built if they do not exist.

    The first build takes nine minutes of processor time. Raises ``RuntimeError``.
    """
    text = "\0".join((FOLDER / name).read_text(encoding="utf-8") for name in SOURCES)

    def build(folder: Path) -> None:
        folder.mkdir()
        linked = f"-s -w -X k8s.io/component-base/version.gitVersion={_version()}"
        flags = ["-trimpath", "-buildvcs=false", f"-ldflags={linked}", "-o", f"{folder}/"]
        run_go(go, FOLDER, ["build", *flags, "tool", "./etcd"], "kube-apiserver and etcd")

    return made(cached(f"apiserver-{hashlib.sha256(text.encode()).hexdigest()[:12]}"), build)


def _version() -> str:
    """The version of Kubernetes that go.mod names, which a release has in its binaries."""
    found = re.search(r"k8s\.io/kubernetes (v\S+)", (FOLDER / "go.mod").read_text("utf-8"))
    if found is None:
        raise RuntimeError(f"{FOLDER / 'go.mod'} names no version of Kubernetes")
    return found[1]


class Etcd(ChildProcess):
    """One etcd, without protection on the loopback interface."""

    name = "etcd"

    def __init__(self, folder: Path, programs: Path) -> None:
        super().__init__(folder)
        self._programs = programs
        self.url = f"http://127.0.0.1:{free_port()}"
        self._peers = f"http://127.0.0.1:{free_port()}"

    def command(self) -> list[str]:
        """The program with its addresses."""
        return [
            str(self._programs / "etcd"),
            f"--data-dir={self.folder / 'data'}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={self._peers}",
            f"--initial-advertise-peer-urls={self._peers}",
            f"--initial-cluster=default={self._peers}",
        ]

    async def ready(self) -> bool:
        """Whether it is healthy."""
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT) as session,
                session.get(f"{self.url}/health") as answer,
            ):
                return answer.status == 200
        except (aiohttp.ClientError, OSError):
            return False


class ApiServer(ChildProcess):
    """An API server on an etcd that runs; everybody with the token may do everything."""

    name = "kube-apiserver"
    start_seconds = 120.0

    def __init__(self, folder: Path, programs: Path, etcd: Etcd) -> None:
        super().__init__(folder)
        self._programs, self._etcd = programs, etcd
        self.authority = Authority(folder / "certificates")
        self._own, self._tokens = self.authority.issue("server"), self.authority.issue("tokens")
        self._port = free_port()
        self.url = f"https://127.0.0.1:{self._port}"

    async def prepare(self) -> None:
        """Write the file with the token."""
        (self.folder / "tokens.csv").write_text(f"{TOKEN},tests,tests,system:masters\n", "utf-8")

    def command(self) -> list[str]:
        """The program; objects are checked as in a cluster, except that accounts need not exist."""
        return [
            str(self._programs / "kube-apiserver"),
            f"--etcd-servers={self._etcd.url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={self._own.certificate}",
            f"--tls-private-key-file={self._own.key}",
            f"--service-account-key-file={self._tokens.certificate}",
            f"--service-account-signing-key-file={self._tokens.key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
        ]

    async def ready(self) -> bool:
        """Whether it says so."""
        try:
            return (await self.request("GET", "/readyz"))[0] == 200
        except (aiohttp.ClientError, OSError):
            return False

    async def request(
        self, method: str, path: str, body: Document | None = None, **query: str
    ) -> tuple[int, str, list[str]]:
        """Send a request; returns the status, the answer and the warnings of the server."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT, headers=headers) as session,
            session.request(
                method, f"{self.url}{path}", json=body, params=query, ssl=context
            ) as answer,
        ):
            return answer.status, await answer.text(), answer.headers.getall("Warning", [])

    def kubeconfig(self) -> Path:
        """A file by which ``helm`` finds this server."""
        path = self.folder / "kubeconfig"
        path.write_text(
            f"""\
apiVersion: v1
kind: Config
current-context: tests
contexts: [{{name: tests, context: {{cluster: tests, user: tests}}}}]
clusters:
  - name: tests
    cluster: {{server: {self.url}, certificate-authority: {self.authority.certificate}}}
users: [{{name: tests, user: {{token: {TOKEN}}}}}]
""",
            encoding="utf-8",
        )
        return path

    def environment(self) -> Mapping[str, str]:
        """Nothing of the user's own cluster."""
        return {"KUBECONFIG": ""}

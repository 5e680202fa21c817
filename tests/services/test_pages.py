"""The pages of a worker process with TLS and basic auth, requested as by Prometheus."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from deploy.local.certificates import Authority
from deploy.local.process import ServerFailed
from stream_metrics.live.auth import hash_password
from tests.helpers import wait_until
from tests.services.live import Worker

NOWHERE = "127.0.0.1:1"
PASSWORD = "pg-4711-secret"
RIGHT = ("prometheus", PASSWORD)
USERS = {name: hash_password(PASSWORD, cost=4) for name in ("prometheus", "grafana")}


@dataclass(frozen=True, slots=True)
class Secured:
    """A worker without Kafka and Redis, which serves its pages nevertheless; clients trust it."""

    worker: Worker
    trust: ssl.SSLContext

    async def get(
        self, path: str, auth: tuple[str, str] | None = None, *, scheme: str = "https"
    ) -> tuple[int, str]:
        """Status and body of a page; raises aiohttp's errors."""
        headers = {"Authorization": aiohttp.encode_basic_auth(*auth)} if auth else {}
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.get(
                f"{scheme}://{self.worker.address}{path}", ssl=self.trust, headers=headers
            ) as answer,
        ):
            return answer.status, await answer.text()


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    """A worker with a user in the environment, one in a file, and an encrypted key."""
    authority = Authority(tmp_path / "ca")
    own = authority.issue("pages", "key-4711-secret")
    users, password = tmp_path / "users", tmp_path / "key-password"
    users.write_text(f"grafana:{USERS['grafana']}\n")
    password.write_text("key-4711-secret\n")
    worker = Worker(
        tmp_path / "worker",
        "worker",
        {
            "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": NOWHERE,
            "STREAM_METRICS_REDIS__URL": f"redis://{NOWHERE}/0",
            "STREAM_METRICS_STATE__DIGEST_KEY": "a secret of the tests",
            "STREAM_METRICS_WEB__TLS_CERTIFICATE": str(own.certificate),
            "STREAM_METRICS_WEB__TLS_KEY": str(own.key),
            "STREAM_METRICS_WEB__TLS_KEY_PASSWORD_FILE": str(password),
            "STREAM_METRICS_WEB__USERS": json.dumps({"prometheus": USERS["prometheus"]}),
            "STREAM_METRICS_WEB__USERS_FILE": str(users),
        },
    )
    pages = Secured(worker, ssl.create_default_context(cafile=str(authority.certificate)))

    async def serves() -> bool:
        if not worker.running:
            raise ServerFailed(worker.log_tail())
        try:
            return (await pages.get("/healthz"))[0] == 200
        except aiohttp.ClientConnectorError:
            return False

    worker.folder.mkdir()
    worker.launch()
    try:
        await wait_until(serves, 60, worker.log_tail)
        yield pages
    finally:
        worker.kill9()


@pytest.mark.parametrize("user", USERS)
async def test_users_see_the_metrics(secured: Secured, user: str) -> None:
    """Users in the settings and in the file get the page by HTTPS."""
    status, body = await secured.get("/metrics", (user, PASSWORD))

    assert status == 200
    assert "streammetrics_ready 0.0" in body


@pytest.mark.parametrize(
    "auth",
    [
        None,
        ("prometheus", "wrong"),
        ("nobody", PASSWORD),
        ("prometheus", USERS["prometheus"]),
    ],
    ids=["none", "wrong password", "unknown user", "the hash itself"],
)
async def test_others_get_401(secured: Secured, auth: tuple[str, str] | None) -> None:
    """Without user and password every path gets a 401, whether it exists or not."""
    for path in ("/metrics", "/", "/elsewhere"):
        answer = await secured.get(path, auth)
        assert answer == (401, "A user and a password are needed.\n"), path


async def test_probes_are_public_and_give_reasons_only_to_users(secured: Secured) -> None:
    """`/readyz` tells everyone whether the worker is ready, and users why."""
    assert await secured.get("/readyz") == (503, '{"ready": false}')

    status, body = await secured.get("/readyz", RIGHT)

    assert status == 503
    assert "redis" in json.loads(body)["reasons"]


async def test_plain_http_is_not_answered(secured: Secured) -> None:
    """Requests without TLS get no page."""
    with pytest.raises(aiohttp.ClientError):
        await secured.get("/healthz", scheme="http")


async def test_pages_of_faust_are_not_served(secured: Secured) -> None:
    """Tables, routes, statistics and graphs of the framework are served to nobody."""
    for path in ("/graph/", "/table/", "/router/", "/stats/", "/table/some/key/"):
        assert (await secured.get(path, RIGHT))[0] == 404, path

"""The options that all Kafka clients share, and an admin client with them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient

from stream_metrics.clients.kafka.aiokafka_private import bound_batches
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.secrets import read_secret
from stream_metrics.clients.setting_files import check_readable
from stream_metrics.clients.tls import CertificateFiles, client_context

ANSWER_WITHIN_MS: Final = 4_000  # of one request, after which the service retries


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """Keyword arguments that consumers, producers and admin clients share.

    Also sets the limit of decompressed batches for this process.
    """
    bound_batches(settings.max_batch_bytes)
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "client_id": settings.client_id,
        "request_timeout_ms": settings.request_timeout_ms,
        "metadata_max_age_ms": settings.metadata_max_age_ms,
        "security_protocol": settings.security_protocol,
    }
    if "SSL" in settings.security_protocol:
        options["ssl_context"] = _ssl_context(settings)
    if settings.security_protocol.startswith("SASL"):
        options |= _sasl_options(settings)
    return options


def prompt_options(settings: KafkaSettings) -> dict[str, Any]:
    """``client_options`` for the producers of a service, which reports what it waits for."""
    options = client_options(settings)
    timeout_ms = min(options["request_timeout_ms"], ANSWER_WITHIN_MS)
    return options | {"request_timeout_ms": timeout_ms}


@asynccontextmanager
async def open_admin(settings: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connected admin client; raises aiokafka's errors."""
    admin = AIOKafkaAdminClient(**client_options(settings))
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


def _ssl_context(settings: KafkaSettings) -> ssl.SSLContext:
    """TLS that verifies brokers and their host names; raises ``ValueError`` for unusable files."""
    context = client_context("kafka.ssl_ca_file", settings.ssl_ca_file)
    CertificateFiles(
        ("kafka.ssl_certificate_file", "kafka.ssl_key_file", "kafka.ssl_key_password"),
        settings.ssl_certificate_file,
        settings.ssl_key_file,
        read_secret(
            settings.ssl_key_password,
            settings.ssl_key_password_file,
            "kafka.ssl_key_password_file",
        ),
    ).load(context)
    return context


def _sasl_options(settings: KafkaSettings) -> dict[str, Any]:
    mechanism = settings.sasl_mechanism
    if mechanism == "OAUTHBEARER":
        if settings.sasl_token_file is None:
            raise ValueError("`kafka.sasl_mechanism` OAUTHBEARER needs `kafka.sasl_token_file`")
        check_readable("kafka.sasl_token_file", settings.sasl_token_file)
        provider = _TokenFile(settings.sasl_token_file)
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": provider}
    password = read_secret(
        settings.sasl_password, settings.sasl_password_file, "kafka.sasl_password_file"
    )
    if settings.sasl_username is None or password is None:
        raise ValueError(
            f"`kafka.security_protocol` {settings.security_protocol} needs `kafka.sasl_username` "
            "and `kafka.sasl_password`, or `kafka.sasl_password_file`"
        )
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": settings.sasl_username,
        "sasl_plain_password": password,
    }


class _TokenFile(AbstractTokenProvider):  # type: ignore[misc]
    """An OAuth token, read from a file that another process refreshes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> str:
        """The token; raises ``OSError``, after which aiokafka connects again."""
        return self._path.read_text(encoding="utf-8").strip()

    async def token(self) -> str:
        """See ``AbstractTokenProvider.token``."""
        return await asyncio.get_running_loop().run_in_executor(None, self.read)

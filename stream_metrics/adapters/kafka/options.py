"""What every Kafka client of ours is made with."""

from __future__ import annotations

from typing import Any

from aiokafka.helpers import create_ssl_context

from stream_metrics.adapters.kafka.unpacking import bound_batches
from stream_metrics.settings import KafkaSettings, read_secret


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """Keyword arguments that consumers, producers and admin clients share.

    Also sets what a batch may be, for whichever of them reads.
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
        options["ssl_context"] = create_ssl_context(
            cafile=_path(settings.ssl_ca_file),
            certfile=_path(settings.ssl_certificate_file),
            keyfile=_path(settings.ssl_key_file),
        )
    if settings.security_protocol.startswith("SASL"):
        options["sasl_mechanism"] = settings.sasl_mechanism
        options["sasl_plain_username"] = settings.sasl_username
        secret = read_secret(settings.sasl_password, settings.sasl_password_file)
        options["sasl_plain_password"] = secret
    return options


def _path(path: object) -> str | None:
    return None if path is None else str(path)

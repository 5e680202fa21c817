"""A second listener, for clients that must authenticate.

Clients use TLS, and authenticate with any SASL mechanism, or with a certificate if ``mutual``. On
the first listener, everyone has all rights; on this one, clients have those granted to them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int8, Int16, Int32, Schema, String

from deploy.local.certificates import Authority

SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MODULE = "org.apache.kafka.common.security"
ITERATIONS = 4_096
RESOURCES = {"topic": 2, "group": 3, "transactional-id": 5}
OPERATIONS = {"Read": 3, "Write": 4, "Create": 5, "Describe": 8, "DescribeConfigs": 10}
LITERAL, PREFIXED, ALLOW = 3, 4, 3


@dataclass(frozen=True, slots=True)
class Security:
    """A certificate authority, and users with passwords, which are created at format time.

    With ``mutual``, clients authenticate with certificates instead.
    """

    authority: Authority
    users: Mapping[str, str] = field(default_factory=dict)
    mutual: bool = False

    @property
    def protocol(self) -> str:
        """The security protocol of clients."""
        return "SSL" if self.mutual else "SASL_SSL"

    def properties(self) -> dict[str, str]:
        """The additional properties of a broker, except the listener itself."""
        keys = self.authority.issue("broker").combined_file()
        return {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keys),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "ssl.client.auth": "required" if self.mutual else "none",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/,DEFAULT",
            **self._mechanisms(),
        }

    def _mechanisms(self) -> dict[str, str]:
        """The users of each mechanism; unsigned tokens are accepted."""
        passwords = " ".join(f'user_{user}="{word}"' for user, word in self.users.items())
        modules = {
            **dict.fromkeys(SCRAM, f"{MODULE}.scram.ScramLoginModule required;"),
            "PLAIN": f"{MODULE}.plain.PlainLoginModule required {passwords};",
            "OAUTHBEARER": (
                f"{MODULE}.oauthbearer.OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="broker";'
            ),
        }
        named = {
            f"listener.name.outside.{mechanism.lower()}.sasl.jaas.config": module
            for mechanism, module in modules.items()
        }
        return {"sasl.enabled.mechanisms": ",".join(modules), **named}

    def format_arguments(self) -> list[str]:
        """Arguments of the storage tool that create the users, with hashed passwords."""
        return [
            part
            for user, password in self.users.items()
            for mechanism, function in SCRAM.items()
            for part in ("--add-scram", f"{mechanism}=[{_salted(user, password, function)}]")
        ]


def _salted(user: str, password: str, function: str) -> str:
    salt = os.urandom(16)
    derived = hashlib.pbkdf2_hmac(function, password.encode(), salt, ITERATIONS)
    shown = {"salt": salt, "saltedpassword": derived}
    parts = [f'{name}="{base64.b64encode(data).decode()}"' for name, data in shown.items()]
    return ",".join([f"name={user}", *parts, f"iterations={ITERATIONS}"])


def unsigned_token(user: str, seconds: int = 3_600) -> str:
    """An unsigned OAuth token for a user, which brokers of tests accept."""
    now = int(time.time())
    parts = {"alg": "none"}, {"sub": user, "iat": now, "exp": now + seconds}
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    return ".".join([*(part.rstrip("=") for part in encoded), ""])


@dataclass(frozen=True, slots=True)
class Grant:
    """One right: an operation (``Read``) on a kind of resource (``topic``) of that name.

    A name that ends in ``*`` stands for all that begin with what is before.
    """

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.kind} {self.name}"


async def grant(bootstrap_servers: str, user: str, *grants: Grant) -> None:
    """Grant rights to a user, from any host, through the first listener."""
    answer = await _ask(bootstrap_servers, _CreateAcls([_rule(user, right) for right in grants]))
    _raise_errors(answer.outcomes)


async def revoke(bootstrap_servers: str, user: str, *grants: Grant) -> None:
    """Revoke rights."""
    answer = await _ask(bootstrap_servers, _DeleteAcls([_rule(user, right) for right in grants]))
    _raise_errors(answer.outcomes)


def _rule(user: str, right: Grant) -> tuple[Any, ...]:
    kind, operation = RESOURCES[right.kind], OPERATIONS[right.operation]
    pattern = PREFIXED if right.name.endswith("*") else LITERAL
    return (kind, right.name.removesuffix("*"), pattern, f"User:{user}", "*", operation, ALLOW)


async def _ask(bootstrap_servers: str, request: Any) -> Any:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        await client.start()
        return await client._send_to_controller(request)
    finally:
        await client.close()


def _raise_errors(outcomes: Iterable[Sequence[Any]]) -> None:
    for code, message, *_ in outcomes:
        if code:
            raise for_code(code)(message)


# aiokafka has no requests for ACLs. A rule and a filter for rules have the same fields.

_RULE = (
    ("resource_type", Int8),
    ("resource_name", String("utf-8")),
    ("resource_pattern_type", Int8),
    ("principal", String("utf-8")),
    ("host", String("utf-8")),
    ("operation", Int8),
    ("permission_type", Int8),
)
_OUTCOME = (("error_code", Int16), ("error_message", String("utf-8")))


class _CreateAclsResponse(Response):  # type: ignore[misc]
    API_KEY = 30
    API_VERSION = 1
    SCHEMA = Schema(("throttle_time_ms", Int32), ("outcomes", Array(*_OUTCOME)))


class _DeleteAclsResponse(Response):  # type: ignore[misc]
    API_KEY = 31
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("outcomes", Array(*_OUTCOME, ("matching", Array(*_OUTCOME, *_RULE)))),
    )


class _CreateAclsStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 30
    API_VERSION = 1
    RESPONSE_TYPE = _CreateAclsResponse
    SCHEMA = Schema(("rules", Array(*_RULE)))


class _DeleteAclsStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 31
    API_VERSION = 1
    RESPONSE_TYPE = _DeleteAclsResponse
    SCHEMA = Schema(("rules", Array(*_RULE)))


class _CreateAcls(Request[_CreateAclsStruct]):  # type: ignore[misc]
    API_KEY: ClassVar[int] = 30

    def __init__(self, rules: Sequence[tuple[Any, ...]]) -> None:
        self._rules = rules

    def build(self, struct: type[Any]) -> Any:
        return struct(self._rules)


class _DeleteAcls(Request[_DeleteAclsStruct]):  # type: ignore[misc]
    API_KEY: ClassVar[int] = 31

    def __init__(self, rules: Sequence[tuple[Any, ...]]) -> None:
        self._rules = rules

    def build(self, struct: type[Any]) -> Any:
        return struct(self._rules)

"""Links made from templates such as ``https://traces.example.org/{conversation_id}``.

The templates are settings; the page, ``top`` and reports fill them in.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, urlsplit

_HOST: Final = re.compile(r"[\w.-]*|[0-9a-f:.]+")  # a name or an IPv6 address

CONVERSATION: Final = "conversation_id"
ALERT: Final = "alert"


def check_template(template: str, name: str) -> str:
    """Return the template if it is an http or https link with ``{name}`` after the host.

    Raises ``ValueError`` otherwise.

    >>> check_template("https://traces.example.org/find?id={conversation_id}", "conversation_id")
    'https://traces.example.org/find?id={conversation_id}'
    """
    placeholder = f"{{{name}}}"
    example = f"write a link such as https://example.org/{placeholder}"
    if any(character.isspace() or not character.isprintable() for character in template):
        raise ValueError(f"the link contains a space or a control character; {example}")
    parts = urlsplit(template)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{template!r} is not an http or https link; {example}")
    if not _HOST.fullmatch(parts.hostname.replace(placeholder, "")) or parts.port == 0:
        raise ValueError(f"{template!r} does not name a host; {example}")
    if parts.username is not None:
        raise ValueError(
            "the link contains a user name, which everyone who sees the page would see"
        )
    rest = f"{parts.path}?{parts.query}#{parts.fragment}"
    if placeholder not in rest or placeholder in parts.netloc:
        raise ValueError(f"{template!r} must contain {placeholder} after the host only; {example}")
    others = template.replace(placeholder, "")
    if "{" in others or "}" in others:
        raise ValueError(
            f"{template!r} contains a brace outside {placeholder}; "
            f"{placeholder} is the only placeholder"
        )
    return template


def is_address(url: str) -> bool:
    """Whether this is an http or https address without anything that breaks a line.

    >>> is_address("https://metrics.example.org/"), is_address("metrics.example.org")
    (True, False)
    """
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False
    return whole and url.isprintable() and " " not in url


def fill_template(template: str | None, name: str, value: str) -> str | None:
    """A checked template with ``value`` in place of ``{name}``; None without a template.

    The value is percent-encoded, so that it stays one segment of a path or query. The values ``.``
    and ``..``, which would change the path, give None.

    >>> fill_template("https://traces.example.org/{conversation_id}", "conversation_id", "a/b?c")
    'https://traces.example.org/a%2Fb%3Fc'
    """
    if template is None or value in (".", ".."):
        return None
    return template.replace(f"{{{name}}}", quote(value, safe="", errors="replace"))

"""The image's health check: exit code 0 if the worker in this container answers 200.

``healthcheck.py`` asks ``/healthz`` (alive and not stuck); ``healthcheck.py ready`` asks
``/readyz`` (in the group, state loaded), at the worker's port or at one that is given after it.
Standard library only, so that it starts quickly.
"""

from __future__ import annotations

import os
import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection

HOST = "127.0.0.1"
TIMEOUT_SECONDS = 4


def main() -> int:
    """Request the page, and print the answer unless it is 200."""
    page = "/readyz" if sys.argv[1:2] == ["ready"] else "/healthz"
    own = os.environ.get("STREAM_METRICS_WEB__PORT", "9464")
    connection = connect(int(sys.argv[2] if len(sys.argv) > 2 else own))
    try:
        connection.request("GET", page)
        answer = connection.getresponse()
        if answer.status == 200:
            return 0
        said = f"{answer.status} {answer.read(2000).decode(errors='replace')}"
    except (OSError, HTTPException) as error:
        said = str(error)
    print(f"{page}: {said}")
    return 1


def connect(port: int) -> HTTPConnection:
    """A connection to the worker's own pages."""
    if not os.environ.get("STREAM_METRICS_WEB__TLS_CERTIFICATE"):
        return HTTPConnection(HOST, port, timeout=TIMEOUT_SECONDS)
    context = ssl.create_default_context()
    context.check_hostname = False  # the certificate is for the name that others use
    context.verify_mode = ssl.CERT_NONE
    return HTTPSConnection(HOST, port, timeout=TIMEOUT_SECONDS, context=context)


if __name__ == "__main__":
    sys.exit(main())

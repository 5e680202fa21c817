"""`python -m client.tests PYTHON [pytest arguments]`: these tests under PYTHON, with a Kafka."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from deploy.local.kafka.cluster import Kafka

HERE = Path(__file__).parent


async def main(python: str, *arguments: str) -> int:
    """Start a broker, run the tests, stop the broker; the exit code is that of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        kafka = await Kafka(Path(folder)).start()
        try:
            process = await asyncio.create_subprocess_exec(
                python, "-m", "pytest", "-p", "no:cacheprovider", *arguments,
                cwd=HERE, env={**os.environ, "KAFKA_BROKERS": kafka.bootstrap_servers},
            )  # fmt: skip
            return await process.wait()
        finally:
            await kafka.stop()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(os.path.abspath(sys.argv[1]), *sys.argv[2:])))

"""``python -m tests.campaign.launcher worker``: a worker or command that can be ordered to die.

``CAMPAIGN_ORDERS`` names a file. Once it holds ``<before|after> <step> <n> <KILL|STOP>``, the first
process that comes to the n-th such place from then on takes the file away and sends itself the
signal. Without the file the worker runs as it is. ``CAMPAIGN_CLOCK`` may name a file of its clock.
"""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from stream_metrics.cli import main
from stream_metrics.core.engine.windows import Windows
from stream_metrics.live.kafka.dead_letter_producer import KafkaDeadLetters
from stream_metrics.live.kafka.output import KafkaOutput
from stream_metrics.live.redis.store import RedisStore
from stream_metrics.live.worker.conversations import Conversations
from stream_metrics.live.worker.loop import Loop
from tests.campaign.clock import Clock, obey_clock

# The steps of worker/partition.py by their names there, and the claim before the first of them.
STEPS: Final[dict[str, tuple[type, str]]] = {
    "claim": (RedisStore, "claim"),
    "load": (Conversations, "open"),
    "step": (Conversations, "apply"),
    "dead": (KafkaDeadLetters, "send"),
    "output": (KafkaOutput, "send"),
    "write": (RedisStore, "write"),
    "commit": (Loop, "commit"),
    "export": (Windows, "install"),
}
# Those of a switch to another generation of state (ownership/switch.py).
SWITCHING: Final[dict[str, tuple[type, str]]] = {
    "layout": (RedisStore, "change_layout"),
    "freeze": (RedisStore, "freeze"),
    "begin": (KafkaOutput, "begin"),
    "wipe": (RedisStore, "wipe"),
}


class Orders:
    """The file of orders, and how often each step was passed since it exists."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._said = ""
        self._passed = 0

    def passed(self, when: str, step: str) -> None:
        """Obey if the order is for this pass."""
        try:
            said = self._file.read_text()
        except FileNotFoundError:
            return
        if said != self._said:
            self._said, self._passed = said, 0
        words = said.split()
        if words[:2] != [when, step]:
            return
        self._passed += 1
        if self._passed < int(words[2]):
            return
        try:
            self._file.rename(self._file.with_suffix(f".{os.getpid()}"))
        except FileNotFoundError:
            return  # another worker was quicker
        os.kill(os.getpid(), signal.Signals[f"SIG{words[3]}"])


def watched(orders: Orders, step: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The same method, which checks for orders before and after it."""

    async def waits(*arguments: Any, **options: Any) -> Any:
        orders.passed("before", step)
        result = await method(*arguments, **options)
        orders.passed("after", step)
        return result

    def returns(*arguments: Any, **options: Any) -> Any:
        orders.passed("before", step)
        result = method(*arguments, **options)
        orders.passed("after", step)
        return result

    return waits if inspect.iscoroutinefunction(method) else returns


def obey(file: Path, steps: Mapping[str, tuple[Any, str]] = STEPS | SWITCHING) -> None:
    """Check for orders at every step of this process."""
    orders = Orders(file)
    for step, (owner, name) in steps.items():
        setattr(owner, name, watched(orders, step, getattr(owner, name)))


if __name__ == "__main__":
    obey(Path(os.environ["CAMPAIGN_ORDERS"]))
    if clock := os.environ.get("CAMPAIGN_CLOCK"):
        obey_clock(Clock(Path(clock)))
    main()

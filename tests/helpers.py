"""What tests of more than one folder use."""

from __future__ import annotations

from deploy.local.waiting import wait_until

__all__ = ["wait_until"]

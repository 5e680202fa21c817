"""Settings that nobody has set are taken from stored state."""

from __future__ import annotations

import pytest

from stream_metrics.cli.options import identity, settings_for_state
from stream_metrics.cli.settings import Settings
from stream_metrics.live.layout import Identity
from stream_metrics.live.worker.ownership.identity import KEPT, OtherIdentity, check_identity

TOPIC = "events"
NEW = Settings.model_validate({})
BEFORE = Settings.model_validate(
    {"dedup": {"tables": 1}, "limits": {"turns_per_conversation": 100}}
)


def built_with(settings: Settings) -> Identity:
    """State that was built with these settings."""
    return identity(settings, {TOPIC: 1})


def test_state_of_the_release_before_keeps_its_fingerprint() -> None:
    """Otherwise a rolling upgrade would be refused.

    A new setting must be left out of ``Settings.state_settings`` and of the fingerprint while its
    value keeps the earlier behaviour. One whose default has changed must be taken from the state
    (``identity.KEPT``).
    """
    found = settings_for_state(NEW, built_with(BEFORE))

    assert found.fingerprint() == BEFORE.fingerprint() == "46d790973814073f"
    assert found.engine_config().limits.turns_per_conversation == 100


def test_new_state_has_the_new_defaults() -> None:
    """A conversation may have 1,000 turns; the fingerprint differs from that of older state."""
    found = Settings.model_validate({"dedup": {"tables": 1}})

    assert NEW.engine_config().limits.turns_per_conversation == 1_000
    assert found.fingerprint() == "00de3a1681c204b2"


def test_state_without_settings_is_that_of_the_first_release() -> None:
    """The earliest releases stored none."""
    found = settings_for_state(NEW, Identity("g", 1, "fingerprint", {TOPIC: 1}))

    assert [found.state_settings().get(name, 1) for name in KEPT] == [1, 100]


def test_an_explicit_setting_is_not_taken_from_the_state() -> None:
    """State with another value is then refused, with both values."""
    settings = Settings.model_validate({"limits": {"turns_per_conversation": 1_000}})
    stored = built_with(BEFORE)

    found = settings_for_state(settings, stored)

    with pytest.raises(OtherIdentity, match="turns_per_conversation was 100, is 1000"):
        check_identity(stored, identity(found, {TOPIC: 1}))

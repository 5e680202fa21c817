"""Each helper of the kernel gives what the Python function beside it gives, or leaves it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from stream_metrics.core.compiled import KERNEL
from tests.twins import (
    Claim,
    Refusal,
    Twin,
    buckets,
    digested,
    fingerprints,
    hold,
    indexes,
    kernel,
    rankings,
    records,
    reranking,
    sums,
    texts,
    words,
)

pytestmark = pytest.mark.kernel

PARTS = (
    buckets, digested, fingerprints, indexes, rankings, records, reranking, sums, texts, words,
)  # fmt: skip
CLAIMS: list[Claim] = [claim for part in PARTS for claim in part.CLAIMS]
REFUSALS: list[Refusal] = [one for part in PARTS for one in getattr(part, "REFUSALS", ())]
TYPES = Path(__file__).parents[2] / "kernel" / "stream_metrics_kernel.pyi"
PARTS_OF_HELPERS = frozenset({"Bounds", "Fingerprints", "Index"})
"""Classes whose objects other helpers make or take; those have the claims."""


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(claim, id=str(claim), marks=[pytest.mark.slow] if claim.slow else [])
        for claim in CLAIMS
    ],
)
def test_a_helper_gives_what_python_gives(claim: Claim) -> None:
    """Whatever the kernel takes; what it must take, or leave to Python, the claim says."""
    hold(claim)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_what_no_caller_has_is_refused(refusal: Refusal) -> None:
    """Wrong arguments are exceptions, and are not misread."""
    with pytest.raises(refusal.error, match=refusal.match):
        refusal.call()


def test_every_helper_has_claims() -> None:
    """All that the kernel offers is held equal to something."""
    assert KERNEL == "compiled", "stream-metrics-kernel is not installed: make kernel"
    typed = {
        node.name
        for node in ast.parse(TYPES.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    offered = {name for name in dir(kernel) if not name.startswith("_") and name != "INTERFACE"}

    assert offered - {"stream_metrics_kernel"} == typed
    assert {claim.twin.helper for claim in CLAIMS} == typed - PARTS_OF_HELPERS


@pytest.mark.parametrize(
    ("found", "leaves", "expected", "claimed"),
    [
        ("a", True, "b", None),
        (None, False, "b", None),
        (None, True, "b", True),
        ("b", True, "b", False),
    ],
)
def test_a_claim_that_does_not_hold_fails(
    found: str | None, leaves: bool, expected: str, claimed: bool | None
) -> None:
    """A difference, what may not be left, what must be taken, and what must be left."""
    twin = Twin("envelope", lambda: [(found, expected)], leaves)
    with pytest.raises(AssertionError):
        hold(Claim(twin, "is broken", listed=[()], taken=claimed))
    with pytest.raises(AssertionError):
        hold(Claim(Twin("envelope", lambda: [(None, "b")]), "is idle", listed=[()], at_least=1))

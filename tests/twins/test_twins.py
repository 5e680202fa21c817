"""Each helper of the kernel equals its Python function, or leaves the case to it."""

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
    check_claim,
    digested,
    fingerprints,
    indexes,
    kernel,
    lines,
    rankings,
    records,
    reranking,
    sums,
    texts,
    words,
)

pytestmark = pytest.mark.kernel

PARTS = (
    buckets, digested, fingerprints, indexes, lines, rankings, records, reranking, sums, texts,
    words,
)  # fmt: skip
CLAIMS: list[Claim] = [claim for part in PARTS for claim in part.CLAIMS]
REFUSALS: list[Refusal] = [one for part in PARTS for one in getattr(part, "REFUSALS", ())]
TYPES = Path(__file__).parents[2] / "stream_metrics" / "_engine.pyi"
PARTS_OF_HELPERS = frozenset({"Bounds", "Fingerprints", "Index"})
"""Classes whose objects other helpers make or take; those have the claims."""


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(claim, id=str(claim), marks=[mark for is_so, mark in marks if is_so])
        for claim in CLAIMS
        for marks in [((claim.slow, pytest.mark.slow), (claim.long, pytest.mark.long))]
    ],
)
def test_a_helper_gives_what_python_gives(claim: Claim) -> None:
    """Where the kernel handles a case; claims say which cases it must handle or leave to Python."""
    check_claim(claim)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_what_no_caller_has_is_refused(refusal: Refusal) -> None:
    """Wrong arguments raise exceptions, and are not misread."""
    with pytest.raises(refusal.error, match=refusal.match):
        refusal.call()


def test_every_helper_has_claims() -> None:
    """Every public name of the kernel is compared with Python."""
    assert KERNEL, "the kernel is not built: make kernel"
    typed = {
        node.name
        for node in ast.parse(TYPES.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    offered = {name for name in dir(kernel) if not name.startswith("_") and name != "INTERFACE"}

    assert offered == typed
    assert {claim.twin.helper for claim in CLAIMS} == typed - PARTS_OF_HELPERS


@pytest.mark.parametrize(
    ("found", "may_decline", "expected", "claimed"),
    [
        ("a", True, "b", None),
        (None, False, "b", None),
        (None, True, "b", True),
        ("b", True, "b", False),
    ],
)
def test_a_claim_that_does_not_hold_fails(
    found: str | None, may_decline: bool, expected: str, claimed: bool | None
) -> None:
    """A difference, what may not be left, what must be taken, and what must be left."""
    twin = Twin("envelope", lambda: [(found, expected)], may_decline)
    with pytest.raises(AssertionError):
        check_claim(Claim(twin, "is broken", listed=[()], handled=claimed))
    with pytest.raises(AssertionError):
        check_claim(
            Claim(Twin("envelope", lambda: [(None, "b")]), "is idle", listed=[()], at_least=1)
        )

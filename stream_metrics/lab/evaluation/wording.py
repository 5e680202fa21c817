"""Format figures and comparisons identically for terminal, Markdown and HTML page."""

from __future__ import annotations

from typing import Any, Final

Block = dict[str, Any]

_CORRECTIONS: Final = {"holm": "Holm", "bonferroni": "Bonferroni"}


def interval_title(confidence: float | None) -> str:
    """The title of a column of intervals; ``confidence`` is None without intervals.

    >>> interval_title(0.95), interval_title(0.999), interval_title(None)
    ('95% CI', '99.9% CI', 'CI')
    """
    return "CI" if confidence is None else f"{100 * confidence:g}% CI"


def adjusted_title(correction: str) -> str:
    """The title of a column of adjusted p-values.

    >>> adjusted_title("holm"), adjusted_title("none")
    ('p (Holm)', 'p (unadjusted)')
    """
    return f"p ({_CORRECTIONS.get(correction, 'unadjusted')})"


def about(found: Block) -> str:
    """One line on which runs were compared, by which tests."""
    others = ", ".join(run["name"] for run in found["runs"][1:])
    which = f"{others} against {found['runs'][0]['name']}"
    if not found["significance_testing"]:
        return f"{which}; nothing is tested"
    tests = dict.fromkeys(
        f"{'paired' if one['paired'] else 'unpaired'} {one['test']}"
        for table in found["family"]["tables"].values()
        for block in table["metrics"].values()
        for one in block["comparisons"]
        if one["p"] is not None
    )
    name = _CORRECTIONS.get(found["correction"])
    adjusted = f"adjusted ({name}) over {found['family']['size']}" if name else "not adjusted"
    return (
        f"{which}; tests: {', '.join(tests) or 'none'}; p {adjusted}, significant below "
        f"{found['alpha']:g}"
    )


def number(value: float | None) -> str:
    """Four decimals; a dash if undefined."""
    return "-" if value is None else f"{value:.4f}"


def variance(value: float | None) -> str:
    """Two significant digits, as variances differ by powers of ten; a dash if undefined.

    >>> variance(0.00012345), variance(345.6), variance(0.0), variance(None)
    ('0.00012', '346', '0', '-')
    """
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.2g}"


def signed(value: float | None) -> str:
    """Four decimals with a sign; a dash if undefined.

    >>> signed(0.125), signed(None)
    ('+0.1250', '-')
    """
    return "-" if value is None else f"{value:+.4f}"


def p_value(p: float | None) -> str:
    """Format a p-value; a dash if undefined.

    >>> p_value(0.0123), p_value(0.00009999), p_value(None)
    ('0.0123', '0.0001', '-')
    """
    if p is None:
        return "-"
    return "<0.0001" if p < 0.00005 else f"{p:.4f}"


def interval(one: Block, *, signed_bounds: bool = False) -> str:
    """Both bounds in brackets; a dash without bounds."""
    if one["ci_low"] is None:
        return "-"
    spec = "+.4f" if signed_bounds else ".4f"
    return f"[{one['ci_low']:{spec}}, {one['ci_high']:{spec}}]"


def significance(one: Block) -> str:
    """Whether a difference is significant, and its verdict."""
    if one["significant"] is None:
        return "-"
    if not one["significant"]:
        return "no"
    return f"yes, {one['verdict']}" if one["verdict"] else "yes"

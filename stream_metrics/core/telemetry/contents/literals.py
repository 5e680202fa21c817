"""Parses values that instrumentations wrote as text: JSON, or Python literals."""

from __future__ import annotations

import ast
import math
import re
import warnings
from typing import Any, Final

import msgspec

LONGEST_REPRESENTATION: Final = 1 << 18
CALL: Final = re.compile(r"[A-Za-z_][\w.]{0,60}\([\w)]")
"""The beginning of an object as Python shows it, such as ``TextContent(type='text'``."""
MAX_INTEGER_BITS: Final = 1 << 13  # Python writes longer ones as text only if told to


def parse_value(value: str) -> Any:
    """Parses JSON or a Python literal, which may have objects as ``Document(id=…)``; None if it is
    neither. Half a surrogate pair, which no event can contain, becomes a replacement character."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass
    if len(value) > LONGEST_REPRESENTATION:
        return None
    if value[:1] not in "[({" and CALL.match(value) is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escape sequences
            return _literal(ast.parse(value.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


_NAMES: Final = {
    "NaN": math.nan,
    "nan": math.nan,
    "Infinity": math.inf,
    "inf": math.inf,
    "null": None,
    "true": True,
    "false": False,
}


def _literal(node: ast.AST) -> Any:
    match node:
        case ast.Constant(value=str() as value):
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case ast.Constant(value=int() as value) if value.bit_length() > MAX_INTEGER_BITS:
            raise ValueError("an integer too long to write")
        case ast.Constant(value=value):
            return value
        case ast.List(elts=each) | ast.Tuple(elts=each):
            return [_literal(one) for one in each]
        case ast.Dict(keys=keys, values=values):
            return {
                str(_literal(key)): _literal(value)
                for key, value in zip(keys, values, strict=True)
                if key is not None
            }
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _literal(operand)
            return -value if type(value) in (int, float) else None
        case ast.Call(func=ast.Name(id="Document"), args=[], keywords=keywords):
            parts = {one.arg: _literal(one.value) for one in keywords if one.arg}
            return {"type": "Document", **parts}
        case ast.Call(args=[ast.Constant(value=str()) as argument], keywords=[]):
            return _literal(argument)  # such as UUID('…')
        case ast.Call(args=[], keywords=keywords) if keywords:
            return {one.arg: _literal(one.value) for one in keywords if one.arg}
        case ast.Call():
            return None  # a date or another value that identifies no document
    raise ValueError("no literal")

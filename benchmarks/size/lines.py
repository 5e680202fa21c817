"""Lines of code without comments, docstrings and blank lines.

A *logical line* of Python is a statement, as the language's own parser counts them: where a
formatter breaks lines changes nothing. Of other languages it is a line on which Pygments finds
anything but a comment.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pygments import lex
from pygments.lexer import Lexer
from pygments.lexers import (
    CssLexer,
    HtmlDjangoLexer,
    HtmlLexer,
    JavascriptLexer,
    LuaLexer,
    RustLexer,
    XmlLexer,
)
from pygments.token import Comment, String, Whitespace

PYTHON: Final = "Python"
OTHERS: Final[dict[str, tuple[str, type[Lexer]]]] = {
    ".css": ("CSS", CssLexer),
    ".html": ("HTML", HtmlLexer),
    ".j2": ("HTML", HtmlDjangoLexer),
    ".js": ("JavaScript", JavascriptLexer),
    ".lua": ("Lua", LuaLexer),
    ".rs": ("Rust", RustLexer),
    ".svg": ("SVG", XmlLexer),
}
"""By the end of a file's name: its language, and what splits it."""

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class UnknownLanguage(ValueError):
    """Nothing here can count the file."""


def language_of(path: Path) -> str:
    """The language of a file.

    Raises:
        UnknownLanguage: It is none of those that can be counted.
    """
    if path.suffix == ".py":
        return PYTHON
    if path.suffix not in OTHERS:
        raise UnknownLanguage(f"{path}: nothing counts files that end in {path.suffix!r}")
    return OTHERS[path.suffix][0]


def logical_lines(path: Path, text: str) -> int:
    """The logical lines of a file with this text."""
    if language_of(path) == PYTHON:
        return len(statements(ast.parse(text)))
    return _lines_with_code(text, OTHERS[path.suffix][1](stripnl=False))


def statements(tree: ast.AST) -> list[ast.stmt]:
    """All statements of a tree but docstrings.

    >>> len(statements(ast.parse("'''Says what it is.'''\\nif x:\\n    y = (1 +\\n         2)\\n")))
    2
    """
    docstrings = {id(found) for node in ast.walk(tree) for found in _docstrings(node)}
    return [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and id(node) not in docstrings
    ]


def _docstrings(node: ast.AST) -> Iterator[ast.stmt]:
    """Texts that stand alone in the body of a module, a class or a function.

    The first is a docstring for Python, those behind assignments for whoever reads the code.
    """
    if isinstance(node, Documented):
        for child in node.body:
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                yield child


def _lines_with_code(text: str, lexer: Lexer) -> int:
    """How many lines hold anything but white space and comments."""
    found: set[int] = set()
    line = 0
    for kind, value in lex(text, lexer):
        directive = kind in Comment.Preproc or kind in Comment.PreprocFile
        is_code = directive or not any(kind in one for one in (Comment, String.Doc, Whitespace))
        for number, part in enumerate(value.split("\n")):
            if is_code and part.strip():
                found.add(line + number)
        line += value.count("\n")
    return len(found)

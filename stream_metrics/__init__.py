"""Live search-redundancy and gain metrics for RAG agents, exact under late labels and failures."""

from typing import Final

from stream_metrics import compiled

__version__ = "0.1.0"

ENGINE: Final = "compiled" if compiled.install() else "python"
"""How the modules run that can be compiled; to be settled before any of them is imported."""

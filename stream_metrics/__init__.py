"""Live search-redundancy and gain metrics for RAG agents, exact under late labels and failures."""

__version__ = "0.1.0"

"""Reads what spans record: documents, questions, answers, and values written as text."""

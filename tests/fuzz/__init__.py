"""Fuzzing of decoders with arbitrary bytes.

``targets.py`` has the properties for any bytes. ``python -m tests.fuzz`` (``make fuzz``) runs a
coverage-guided fuzzer against them; ``tests/unit/test_fuzz.py`` tries the corpus and seeded
mutations of it. Inputs that broke a target are kept in ``corpus``.
"""

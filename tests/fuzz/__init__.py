"""Fuzzing: bytes of any kind against what decodes them.

``targets.py`` says what must hold for any bytes. ``python -m tests.fuzz`` (``make fuzz``) lets a
coverage-guided fuzzer look for bytes for which it does not; ``tests/unit/test_fuzz.py`` tries the
corpus and seeded mutations of it. What was found stays in ``corpus``.
"""

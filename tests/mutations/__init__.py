"""Deliberately broken builds, and the checks that catch them: ``python -m tests.mutations``.

``mutation`` says what a broken build is, ``of_delivery`` and ``of_figures`` list them, ``run``
makes one in a folder of its own and runs its check there, ``page`` writes
``docs/evidence/mutations.md``.
"""

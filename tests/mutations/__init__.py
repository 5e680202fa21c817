"""Deliberately broken builds, and the checks that catch them: ``python -m tests.mutations``.

``mutation`` defines a broken build, the ``of_…`` modules list them, ``run`` makes one in a
temporary folder and runs its check there, and ``page`` writes ``docs/evidence/mutations.md``.
"""

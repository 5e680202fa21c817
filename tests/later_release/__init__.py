"""A future release, in a separate process, which publishes a second version of the dedup tables.

``python -m tests.later_release`` makes state; with ``on`` it goes on with the state that it is
given on standard input. ``tests/unit/test_tables.py`` looks at what the two releases make of each
other's state.
"""

"""How often intervals contain the true value, and how often tests find false differences.

``make calibration`` draws data of known means thousands of times, writes
``docs/evidence/calibration.md``, and fails if an interval or a test misses the promise there.
"""

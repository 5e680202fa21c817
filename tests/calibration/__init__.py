"""How often intervals hold the true value, and how often tests find what is not there.

``make calibration`` draws data of known means thousands of times, writes
``docs/evidence/calibration.md``, and fails if an interval or a test misses what is promised there.
"""

"""How often intervals hold the true value, and how often tests find a difference that is not there.

``make calibration`` draws data of known means thousands of times, and fails if an interval or a
test misses what ``docs/statistics.md`` promises. The tables there are its output.
"""

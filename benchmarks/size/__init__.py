"""How much there is to read: lines by floor and language, and the code that one event runs.

``python -m benchmarks.size`` measures any commit with the rules of this one.
"""

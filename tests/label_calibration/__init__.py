"""Simulations of estimates from labels by people and by a model: ``make label-calibration``.

They count how often the 95% intervals of ``core/alerts/estimates.py`` contain the true value, and
say how wide they are for what labels cost.
"""

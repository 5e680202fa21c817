"""Reads OTLP traces and converts them to search-iteration events.

``framing`` finds payloads in files, ``core.telemetry.otlp`` decodes them to spans, and ``traces``
stores the spans until their traces are complete; ``core.telemetry`` then interprets each.
"""

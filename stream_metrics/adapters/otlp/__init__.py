"""Reads OTLP traces and converts them to search-iteration events.

``framing`` finds payloads in files, ``payloads`` and ``protobuf`` decode them to spans, and
``traces`` stores the spans until their traces are complete; ``stream_metrics.telemetry`` then
interprets each trace.
"""

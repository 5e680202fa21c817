"""OTLP traces as a source: what their spans tell becomes events of the usual schema.

``framing`` finds payloads in files, ``payloads`` and ``protobuf`` decode them to spans, and
``traces`` keeps these until their traces are whole; ``stream_metrics.telemetry`` then tells each.
"""

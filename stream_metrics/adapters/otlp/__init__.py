"""OTLP traces as a source: their retrieval spans become search events of the usual schema.

``framing`` finds payloads in files, ``payloads`` and ``protobuf`` decode them to spans, ``mapping``
says what a span tells, and ``traces`` puts the searches of all spans in order and numbers them.
"""

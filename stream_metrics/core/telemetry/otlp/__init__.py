"""Payloads of OTLP traces, in JSON and protobuf, as spans."""

"""The bridge: reads traces from their topic and writes events."""

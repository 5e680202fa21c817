"""Seeded, realistic traffic: support agents that search, and labels that arrive later."""

from stream_metrics.lab.traffic.generator import endless, generate
from stream_metrics.lab.traffic.profile import Incident, Ledger, TrafficProfile, TrafficRecord

__all__ = [
    "Incident",
    "Ledger",
    "TrafficProfile",
    "TrafficRecord",
    "endless",
    "generate",
]

"""Kafka: the live source, dead letters, and the clients' common options."""

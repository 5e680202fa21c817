"""Kafka for services: a member of a group, dead letters, and the output topic."""

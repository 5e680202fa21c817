"""Kafka clients of the worker and of the commands: consumers, producers and admin requests."""

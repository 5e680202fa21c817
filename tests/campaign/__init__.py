"""The fault campaign: a live system under load and under a seeded schedule of faults.

``python -m tests.campaign --seed 1`` starts Kafka, Redis and workers of its own, lets faults strike
while events come in, and compares what the state holds in the end, byte for byte, with a replay of
the log that the brokers kept. Nothing here is collected by pytest; ``tests/services`` has a short
form.
"""

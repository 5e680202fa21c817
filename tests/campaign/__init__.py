"""The fault campaign: a live system under load and under a seeded schedule of faults.

``python -m tests.campaign --seed 1`` starts its own Kafka, Redis and workers, injects faults while
events arrive, and compares the final state, byte for byte, with a replay of the brokers' log.
pytest collects nothing here; ``tests/services`` has a short form.
"""

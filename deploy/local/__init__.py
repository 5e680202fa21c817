"""Runs real servers as local processes: Kafka, Redis, Prometheus, Alertmanager; no containers.

``python -m deploy.local install | compiler | doctor | stack``. Tests start the same servers through
``deploy.local.servers`` and ``deploy.local.kafka.cluster``.
"""

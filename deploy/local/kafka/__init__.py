"""Apache Kafka from its own jars: ``jars`` fetches them, ``cluster`` runs them."""

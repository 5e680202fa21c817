"""How anything here talks to Kafka: connections, rights, topics, records and offsets."""

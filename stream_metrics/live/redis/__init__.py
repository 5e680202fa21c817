"""State in Redis, on a single server, behind Sentinel or in a Cluster."""

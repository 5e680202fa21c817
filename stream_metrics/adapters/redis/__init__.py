"""State in Redis: one atomic call a batch, on a single server, behind Sentinel or in a Cluster."""

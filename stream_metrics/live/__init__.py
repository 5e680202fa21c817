"""What runs as a service: the worker and the bridge, their state, and the pages they serve."""

"""The worker's own page at ``/``: live figures, what is wrong and why, the worst conversations."""

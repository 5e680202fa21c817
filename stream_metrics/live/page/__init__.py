"""The worker's page at ``/``: live figures, the state of its rules, the worst conversations."""

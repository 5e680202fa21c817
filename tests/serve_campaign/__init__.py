"""A fault campaign against ``stream-metrics serve``; see ``__main__``."""

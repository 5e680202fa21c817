"""``python -m stream_metrics`` is the command ``stream-metrics``."""

from stream_metrics.cli import main

if __name__ == "__main__":
    main()

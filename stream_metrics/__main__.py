"""``python -m stream_metrics`` is the command ``stream-metrics``."""

if __name__ == "__main__":  # the processes of a replay import this file, and no command
    from stream_metrics.cli import main

    main()

"""``python -m tests.fuzz.guided TARGET …``: one target under the fuzzer, with its own options."""

from __future__ import annotations

import sys


def main() -> None:
    """Run until the options say stop, or until an input breaks the target."""
    import atheris  # `make fuzz` installs it; tests read this file without it

    # What is imported here tells the fuzzer which way an input took.
    with atheris.instrument_imports(include=["stream_metrics"], enable_loader_override=False):
        from tests.fuzz.targets import TARGETS

    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

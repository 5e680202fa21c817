"""The messages of errors that end a command."""

from __future__ import annotations

from pydantic import ValidationError

from stream_metrics.cli.common import UsageError
from stream_metrics.clients.setting_files import UnreadableFile
from stream_metrics.core.engine.codec import UnknownSchema
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.lab.sources.unchanged import InputError
from stream_metrics.lab.statistics.units import OutOfRange
from stream_metrics.live.layout import UnreadableLayout


def setting_problems(error: ValidationError) -> list[str]:
    """A line for each wrong setting: its name, what is wrong, and what to do."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        said = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            said = "there is no such setting; see docs/reference/settings.md"
            if "otlp" in problem["loc"][1:]:
                said = (
                    "there is no such setting: a line that begins with `otlp.` belongs above the "
                    "first [section] of the file, or without `otlp.` below its [otlp]"
                )
        name = ".".join(map(str, problem["loc"]))
        lines.append(f"setting {name}: {said}" if name else said)
    return lines


def error_lines(error: Exception) -> list[str]:
    """Return the lines to print for an error; none if it is a bug in the program."""
    match error:
        case UsageError() | InputError() | UnreadableFile() | UnreadableLayout() | OutOfRange():
            return [str(error)]
        case UnknownSchema():
            return [f"the state in Redis cannot be read: {error}"]
        case DamagedState():
            return [
                f"the state in Redis is damaged: {error}; restore a backup, or run "
                "`stream-metrics build --again`"
            ]
        case RuntimeWarning():  # of numpy, by `refuse_overflow`
            return [f"a figure is beyond the range of double precision ({error})"]
        case ValidationError():
            return setting_problems(error)
        case OSError():
            place = f"{error.filename}: " if error.filename is not None else ""
            return [place + (error.strerror or str(error) or type(error).__name__)]
    return []

"""The entry point `headway`: runs a command and turns an error into one line and an exit code."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from headway import __version__, errors

if TYPE_CHECKING:
    from typer.exceptions import TyperException

DONE, JOB_FAILED, USAGE, NOT_FOUND, REFUSED, UNREACHABLE, BROKEN = 0, 1, 2, 3, 4, 5, 70
_CODES: tuple[tuple[type[errors.HeadwayError], int], ...] = (
    (errors.JobFailed, JOB_FAILED),
    (errors.BadInput, USAGE),
    (errors.NotFound, NOT_FOUND),
    (errors.Unreachable, UNREACHABLE),
    (errors.HeadwayError, REFUSED),
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_QUICK = (["--version"], ["version"])
# The arguments of this process if it was started as `headway`, so that `headway work` can restart itself. Empty if a
# program called `main`.
started_as: list[str] = []


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args in _QUICK:  # answered before the command tree is loaded
        print(f"headway {__version__}")
        return DONE
    for stream in (sys.stdout, sys.stderr):
        _never_fail_to_write(stream)
    if argv is None:
        _open_missing_descriptors()
        sys.excepthook = _report_crash
        started_as[:] = args
    if any(_SURROGATE.search(arg) for arg in args):
        return _tell(errors.BadInput("an argument is not UTF-8 text: write it in UTF-8"), "--json" in args)
    return _run(args)


def _open_missing_descriptors() -> None:
    """Opens /dev/null for each standard stream that is closed.

    A database or socket would get its number otherwise, and messages for it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest free number


def _run(args: list[str]) -> int:
    from typer.exceptions import Abort, TyperException

    from headway.cli.tree import build

    as_json = "--json" in args[: args.index("--")] if "--" in args else "--json" in args
    try:
        code = build(args[0] if args else None).main(args=args, prog_name="headway", standalone_mode=False)
    except errors.HeadwayError as error:
        return _tell(error, as_json)
    except TyperException as error:
        return _tell_usage(error, as_json)
    except Abort:
        return 130
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return _tell(errors.Refused(f"{what}: check that it exists and that this user may use it"), as_json)
    return code if isinstance(code, int) else DONE


def code_of(error: errors.HeadwayError) -> int:
    return next(code for kind, code in _CODES if isinstance(error, kind))


def _tell(error: errors.HeadwayError, as_json: bool) -> int:
    from headway.cli.output import problem, visible

    code = code_of(error)
    if as_json:
        facts = {name: fact for name, fact in error.facts.items() if isinstance(fact, str | int | float | list | dict)}
        print(json.dumps(problem(error.code, str(error), code, field=error.field, **facts)), file=sys.stderr)
        return code
    problems = error.facts.get("problems", ())
    if len(problems) > 1:
        subject = f"{visible(error.facts['subject'])} has" if "subject" in error.facts else "the settings have"
        print(f"headway: {subject} {len(problems)} problems: correct them", file=sys.stderr)
        print("\n".join(f"  {visible(text)}" for text in problems), file=sys.stderr)
    else:
        print(f"headway: {visible(' '.join(str(error).split()))}{hint_of(error)}", file=sys.stderr)
    return code


def hint_of(error: errors.HeadwayError) -> str:
    """Returns what to do about an error whose message does not say it, or an empty text."""
    from headway.store.db import FileUnusable, ServerUnreachable

    match error:
        case errors.NotFound(hint=None, noun="delivery"):
            return ": see `headway webhooks deliveries WEBHOOK`"
        case errors.NotFound(hint=None, noun=str() as noun):
            return f": see `headway {noun}s ls`"
        case ServerUnreachable():
            return ": start it, or name another database with --database"
        case FileUnusable():
            return ": check that its folder exists and is writable, or name another database with --database"
    return ""


def _tell_usage(error: TyperException, as_json: bool) -> int:
    from headway.cli.output import problem, visible

    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help
        print(error.format_message(), file=sys.stderr)
        return USAGE
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "headway"
    text = " ".join(error.format_message().split()).rstrip(".")
    if as_json:
        print(json.dumps(problem("usage", text, USAGE)), file=sys.stderr)
    else:
        print(f"headway: {visible(text)}: see `{path} --help`", file=sys.stderr)
    return USAGE


def _never_fail_to_write(stream: TextIO) -> None:
    """Makes a stream write an escape sequence for each character that its encoding lacks."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _report_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints an unexpected exception in one line and exits with 70 (internal error)."""
    from headway.cli.output import visible

    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})" if trace else ""
    text = visible(" ".join(f"{kind.__name__}: {error}".split()))
    print(f"headway: internal error: {text}{place}: please report it", file=sys.stderr, flush=True)
    os._exit(BROKEN)


if __name__ == "__main__":
    sys.exit(main())

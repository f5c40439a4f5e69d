"""How all programs of this project end, the ``breakout`` command and the pipelines of ``entry/``."""

from typing import Any

import click

from . import signals

# \b keeps click from making one paragraph of it.
EXIT_CODES = """\b
Exit codes:
  0    done; or a run was stopped by one Ctrl-C, SIGTERM or SIGHUP, and saved
  1    it could not be done, or a check failed; the reason is said last
  2    a wrong option or config
  129  ended by SIGHUP (the terminal was closed), 130 by Ctrl-C,
       143 by SIGTERM: without a run to save, or at once, by a second Ctrl-C"""


class Program(click.Command):
    """
    Overview:
        A command line that Ctrl-C ends with a word and 130, the exit code that shells expect then, where click has 1. \
        Its help ends with what the exit codes mean.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault('epilog', EXIT_CODES)
        super().__init__(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """As click's."""
        signals.begin()
        try:
            try:
                return super().invoke(ctx)
            finally:
                signals.let_ctrl_c_kill()
        except KeyboardInterrupt:
            click.echo('stopped', err=True)
            return ctx.exit(130)

"""What numbers on a command line may be: click's ranges, with bounds that the programs behind them can take."""

import math
from typing import Any, Optional

import click

# numpy takes seeds of 32 bits, and each environment and rank gets one further on.
SEED = click.IntRange(0, 2**31 - 1)
# Env steps, updates, games: more than any run will see, and less than floating point numbers tell apart.
COUNT = click.IntRange(1, 10**15)
# PyTorch's, and processes on a machine.
THREADS = click.IntRange(1, 1024)
# The longest that anybody waits for anybody.
DAY_S = 86_400.0
# A century.
LONGEST_HOURS = 876_600.0


class FiniteFloat(click.FloatRange):
    """
    Overview:
        A range of floating point numbers, of which NaN and the infinities are none: click lets them pass.
    """

    def convert(self, value: Any, param: Optional[click.Parameter], ctx: Optional[click.Context]) -> float:
        """
        Overview:
            As click's.
        """
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f'{value!r} is no finite number.', param, ctx)
        return number


HOURS = FiniteFloat(0, LONGEST_HOURS, min_open=True)

"""Training in one process: ``python entry/serial.py -c configs/breakout_dqn_config.py``, with the options of
``breakout train``. The pipeline to read and to change is ``breakout_env/run/pipeline.py``.
"""

import sys

from breakout_env.run.pipeline import train as train  # for programs that train without a command
from breakout_env.utils.command_line import shell_command

if __name__ == '__main__':
    from breakout_cli.train import command

    command(prog_name=shell_command('python', sys.argv[0]))

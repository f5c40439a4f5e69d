"""Training with collectors on Ray: ``python entry/on_ray.py --collectors 2``, with the options of ``breakout train``.
What collects is ``breakout_env/cluster/ray_source.py``; this file is not called `ray.py`, which would hide the library.
"""

import sys
from functools import partial

from breakout_env.cluster.ray_source import OnRay
from breakout_env.run import pipeline
from breakout_env.utils.command_line import shell_command

train = partial(pipeline.train, source=OnRay)  # for programs that train without a command

if __name__ == '__main__':
    from breakout_cli.train import command

    command(['--collectors', 'auto', *sys.argv[1:]], prog_name=shell_command('python', sys.argv[0]))

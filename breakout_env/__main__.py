"""``python -m breakout_env``: the ``breakout`` command."""

from breakout_cli import main

if __name__ == '__main__':
    main(prog_name='breakout')

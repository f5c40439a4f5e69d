"""
Writes constraints.txt: the newest versions that setup.py admits, for each supported Python on 64-bit Linux.

Needs uv, which comes with the extra ``release``. Run the tests afterwards: the file lists what they ran with.
"""

import itertools
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ('3.10', '3.11', '3.12')
HEADER = """\
# The exact versions this project is tested with; `make` installs these. A project that uses ours needs none of them:
# the bounds in setup.py are what it has to meet. Made by tools/make_constraints.py.
"""


def resolve(python: str) -> dict:
    """Package to version, as a fresh installation with all extras on this Python would get it."""
    command = [
        sys.executable,
        '-m',
        'uv',
        'pip',
        'compile',
        'setup.py',
        '--all-extras',
        '--python-version',
        python,
        '--python-platform',
        'x86_64-manylinux_2_28',
        '--no-annotate',
        '--no-header',
        '--no-emit-index-url',
        '--no-emit-find-links',
        '--quiet',
    ]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return dict(line.split('==') for line in lines if '==' in line)


def marker(first: int, last: int) -> str:
    """For which of the Pythons a line is: from one of them to another, by their place in the list."""
    bounds = [f'python_version >= "{PYTHONS[first]}"'] if first > 0 else []
    bounds += [f'python_version < "{PYTHONS[last + 1]}"'] if last + 1 < len(PYTHONS) else []
    return '; ' + ' and '.join(bounds) if bounds else ''


def main() -> None:
    resolved = [resolve(python) for python in PYTHONS]
    lines = []
    for name in sorted(set().union(*resolved)):
        first = 0
        for version, group in itertools.groupby(found.get(name) for found in resolved):
            last = first + len(list(group)) - 1
            if version is not None:
                lines.append(f'{name}=={version}{marker(first, last)}')
            first = last + 1
    (ROOT / 'constraints.txt').write_text(HEADER + '\n'.join(lines) + '\n')


if __name__ == '__main__':
    main()

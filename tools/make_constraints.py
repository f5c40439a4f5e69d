"""
Writes constraints.txt: the newest versions that setup.py admits, for each supported Python on 64-bit Linux.

Needs uv (``pip install uv``). Run the tests on both Pythons afterwards: the file is called the tested set.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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


def main() -> None:
    on_310, on_311 = resolve('3.10'), resolve('3.11')
    lines = []
    for name in sorted({*on_310, *on_311}):
        if on_310.get(name) == on_311.get(name):
            lines.append(f'{name}=={on_310[name]}')
            continue
        for versions, marker in ((on_310, '<'), (on_311, '>=')):
            if name in versions:
                lines.append(f'{name}=={versions[name]}; python_version {marker} "3.11"')
    (ROOT / 'constraints.txt').write_text(HEADER + '\n'.join(lines) + '\n')


if __name__ == '__main__':
    main()

"""
Runs the steps of deploy/Dockerfile one by one in a folder, on a machine that has no engine to build images with::

    debootstrap --variant=minbase --include=python3-venv,python-is-python3,ca-certificates bookworm ROOT
    python tools/run_dockerfile.py ROOT --help

The folder stands for the base image. What comes after it is for the image's entry point, which is started at the end
as the image's user. Needs root's rights for chroot, and knows the instructions of that one file.
"""

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

CHECKOUT = Path(__file__).resolve().parent.parent
DOCKERFILE = CHECKOUT / 'deploy' / 'Dockerfile'


def instructions(dockerfile: Path = DOCKERFILE) -> List[Tuple[str, str]]:
    """Instruction and value, in order."""
    from dockerfile_parse import DockerfileParser  # in the extra `test`

    with dockerfile.open('rb') as file:
        structure = DockerfileParser(fileobj=file).structure
    return [(step['instruction'], step['value']) for step in structure if step['instruction'] != 'COMMENT']


def context(checkout: Path = CHECKOUT) -> Iterator[Path]:
    """The files that .dockerignore lets through to the build, relative to the checkout."""
    lines = (checkout / '.dockerignore').read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith('#')]
    for folder, _, names in os.walk(checkout):
        for name in names:
            path = (Path(folder) / name).relative_to(checkout)
            if not _is_ignored(path, patterns):
                yield path


def _is_ignored(path: Path, patterns: List[str]) -> bool:
    """As the last pattern says that is about the file or a folder it lies in."""
    is_ignored = False
    for pattern in patterns:
        wanted = pattern.lstrip('!')
        for part in (path, *path.parents[:-1]):
            name = part.name if wanted.startswith('**/') else str(part)
            # a star is one folder's, or everything would be `*`'s for good
            if fnmatch.fnmatchcase(name, wanted.replace('**/', '')) and ('*' not in wanted or '/' not in name):
                is_ignored = not pattern.startswith('!')
    return is_ignored


def copy(source: str, target: str, root: Path) -> None:
    """COPY: a file, or the whole context."""
    into = root / target.lstrip('/')
    for path in context():
        if source == '.':
            to = into / path
        elif str(path) == source:
            to = into / path.name if target.endswith('/') else into
        else:
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / path, to)


def run(command: List[str], root: Path, user: str, folder: str, environ: Dict[str, str]) -> None:
    """A command in the folder that stands for the image."""
    script = 'cd "$0" && exec "$@"'
    inside = ['chroot', f'--userspec={user}', str(root), '/bin/sh', '-c', script, folder, *command]
    subprocess.run(inside, env=environ, check=True)


def main() -> None:
    if len(sys.argv) < 2 or not Path(sys.argv[1], 'bin', 'sh').exists():
        sys.exit(f'{__doc__}\nexpected a folder with a Debian in it, found {sys.argv[1:2]}')
    root, arguments = Path(sys.argv[1]).resolve(), sys.argv[2:]
    environ = dict(PATH='/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin')
    user, folder, entry = '0:0', '/', []
    for number, (instruction, value) in enumerate(instructions(), 1):
        print(f'step {number}: {instruction} {value}', flush=True)
        begin_s = time.monotonic()
        if instruction == 'RUN':
            run(['/bin/sh', '-c', value], root, user, folder, environ)
        elif instruction == 'COPY':
            copy(*value.split(), root)
        elif instruction in ('ENV', 'ARG'):
            for name, content in re.findall(r'(\w+)=(\S*)', value):
                environ[name] = re.sub(r'\$(\w+)', lambda match: environ.get(match[1], ''), content)
        elif instruction == 'USER':
            user = value
        elif instruction == 'WORKDIR':
            folder = value
        elif instruction == 'ENTRYPOINT':
            entry = json.loads(value)
        elif instruction == 'CMD':
            arguments = arguments or json.loads(value)
        elif instruction != 'FROM':
            sys.exit(f'{DOCKERFILE} has the instruction {instruction}, which this script does not know')
        print(f'step {number}: done in {time.monotonic() - begin_s:.0f} s', flush=True)
    run([*entry, *arguments], root, user, folder, environ)


if __name__ == '__main__':
    main()

"""The checks of the release tier that need other environments, or hours: ``make test-release``, or one of them::

.venv/bin/nox -s "versions-3.11(lowest-direct)"
.venv/bin/nox -s mutation -- "breakout_env.run.saver*"
"""

import sys
from importlib import metadata
from pathlib import Path

import nox
from packaging.requirements import Requirement

MATERIALS = Path('docs', 'materials')
# Parts other than Python packages, which no tool finds in the packages' metadata.
LICENCE_NOTES = """\
# What an installation brings, and under which licences

Written by `nox -s licences`, as the packages state their licences in their metadata; no legal advice. For programs
there is [sbom.cdx.json](sbom.cdx.json), a bill of materials in the format of CycloneDX.

- ale-py ships game ROMs. Its description says: "Atari roms are packaged within the pip package."
- imageio-ffmpeg ships the program FFmpeg, built with `--enable-gpl` (GNU General Public License, version 3 or later).
  It runs as a separate process; nothing is linked with it.

"""

nox.options.default_venv_backend = 'uv'
nox.options.error_on_missing_interpreters = True


@nox.session(python=['3.10', '3.11', '3.12'])
@nox.parametrize('resolution', ['lowest-direct', 'highest'], ids=['lowest-direct', 'highest'])
def versions(session: nox.Session, resolution: str) -> None:
    """The tests with the lowest and the newest versions that setup.py admits, on each Python."""
    ours = [Requirement(line) for line in metadata.requires('ding-breakout') or [] if 'extra ==' not in line]
    # of old versions only wheels: whether an old source compiles is a question about compilers; DI-engine has none
    wheels = [word for each in ours if each.name != 'DI-engine' for word in ('--only-binary', each.name)]
    session.run('uv', 'pip', 'install', '--resolution', resolution, *wheels, '-e', '.')
    session.install('pytest', 'pytest-timeout', 'pytest-xdist', 'hypothesis', 'av', 'pygame', 'python-xlib')
    session.run('uv', 'pip', 'check')
    # it plays in the vector environment, where gymnasium 1.1.0 fails; its bounds must not change the tried versions
    session.install('--no-deps', 'stable-baselines3')
    # each requirement is used by one of these
    parts = ['agent', 'cli', 'compat', 'env_manager', 'envs', 'policy', 'rendering', 'replay', 'run', 'utils', 'worker']
    folders = session.posargs or [f'tests/{part}' for part in parts]
    chosen = ['-m', 'not process and not release', '-n', '2', '--dist', 'worksteal']
    peers = ['--ignore', 'tests/envs/test_equivalence.py']  # they ask for other versions
    session.run('python', '-m', 'pytest', *chosen, *peers, *folders, env=dict(OMP_NUM_THREADS='1'))


@nox.session(venv_backend='none')
def coverage(session: nox.Session) -> None:
    """How much of the package the default tests run, the programs that they start included."""

    def run(*arguments: str) -> None:
        session.run(sys.executable, '-m', 'coverage', *arguments, env=dict(OMP_NUM_THREADS='1'))

    run('erase')
    run('run', '-m', 'pytest', '-m', 'not process and not release', *session.posargs)
    run('combine', '--quiet')
    run('report', '--fail-under=90')


@nox.session(venv_backend='none')
def mutation(session: nox.Session) -> None:
    """Which changes of the code no test notices; hours. pyproject.toml says which modules, and which tests."""
    session.run(sys.executable, '-m', 'mutmut', 'run', '--max-children', '2', *session.posargs)
    session.run(sys.executable, '-m', 'mutmut', 'results')


@nox.session(python='3.11')
def licences(session: nox.Session) -> None:
    """Write docs/materials, for a release: what an installation brings, and under which licences."""
    MATERIALS.mkdir(exist_ok=True)
    session.install('-c', 'constraints.txt', '.')
    before = session.run('uv', 'pip', 'freeze', silent=True)
    names = [line.partition('==')[0] for line in before.splitlines() if '==' in line]
    python = session.run('python', '-c', 'import sys; print(sys.executable)', silent=True).strip()
    bill = MATERIALS / 'sbom.cdx.json'
    tool = ['uvx', '--from', 'cyclonedx-bom', 'cyclonedx-py', 'environment', '--output-reproducible']
    session.run(*tool, '--output-file', str(bill), python, external=True)
    bill.write_text(bill.read_text().replace(Path.cwd().as_uri(), '.'))  # nothing of this machine
    table = ['uvx', 'pip-licenses', '--python', python, '--format', 'markdown', '--packages', *names]
    text = session.run(*table, silent=True, external=True)
    (MATERIALS / 'licences.md').write_text(LICENCE_NOTES + text[text.index('|') :])  # uvx speaks first

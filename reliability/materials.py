"""
What an installation of this package brings, and under which licences: docs/materials.

    python reliability/materials.py

Installs the wheel, without extras and in the versions of constraints.txt, into an environment that has nothing else,
and writes what is found there: a bill of materials in CycloneDX's format (made by cyclonedx-bom and validated against
the format's schema by cyclonedx-python-lib, both in an environment of their own), and a table of licences for people,
as the packages state them. The same versions give the same files to the byte.
"""

import json
import re
import subprocess
import sys
import tempfile
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import click
from matrix import ROOT, Failed, Place, find_python, metadata
from packaging.utils import canonicalize_name

FOLDER = ROOT / 'docs' / 'materials'
BILL, LICENCES = 'sbom.cdx.json', 'licences.md'
TOOLS = ('cyclonedx-bom>=7,<8', 'cyclonedx-python-lib[json-validation]')
FORMAT_VERSION = '1.6'
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.from_version(sys.argv[1])).validate_str(open(sys.argv[2]).read())
sys.exit(f'not valid: {error}' if error else 0)
"""
HEADER = """\
# What an installation brings, and under which licences

*`pip install breakout-env` 所安装的全部软件包及其许可证，按各软件包自己的声明列出；\
机器可读的清单见 [sbom.cdx.json](sbom.cdx.json)。\
本文件由 `make materials` 生成，请勿手改。*

Written by `make materials`; not by hand. Licences are as the packages state them in their metadata, which is no legal
advice. For programs there is [sbom.cdx.json](sbom.cdx.json), a bill of materials in CycloneDX's format.
"""


def bill_of_materials(place: Place, environment: Path, python: str, own_name: str) -> str:
    """
    Overview:
        What is installed in an environment, as CycloneDX JSON.
    Arguments:
        - environment (:obj:`Path`): Has the package and what it asks for, nothing else.
        - python (:obj:`str`): Interpreter for the tools.
        - own_name (:obj:`str`): The package that the bill is about.
    Raises:
        - Failed: If the bill does not meet the format's schema.
    """
    tools = place.folder / 'audit-tools'
    place.run(place.uv, 'venv', '-q', '--python', python, tools)
    place.run(place.uv, 'pip', 'install', '-q', '--python', tools / 'bin' / 'python', *TOOLS)
    made, options = place.folder / 'made.json', ['--output-reproducible', '--sv', FORMAT_VERSION, '--of', 'JSON']
    command = [tools / 'bin' / 'python', '-m', 'cyclonedx_py', 'environment', *options]
    place.run(*command, '-o', made, environment / 'bin' / 'python')
    tidied = place.folder / BILL
    tidied.write_text(json.dumps(tidy(json.loads(made.read_text()), own_name), indent=1, sort_keys=True) + '\n')
    place.run(tools / 'bin' / 'python', '-c', VALIDATE, FORMAT_VERSION, tidied)
    return tidied.read_text()


def tidy(bill: Dict[str, Any], own_name: str) -> Dict[str, Any]:
    """
    Overview:
        A bill that is about a package, not about an environment: the package at the top, no paths of this machine, \
        everything in order.
    """
    own = next(part for part in bill['components'] if canonicalize_name(part['name']) == own_name)
    parts = [part for part in bill['components'] if part is not own]
    for part in (own, *parts):
        # home pages, and files of this machine: name, version and licence say what a package is
        part.pop('externalReferences', None)
    own['type'] = 'library'
    bill.setdefault('metadata', {})['component'] = own
    bill['components'] = sorted(parts, key=lambda part: part['bom-ref'])
    for entry in bill.get('dependencies', []):
        if 'dependsOn' in entry:
            entry['dependsOn'] = sorted(entry['dependsOn'])
    bill['dependencies'] = sorted(bill.get('dependencies', []), key=lambda entry: entry['ref'])
    return bill


def licence_of(package: Distribution) -> str:
    """
    Overview:
        What a package's metadata says: the expression, else the classifiers, else the first line of the free text.
    """
    about = package.metadata
    if about['License-Expression']:
        return about['License-Expression']
    classifiers = [
        line.split(' :: ')[-1] for line in about.get_all('Classifier') or [] if line.startswith('License ::')
    ]
    stated = [name for name in classifiers if name != 'OSI Approved']
    text = (about['License'] or '').strip().splitlines()
    return ', '.join(stated) or (text[0].strip()[:80] if text and text[0].strip() != 'UNKNOWN' else 'not stated')


def licence_files(package: Distribution) -> List[str]:
    """Names of the licence texts that a package brings, its own and others'."""
    pattern = re.compile(r'licen[cs]e|copying|notice|3rd.?party', re.IGNORECASE)
    return sorted({path.name for path in package.files or [] if pattern.search(path.name) and path.suffix != '.py'})


def statements_about_roms(packages: Dict[str, Distribution]) -> List[str]:
    """What ale-py says about the games that it ships."""
    package = packages['ale-py']
    roms = sorted(path.name for path in package.files or [] if path.suffix == '.bin')
    text = package.metadata.get_payload() or package.metadata['Description'] or ''
    said = [' '.join(part.split()) for part in re.split(r'\n\s*\n|\n\s*-\s', text)]
    about = [
        part
        for part in said
        if re.search(r'\bROMs?\b', part, re.I) and re.search(r'licen[cs]|packaged|legal', part, re.I)
    ]
    lines = [f'ale-py {package.version} states its licence as {licence_of(package)} and ships {len(roms)} game ROMs.']
    lines += [f'Its description says of them: "{part}"' for part in about]
    return lines if about else [*lines, 'Its metadata says nothing about a licence of the ROMs themselves.']


def statements_about_ffmpeg(python: Path, packages: Dict[str, Distribution]) -> List[str]:
    """What the FFmpeg that imageio-ffmpeg ships says about itself."""
    package = packages['imageio-ffmpeg']
    code = 'import imageio_ffmpeg; print(imageio_ffmpeg.get_ffmpeg_exe())'
    program = subprocess.run([python, '-c', code], check=True, capture_output=True, text=True).stdout.strip()
    version, licence = (
        subprocess.run([program, option], check=True, capture_output=True, text=True).stdout
        for option in ('-version', '-L')
    )
    flags = sorted(set(re.findall(r'--enable-(?:gpl|version3|nonfree)\b', version)))
    paragraphs = [' '.join(part.split()) for part in licence.split('\n\n')]
    terms = next((part for part in paragraphs if 'redistribute' in part), 'It states no licence.')
    return [
        f'imageio-ffmpeg {package.version} states its licence as {licence_of(package)}; that is the Python part.',
        f'The program that it ships is {version.splitlines()[0].split(" Copyright")[0]}, '
        f'configured with {", ".join(flags) or "none of --enable-gpl, --enable-version3, --enable-nonfree"}. '
        f'It says of itself: "{terms}"',
        'It runs as a process of its own; nothing is linked with it.',
    ]


def licences(python: Path, packages: Dict[str, Distribution], own_name: str) -> str:
    """
    Overview:
        The table for people.
    """
    own = packages[own_name]
    lines = [HEADER, f'{own.metadata["Name"]} {own.version} itself: {licence_of(own)}.', '']
    lines += ['## Parts that are no Python packages', '']
    for statement in (*statements_about_roms(packages), *statements_about_ffmpeg(python, packages)):
        lines.append(f'- {statement}')
    others = [packages[name] for name in sorted(packages) if name != own_name]
    lines += ['', f'## {len(others)} packages', '', '| package | version | licence | texts that it brings |']
    lines.append('| --- | --- | --- | --- |')
    for package in others:
        cells = [package.metadata['Name'], package.version, licence_of(package), ', '.join(licence_files(package))]
        lines.append('| ' + ' | '.join(cell.replace('|', '\\|') for cell in cells) + ' |')
    return '\n'.join(lines) + '\n'


def generate(folder: Path, python: str) -> Dict[str, str]:
    """
    Overview:
        The files of docs/materials, by name.
    Arguments:
        - folder (:obj:`Path`): For what is made on the way.
        - python (:obj:`str`): Interpreter of the environment.
    """
    place = Place(folder)
    wheel = place.build_wheel()
    environment = folder / 'installed'
    inside = environment / 'bin' / 'python'
    place.run(place.uv, 'venv', '-q', '--python', python, environment)
    place.run(place.uv, 'pip', 'install', '-q', '--python', inside, '-c', ROOT / 'constraints.txt', wheel)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = place.run(inside, '-c', code).strip()
    packages = {canonicalize_name(found.metadata['Name']): found for found in distributions(path=[site])}
    own_name = canonicalize_name(metadata(wheel)['Name'])
    return {
        BILL: bill_of_materials(place, environment, python, own_name),
        LICENCES: licences(inside, packages, own_name),
    }


@click.command(help=__doc__.split('\n\n')[0])
@click.option('--out', default=str(FOLDER), type=click.Path(file_okay=False), help='Folder; docs/materials by default.')
@click.option('--python', 'version', default='3.11', show_default=True, help='Version of the environment.')
@click.option('--check', is_flag=True, help='Write nothing; fail if the files would be others.')
def main(out: str, version: str, check: bool) -> None:
    python: Optional[str] = find_python(version, [sys.executable])
    if python is None:
        raise click.UsageError(f'--python is {version}; there is no python{version} on PATH')
    with tempfile.TemporaryDirectory(prefix='materials-', ignore_cleanup_errors=True) as folder:
        try:
            files = generate(Path(folder).resolve(), python)
        except Failed as error:
            raise click.ClickException(str(error)) from None
    if check:
        sys.exit(_differences(Path(out), files))
    Path(out).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (Path(out) / name).write_text(text)
        click.echo(f'{name}: {len(text):,} characters')
    bill = json.loads(files[BILL])
    click.echo(f'{len(bill["components"])} packages; valid CycloneDX {bill["specVersion"]}')


def _differences(folder: Path, files: Dict[str, str]) -> int:
    names: Sequence[str] = [
        name for name, text in files.items() if not (folder / name).is_file() or (folder / name).read_text() != text
    ]
    for name in names:
        click.echo(f'{name} is not what would be written now; make materials')
    return bool(names)


if __name__ == '__main__':
    main()

"""
What a transition costs in memory, and a batch in time, in this project's replay buffer and in others.

Each buffer is filled with real play (benchmarks/play.py) at three sizes, each in a process of its own. Bytes are the
growth of the process's resident memory from before the buffer is built to when it is full, so nothing is left out; the
row 'nothing' keeps nothing and shows how much of that is error. The JSON also has it 'live', after glibc was asked to
give back free pages between those in use. Times are medians over single batches of 32 drawn from the full buffer, with
3-step returns; pushes are timed without what brings a transition into the form that a buffer takes. A buffer that would
not fit here at a size is extrapolated from the size before, and says so.

    python benchmarks/play.py --player random --steps 1050000 --out random_1m.play
    python benchmarks/bench_replay.py --play random_1m.play --out docs/results/bench_replay.json
"""

import contextlib
import ctypes
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from importlib import metadata
from typing import Any, Dict, List, Optional

import click
import numpy as np
import play
import psutil
import torch
from replay_peers import CONTESTANTS, NOTHING, OURS
from tabulate import tabulate

PACKAGES = ['DI-engine', 'torch', 'numpy', 'zstandard', 'tianshou', 'stable-baselines3', 'torchrl', 'python-snappy']
BATCHES = 400
# left free for the rest of the machine
MARGIN_BYTES = 4 * 2**30


def resident() -> Dict[str, int]:
    """Resident memory of this process, and the part of it that files back."""
    fields = dict(line.split(':') for line in open('/proc/self/status') if line.startswith(('VmRSS', 'RssFile')))
    return {name: int(value.split()[0]) * 1024 for name, value in fields.items()}


def measure(name: str, size: int, recording: str, folder: str) -> Dict[str, Any]:
    """
    Overview:
        Fill one buffer and measure it; to be called in a fresh process.
    Arguments:
        - name (:obj:`str`): One of ``CONTESTANTS``.
        - size (:obj:`int`): Transitions.
        - recording (:obj:`str`): A file of benchmarks/play.py.
        - folder (:obj:`str`): Where it may write.
    Returns:
        - results (:obj:`Dict[str, Any]`): Bytes a transition, times, and for ours what it says of itself.
    """
    torch.set_num_threads(1)
    os.chdir(folder)  # DI-engine's buffers log to a folder below the current one
    kind = CONTESTANTS[name]
    if kind.feed == 'steps':
        feed = play.steps(recording)
    else:
        feed = play.transitions(recording, obs_dtype=kind.obs_dtype)
    # All that playing back, importing and a first use take is taken before the baseline, and playing back goes on from
    # there: begun anew, or ended before the second look, it would be counted in one of the two and not in the other.
    warm_up = kind(2000, 'warm-up')
    done = 0
    while done < 1600:
        batch = next(feed)
        warm_up.add(warm_up.prepare(batch))
        done += len(batch)
    for _ in range(20):
        warm_up.collated()
    warm_up.close()
    del warm_up
    # else the buffer would grow into what the first use left behind
    _give_back_free_pages()
    before = resident()
    buffer = kind(size, 'buffer')
    built = resident()
    done, adding_s = 0, 0.0
    for batch in feed:
        batch = batch[: size - done]
        prepared = buffer.prepare(batch)
        start = time.perf_counter()
        buffer.add(prepared)
        adding_s += time.perf_counter() - start
        done += len(batch)
        if done >= size:
            break
        if done % 8192 == 0 and psutil.virtual_memory().available < MARGIN_BYTES // 2:
            raise MemoryError(f'{name} at {done:,} of {size:,} leaves less memory than others on this machine need')
    if done < size:
        raise click.UsageError(f'{recording} holds {done} transitions; expected {size}')
    del batch, prepared
    after = resident()
    _give_back_free_pages()
    trimmed = resident()
    feed.close()
    results: Dict[str, Any] = dict(
        bytes_per_transition=(after['VmRSS'] - before['VmRSS']) / size,
        live_bytes_per_transition=(trimmed['VmRSS'] - before['VmRSS']) / size,
        built_bytes_per_transition=(built['VmRSS'] - before['VmRSS']) / size,
        file_backed_bytes_per_transition=(after['RssFile'] - before['RssFile']) / size,
        disk_bytes_per_transition=buffer.disk_bytes / size,
        pushes_per_s=size / adding_s,
    )
    if name == NOTHING:
        return results
    results['collated_ms'] = _times(buffer.collated)
    if kind.lists:
        results['list_ms'] = _times(buffer.listed)
    if name in OURS:
        path = 'saved.npz'
        start = time.perf_counter()
        buffer.buffer.save_data(path)
        results['save_s'] = time.perf_counter() - start
        results['saved_bytes'] = os.path.getsize(path)
        start = time.perf_counter()
        buffer.buffer.load_data(path)
        results['load_s'] = time.perf_counter() - start
        results['report'] = buffer.buffer.memory_report()
    buffer.close()
    return results


def _give_back_free_pages() -> None:
    """
    What lies between small pieces of memory that are in use is counted for the process, but used by nobody. glibc can
    give back whole pages of it; with and without tells what a buffer holds from what its way of filling leaves behind.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL('libc.so.6').malloc_trim(0)


def _times(call: Any) -> List[float]:
    """Quartiles of the milliseconds that a call takes."""
    for _ in range(20):
        call()
    times = []
    for _ in range(BATCHES):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return np.percentile(times, [25, 50, 75]).tolist()


def run(name: str, size: int, recording: str, folder: str) -> Dict[str, Any]:
    """``measure`` in a fresh process and an empty folder."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = [
            sys.executable,
            os.path.abspath(__file__),
            '--play',
            recording,
            '--measure',
            name,
            '--sizes',
            str(size),
        ]
        result = subprocess.run(
            [*command, '--scratch', scratch], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    if result.returncode:
        raise click.ClickException(f'{name} at {size:,} failed:\n{result.stderr[-3000:]}')
    return json.loads(result.stdout.splitlines()[-1])


def fits(smaller: Optional[Dict[str, Any]], size: int, folder: str) -> bool:
    """Whether there is memory and disk for a size, by what a smaller one took."""
    if smaller is None:
        return True
    memory = in_memory(smaller) * size + MARGIN_BYTES < psutil.virtual_memory().available
    disk = smaller['disk_bytes_per_transition'] * size + MARGIN_BYTES < shutil.disk_usage(folder).free
    # what is extrapolated once is extrapolated from then on
    return memory and disk and not smaller.get('extrapolated', False)


def in_memory(result: Dict[str, Any]) -> float:
    """Bytes a transition of memory that nobody else can have: pages of files are counted with the files."""
    return result['bytes_per_transition'] - result['file_backed_bytes_per_transition']


def table(results: Dict[str, Dict[str, Any]], sizes: List[int], markdown: bool) -> str:
    """The results for people."""
    rows = []
    for name, by_size in results.items():
        largest = by_size[str(sizes[-1])]
        mark = ' (extrapolated)' if largest.get('extrapolated') else ''
        memory = in_memory(largest)
        disk = largest['disk_bytes_per_transition']
        rows.append(
            [
                f'**{name}**' if markdown and name in OURS else name,
                f'{memory:,.0f}{f" + {disk:,.0f} on disk" if disk else ""}{mark}',
                f'{(memory + disk) * sizes[-1] / 1e9:,.2f} GB',
                *(_middle(by_size[str(size)], 'collated_ms') for size in sizes),
                _middle(largest, 'list_ms'),
                f'{largest["pushes_per_s"]:,.0f}' if 'pushes_per_s' in largest else '',
            ]
        )
    header = ['buffer', f'bytes a transition at {sizes[-1]:,}', 'in all']
    header += [f'ms a batch at {size:,}' for size in sizes] + ['ms as a list', 'pushes/s']
    return tabulate(rows, header, tablefmt='github' if markdown else 'simple', disable_numparse=True)


def _middle(result: Dict[str, Any], key: str) -> str:
    return f'{result[key][1]:.2f}' if key in result else ''


@click.command(context_settings=dict(help_option_names=['-h', '--help']))
@click.option(
    '--play', 'recording', required=True, type=click.Path(exists=True), help='Recording of benchmarks/play.py.'
)
@click.option('--sizes', default='10000,100000,1000000', show_default=True, help='Transitions, smallest first.')
@click.option('--only', multiple=True, type=click.Choice(list(CONTESTANTS)), help='Only these; may be repeated.')
@click.option('--out', type=click.Path(dir_okay=False), help='JSON to write; what is there of other buffers is kept.')
@click.option('--markdown', is_flag=True, help='Print the table as markdown.')
@click.option('--scratch', default=None, help='Folder for files of buffers that use the disk.')
@click.option('--measure', 'one', hidden=True, default=None)
def main(recording: str, sizes: str, only: tuple, out: str, markdown: bool, scratch: str, one: str) -> None:
    """Memory and time of replay buffers, side by side."""
    counts = [int(size) for size in sizes.split(',')]
    recording = os.path.abspath(recording)
    scratch = scratch or tempfile.gettempdir()
    if one:
        print(json.dumps(measure(one, counts[0], recording, scratch)))
        return
    results: Dict[str, Dict[str, Any]] = {}
    for name in only or CONTESTANTS:
        missing = CONTESTANTS[name].needs
        if missing and importlib.util.find_spec(missing) is None:
            click.echo(f'{name} is left out: {missing} is not installed', err=True)
            continue
        smaller = None
        results[name] = {}
        for size in counts:
            if fits(smaller, size, scratch):
                smaller = run(name, size, recording, scratch)
            else:
                keys = [key for key in smaller if key.endswith('bytes_per_transition')]
                smaller = dict({key: smaller[key] for key in keys}, extrapolated=True)
            results[name][str(size)] = smaller
            click.echo(f'{name} at {size:,}: {json.dumps(smaller)}', err=True)
    with_others = _kept(out)
    with_others.update(results)
    about = dict(
        date=datetime.now(timezone.utc).isoformat(timespec='seconds'),
        play=json.loads(_summary(recording)),
        cpus=os.cpu_count(),
        machine=platform.machine(),
        python=platform.python_version(),
        versions={d.metadata['Name']: d.version for d in metadata.distributions() if d.metadata['Name'] in PACKAGES},
    )
    if out:
        os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
        with open(out, 'w') as file:
            json.dump(dict(about=about, sizes=counts, results=with_others), file, indent=1)
    click.echo(table(with_others if out else results, counts, markdown))


def _kept(out: Optional[str]) -> Dict[str, Any]:
    if out and os.path.exists(out):
        with open(out) as file:
            return json.load(file)['results']
    return {}


def _summary(recording: str) -> str:
    import zipfile

    with zipfile.ZipFile(recording) as archive:
        return archive.read('summary.json').decode()


if __name__ == '__main__':
    main()

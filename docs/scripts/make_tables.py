"""
Write the tables of the README and the guides, from the measurements in docs/results.

    python docs/scripts/make_tables.py

Who measured what is in sources.py.
"""

import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import reliability_rows
import sources
import training_rows
from blocks import ROOT, fill, markdown

from breakout_env.run.log import RunLog

sys.path.insert(0, str(ROOT))  # for the table of benchmarks.replay.cost
RESULTS = ROOT / 'docs' / 'results'
PPO, R2D2 = (RESULTS / 'training' / f'{name}_seed0.jsonl.gz' for name in ('ppo', 'r2d2'))
PROTOCOLS = ('nature', 'sticky', 'greedy')


def load(name: str) -> Dict[str, Any]:
    """A result by the name of its file."""
    return json.loads((RESULTS / f'{name}.json').read_text())


def bold(name: str) -> str:
    """Contestants of this project stand out."""
    return f'**{name}**' if name.startswith(('ours', 'BreakoutEnv')) else name


# ---------------------------------------------------------------------------------------------- benchmarks


def contestants(section: Dict[str, Any], unit: str, more: Dict[str, str] = {}) -> str:
    """
    Overview:
        A section of a benchmark in interleaved rounds: a row for each contestant, those that failed as well.
    Arguments:
        - section (:obj:`Dict[str, Any]`): From the JSON file.
        - unit (:obj:`str`): Of the medians.
        - more (:obj:`Dict[str, str]`): Headers of further figures, with their formats.
    """
    rows = []
    for row in section['rows']:
        if 'failure' in row:
            rows.append([bold(row['name']), 'failed', '', '', *([''] * len(more))])
            continue
        digits = 0 if row['median'] >= 100 else 1
        spread = f'{row["low"]:,.{digits}f} to {row["high"]:,.{digits}f}' if 'low' in row else ''
        ratio = '' if row['ratio'] is None else f'{row["ratio"]:.2f}'
        figures = [format(row[key], form) for key, form in more.items()]
        rows.append([bold(row['name']), f'{row["median"]:,.{digits}f}', spread, ratio, *figures])
    headers = [section['title'], unit, 'min to max', 'ratio', *(key.replace('_', ' ') for key in more)]
    if not any(row[3] for row in rows):  # the reference took no part
        headers.pop(3)
        rows = [row[:3] + row[4:] for row in rows]
    elif not any(row[2] for row in rows):
        headers.pop(2)
        rows = [row[:2] + row[3:] for row in rows]
    return markdown(headers, rows, len(headers) - 1)


def several(name: str, unit: str, more: Dict[str, str] = {}) -> str:
    """All sections of a benchmark, one below the other."""
    return '\n\n'.join(contestants(section, unit, more) for section in load(name)['sections'])


def across(name: str, key: str) -> str:
    """Medians of several sections side by side, a column for each."""
    sections = load(name)['sections']
    rows = []
    for first in sections[0]['rows']:
        found = [next((r for r in section['rows'] if r['name'] == first['name']), {}) for section in sections]
        rows.append([bold(first['name']), *(f'{row["median"]:,.0f}' if 'median' in row else '' for row in found)])
    headers = [key.replace('_', ' '), *(f'{section[key]:,}' for section in sections)]
    return markdown(headers, rows, len(sections))


def life_cycle() -> str:
    rows = [[row['name'], f'{row["median_ms"]:.2f}'] for row in load('bench_env')['sections'][1]['rows']]
    return markdown(['life cycle of BreakoutEnv', 'ms, median'], rows, 1)


def env_shares() -> str:
    rows = [[part, f'{share:.0%}'] for part, share in load('profile')['env'].items()]
    return markdown(['a step of a group of four', 'share of the time'], rows, 1)


def update_parts() -> str:
    learners = load('profile')['learners']
    rows = [[part, *(f'{parts[part]:.1f}' for parts in learners.values())] for part in learners['lean_dqn']]
    return markdown(['ms of an update', *learners], rows, len(learners))


def rollout() -> str:
    parts = load('profile')['ppo']
    rows = [[part, f'{ms:,.0f}', f'{ms / sum(parts.values()):.0%}'] for part, ms in parts.items()]
    return markdown(['a rollout of 1,024 env steps', 'ms', 'share'], rows, 2)


def replay() -> str:
    from benchmarks.replay.cost import table

    measured = load('bench_replay')
    return table(measured['results'], measured['sizes'], 'github')


def million() -> str:
    """What a million transitions take, by what was played."""
    rows = []
    for name, file in (('random play', 'bench_replay'), ('a player that follows the ball', 'bench_replay_ball')):
        measured = load(file)
        about = measured.get('play') or measured['about']['play']
        taken = [measured['results'][kind]['1000000'] for kind in ('compressed', 'compressed, prioritised')]
        cells = [f'{row["bytes_per_transition"] / 1e3:.2f} GB' for row in taken]
        rows.append([name, f'{about["bricks_per_game"]:.1f}', *cells])
    return markdown(['1,000,000 transitions of', 'bricks a game', 'uniform', 'prioritised'], rows, 3)


def million_transitions() -> str:
    """The one number that all documents name: of play that fills the buffer with more different screens."""
    return _gb(load('bench_replay_ball')['results']['compressed']['1000000']['bytes_per_transition'])


def training_memory() -> str:
    measured = load('training_memory')
    row = [f'{measured["transitions"]:,}', f'{measured["largest_bytes"] / 1e9:.2f} GB']
    return markdown(
        ['transitions in the buffer', 'at most', 'median'], [[*row, f'{measured["median_bytes"] / 1e9:.2f} GB']], 2
    )


def exchange() -> str:
    rows = [
        [bold(row['name']), f'{row["play_bytes_per_env_step"]:,.0f}', f'{row["ratio"]:,.0f}']
        for row in load('bench_exchange')['sections'][0]['rows']
    ]
    return markdown(['exchange', 'bytes an env step', 'times ours'], rows, 2)


# ---------------------------------------------------------------------------------------------- trainings and agents


def last(values: np.ndarray) -> float:
    """The last value that is a number."""
    numbers = values[np.isfinite(values)]
    return float(numbers[-1]) if len(numbers) else float('nan')


def one_run(path: Path, title: str) -> str:
    """What a training reached, from its log."""
    log = RunLog.read(path)
    progress, evaluation = log.progress, log.evaluation
    judged = np.isfinite(evaluation['score'])
    scores, steps = evaluation['score'][judged], evaluation['env_step'][judged]
    rows = [
        ['env steps, updates', f'{last(progress["env_step"]):,.0f}, {last(progress["updates"]):,.0f}'],
        ['hours', f'{last(progress["hours"]):.2f}'],
        ['env steps/s, median', f'{np.nanmedian(progress["env_steps_per_s"]):,.0f}'],
        ['score while training, last 100 games', f'{last(progress["train_return"]):.1f}'],
        ['best evaluation', f'{scores.max():.1f} at {steps[scores.argmax()]:,.0f} env steps'],
        ['last evaluation', f'{scores[-1]:.1f}'],
        ['most memory', f'{np.nanmax(progress["memory_bytes"]) / 1e9:.2f} GB'],
    ]
    if (above := steps[scores > 31.8]).size:
        rows.insert(4, ['first evaluation above the human score of 31.8', f'at {above[0]:,.0f} env steps'])
    return markdown([title, ''], rows, 1)


def agents() -> List[Dict[str, Any]]:
    """The shipped agents, that of fewer env steps first."""
    found = [json.loads(path.read_text()) for path in (RESULTS / 'agents').glob('*.json')]
    return sorted(found, key=lambda agent: agent['card']['env_steps'])


def scores(protocols: tuple = PROTOCOLS) -> str:
    rows = []
    for card in (agent['card'] for agent in agents()):
        for protocol in protocols:
            measured = card['scores'][protocol]
            interval = measured['interval_95']
            rows.append([card['name'], protocol, f'{card["env_steps"]:,}', f'{card["hours"]:.2f}'])
            rows[-1] += [f'{measured["mean"]:.1f}', f'{measured["std"]:.1f}']
            rows[-1] += ['{:.1f} to {:.1f}'.format(*interval) if interval else 'none']
            rows[-1] += [str(measured['episodes']), str(measured['distinct_games'])]
    headers = ['agent', 'protocol', 'env steps', 'hours', 'mean score', 'std', '95% interval', 'games', 'different']
    return markdown(headers, rows, 7)


def averages() -> str:
    counts = sorted({row['checkpoints'] for agent in agents() for row in agent['selection']['candidates']})
    rows = []
    for agent in agents():
        by_count = {row['checkpoints']: row for row in agent['selection']['candidates']}
        cells = [f'{by_count[count]["mean"]:.1f}' if count in by_count else '' for count in counts]
        rows.append([f'{agent["card"]["env_steps"]:,} env steps, {agent["selection"]["games"]} games', *cells])
    return markdown(['mean score by averaged checkpoints', *map(str, counts)], rows, len(counts))


def no_fire() -> str:
    games = load('no_fire')['games']
    scores = [game['score'] for game in games]
    row = [str(len(games)), f'{np.mean(scores):.1f}', f'{np.mean([game["steps"] for game in games]):,.0f} steps']
    row.append(str(sum(game['truncated'] for game in games)))
    return markdown(['games', 'mean score', 'mean length', 'cut off after 108,000 frames'], [row], 4)


def comparison() -> str:
    """What this package gives over the alternatives, for the README."""
    names = ('bench_env', 'bench_manager', 'bench_learner', 'bench_train')
    env, manager, learner, train = map(_medians, names)
    full_games = _medians('bench_manager', 1)
    bytes_stored = {
        name: by_size['1000000']['bytes_per_transition'] + by_size['1000000']['disk_bytes_per_transition']
        for name, by_size in load('bench_replay')['results'].items()
    }
    judged = training_rows.by_variant(training_rows.rows())
    points = {
        name: np.mean([row['score'] for row in seeds]) for (minutes, name), seeds in judged.items() if minutes == 40
    }
    other = max((name for name in points if name.startswith(('SB3', 'CleanRL'))), key=lambda name: points[name])
    gymnasium = env['gymnasium AtariPreprocessing + FrameStackObservation']
    rows = [
        [
            'score after 40 minutes of training',
            f'{points[training_rows.DEFAULT]:.0f}',
            f'{points["DI-engine dqn"]:.0f}',
            f'{points[other]:.0f} ({other})',
        ],
        ['one environment, env steps/s', env['BreakoutEnv'], 'its own does not run', f'{gymnasium} (gymnasium)'],
        [
            '8 environments, episodes of a life, env steps/s',
            manager['ours, breakout'],
            manager["DI-engine's subprocess"],
            f'{manager["EnvPool, asynchronous, 2 threads"]} (EnvPool)',
        ],
        [
            '8 environments, full games, env steps/s',
            full_games['ours, breakout'],
            full_games["DI-engine's subprocess"],
            f'{full_games["EnvPool, asynchronous, 2 threads"]} (EnvPool)',
        ],
        [
            'DQN updates/s',
            f'{learner["ours, lean_dqn"]}, in bfloat16 {learner["ours, lean_dqn, bfloat16"]}',
            learner["DI-engine's dqn, its own buffer"],
            f'{learner["plain torch, as CleanRL"]} (plain PyTorch)',
        ],
        [
            'DQN training, env steps/s',
            f'{train["ours, serial"]}, in bfloat16 {train["ours, serial, bfloat16"]}',
            train["DI-engine's serial pipeline"],
            f'{train["Stable-Baselines3, 8 environments"]} (Stable-Baselines3)',
        ],
        [
            'a million transitions, uint8',
            million_transitions(),
            _gb(bytes_stored["DI-engine's advanced, uint8"]),
            f'{_gb(bytes_stored["snappy elements, as in Dopamine"])} (as in Dopamine)',
        ],
    ]
    return markdown(['on 2 CPU cores', 'breakout_env', 'DI-engine', 'best other'], rows, 0)


def _medians(name: str, index: int = 0) -> Dict[str, str]:
    """Of a section of a benchmark, by contestant."""
    rows = load(name)['sections'][index]['rows']
    return {row['name']: f'{row["median"]:,.0f}' for row in rows if 'median' in row}


def saturation() -> str:
    """What one learner takes in."""
    sections = load('bench_saturation')['sections']
    rows = [[row['title'], f'{row["env_steps_per_s"]:,.0f}', f'{row["updates_per_s"]:.0f}'] for row in sections]
    return markdown(['64 collectors that replay a fragment of 256 transitions', 'env steps/s', 'updates/s'], rows, 2)


def dizoo() -> str:
    """What the lifecycle kit says about DI-engine's own environments: the checks that at least one fails."""
    rows = load('lifecycle')['rows']
    states = {row['env']: {finding['check']: finding['state'] for finding in row['findings']} for row in rows}
    checks = [
        name for name in states['BreakoutEnv'] if any(found[name] in ('fail', 'warning') for found in states.values())
    ]
    marks = {'fail': 'x', 'warning': 'w', 'skipped': '-'}
    table = [[env, *(marks.get(found[name], '') for name in checks)] for env, found in states.items()]
    return markdown(['environment', *(f'`{name}`' for name in checks)], table, 0)


def _gb(bytes_per_transition: float) -> str:
    return f'{bytes_per_transition / 1e3:,.2f} GB'


TABLES: Dict[str, Dict[str, Callable[[], str]]] = {
    'README.md': {'comparison': comparison, 'scores': lambda: scores(('nature',))},
    'README.zh-CN.md': {'comparison': comparison, 'scores': lambda: scores(('nature',))},
    'docs/performance.md': {
        'env': lambda: contestants(load('bench_env')['sections'][0], 'env steps/s'),
        'life-cycle': life_cycle,
        'manager': lambda: several('bench_manager', 'env steps/s'),
        'scaling': lambda: across('bench_manager_scaling', 'env_num'),
        'env-shares': env_shares,
        'learner': lambda: several('bench_learner', 'updates/s'),
        'update-parts': update_parts,
        'rollout': rollout,
        'networks': lambda: several('bench_networks', 'updates/s'),
        'batches': lambda: across('bench_learner_batches', 'batch_size'),
        'train': lambda: several('bench_train', 'env steps/s'),
        'busy': lambda: several('bench_busy', 'env steps/s'),
    },
    'docs/results/README.md': {'sources': sources.table},
    'docs/lifecycle.md': {'dizoo': dizoo},
    'docs/lifecycle.zh-CN.md': {'dizoo': dizoo},
    'docs/memory.md': {'replay': replay, 'million': million, 'training': training_memory},
    'docs/training.md': {
        'run': lambda: one_run(PPO, 'PPO on a CPU, seed 0, 2 threads'),
        'run-r2d2': lambda: one_run(R2D2, 'R2D2 on a CPU, seed 0, 1 thread'),
        'expect': lambda: training_rows.expect(training_rows.rows()),
        'recipes': lambda: training_rows.table(training_rows.rows()),
        'beside': lambda: training_rows.beside(training_rows.rows()),
        'after-env-steps': lambda: training_rows.after_env_steps(training_rows.env_steps_rows()),
        'recipes-what': lambda: training_rows.changes([*training_rows.rows(), *training_rows.env_steps_rows()]),
        'averages': averages,
        'no-fire': no_fire,
        'scores': scores,
    },
    'docs/reliability.md': {
        'promises': lambda: reliability_rows.block('faults', reliability_rows.promises),
        'soak': lambda: reliability_rows.block('soak', reliability_rows.soak),
        'input': lambda: reliability_rows.block('fuzz', reliability_rows.odd_input),
    },
    'docs/scale.md': {
        'runs': lambda: several('bench_scale', 'env steps/s', {'updates_per_s': '.1f', 'memory_gb': '.2f'}),
        'saturation': saturation,
        'exchange': exchange,
    },
}


def main() -> None:
    """Fill the blocks of all guides."""
    for guide, tables in TABLES.items():
        for name, make in tables.items():
            fill(Path(ROOT, guide), name, make())


if __name__ == '__main__':
    main()

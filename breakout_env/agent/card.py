"""
What is known about an agent, stored beside its weights: its card, a JSON object, all of whose keys are optional.

- ``name`` (str), a short name; ``limits`` (str), what the agent cannot do, and what its figures do not show.
- ``env_steps``, ``updates``, ``seed`` (int), ``hours`` (float), ``commit``, ``config`` (str): the training.
- ``scores`` (object): for each protocol of ``evaluation.PROTOCOLS`` what ``evaluation.Report.summary`` gives:
  ``mean``, ``std``, ``median`` (float), ``interval_95`` ([low, high], or null where it would be meaningless),
  ``episodes``, ``distinct_games``, ``seed`` (int). FIRE is pressed after a lost life, games have the usual length.
"""

from typing import Any, List, Mapping, Sequence

FACTS = dict(
    env_steps='env steps', updates='updates', seed='seed', hours='hours of training', config='config', commit='commit'
)
FIGURES = ('mean', 'std', 'median', 'interval_95', 'episodes', 'distinct_games', 'seed')


def card_as_markdown(card: Mapping[str, Any]) -> str:
    """A card as Markdown, for people; it leaves out the keys that the card lacks."""
    lines = [f'# {_cell(card.get("name", "An agent"))}', '']
    lines += _table(['training', ''], [[label, card[key]] for key, label in FACTS.items() if card.get(key) is not None])
    scores = card.get('scores') or {}
    if scores:
        header = ['protocol', 'mean', 'std', 'median', '95% interval of the mean', 'games', 'different games', 'seed']
        lines += _table(header, [[name] + [row.get(key) for key in FIGURES] for name, row in scores.items()])
        lines += [
            'Points of full games. `breakout eval --pretrained --protocol <protocol>` plays such games again. The '
            'interval is about the luck of the games; another training, from another seed, may end elsewhere.',
            '',
        ]
    lines += [str(card[key]) for key in ('limits', 'note') if card.get(key)]
    return '\n'.join(lines).rstrip() + '\n'


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> List[str]:
    if not rows:
        return []
    alignment = ['---'] + ['---:'] * (len(header) - 1)
    return [f'| {" | ".join(map(_cell, row))} |' for row in (header, alignment, *rows)] + ['']


def _cell(value: Any) -> str:
    if value is None:
        return 'none'
    if isinstance(value, (list, tuple)):
        return ' to '.join(map(_cell, value))
    if isinstance(value, float):
        return f'{value:,.1f}'
    text = f'{value:,}' if isinstance(value, int) and abs(value) >= 10_000 else str(value)
    return text.replace('|', '\\|').replace('\n', ' ')

"""Write the option tables of docs/options.md, from the models that check the options.

python docs/scripts/make_options.py
"""

import re

from blocks import ROOT, fill

from breakout_env.env_manager.options import EnvManagerOptions
from breakout_env.envs.options import EVALUATION_DEFAULTS, BreakoutOptions
from breakout_env.policy.lean_ppo import LeanPPOOptions
from breakout_env.policy.learner import LearnerOptions
from breakout_env.policy.pixel_models import PixelModelOptions
from breakout_env.replay.options import ReplayOptions, TorchRLOptions
from breakout_env.run.progress import ProgressOptions
from breakout_env.run.resume_hook import ResumeOptions
from breakout_env.utils.options import Options, describe_type

GUIDE = ROOT / 'docs' / 'options.md'
MODELS = {
    'env': BreakoutOptions,
    'env-manager': EnvManagerOptions,
    'replay': ReplayOptions,
    'torchrl': TorchRLOptions,
    'model': PixelModelOptions,
    'lean-dqn': LearnerOptions,
    'lean-ppo': LeanPPOOptions,
    'progress': ProgressOptions,
    'resume': ResumeOptions,
}


def blocks() -> dict[str, str]:
    """Each table, without rows that an earlier one has, and the defaults of evaluation, by the name of its block."""
    made: dict[str, str] = {}
    for name, model in MODELS.items():
        rows = [row for row in table(model) if not any(row in earlier.splitlines() for earlier in made.values())]
        made[name] = '\n'.join(['| option | default | allowed | meaning |', '| --- | --- | --- | --- |', *rows])
    changed = [
        f'`{name}={value!r}`'
        for name, value in EVALUATION_DEFAULTS.items()
        if value != BreakoutOptions.model_fields[name].default
    ]
    made['evaluation'] = f'In evaluation the defaults are {", ".join(changed)}.'
    return made


def table(model: type[Options]) -> list[str]:
    """The options of a section as the rows of a Markdown table, for the docs."""
    rows = []
    for name, field in model.model_fields.items():
        # the type is in the column beside it
        meaning = re.sub(r'^\([^)]*\) ', '', ' '.join((field.description or '').split())).replace('``', '`')
        default = 'required' if field.is_required() else f'`{field.default!r}`'
        rows.append(f'| `{name}` | {default} | {describe_type(field.rebuild_annotation())} | {meaning} |')
    return rows


if __name__ == '__main__':
    for name, text in blocks().items():
        fill(GUIDE, name, text)

"""Agents in files: what was trained is what plays, and nothing in a file is run, whoever wrote it."""

import io
import json
import pickle
import re
import zipfile

import numpy as np
import pytest
import torch
from ding.model import C51DQN, DQN
from safetensors.torch import save_file

from breakout_env import PixelC51DQN, PixelDQN, PixelDRQN, PixelQRDQN, PixelRainbowDQN, PixelVAC
from breakout_env.agent.agent import load_agent, save_agent
from breakout_env.agent.card import card_as_markdown, stated_score

SMALL = [4, 4, 4, 8]
CARD = dict(
    name='small',
    env_steps=1_000_000,
    seed=0,
    scores=dict(
        nature=dict(
            mean=31.8, std=10.0, median=30.0, interval_95=[29.8, 33.8], episodes=100, distinct_games=100, seed=0
        )
    ),
    limits='plays nothing else',
)


def small_network(**kwargs) -> PixelDQN:
    torch.manual_seed(0)
    return PixelDQN([4, 84, 84], 4, **{'encoder_hidden_size_list': SMALL, **kwargs})


def checkpoint(path, model) -> str:
    """As DI-engine's learner writes it."""
    optimizer = torch.optim.Adam(model.parameters())
    state = model.state_dict()
    torch.save(dict(model=state, target_model=state, optimizer=optimizer.state_dict(), last_iter=7, last_step=9), path)
    return str(path)


def observations(count=3, frames=4, size=84) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, frames, size, size), dtype=np.uint8)


def values(model, obs) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(obs))['logit'].numpy()


# ---- what was trained is what plays


@pytest.mark.parametrize(
    'kwargs',
    [
        dict(dueling=True),
        dict(dueling=False),
        dict(dueling=True, head_layer_num=2),
        dict(encoder_hidden_size_list=[4, 4, 4, 4, 4, 8]),  # residual blocks
        dict(encoder_hidden_size_list=[32, 64, 64, 512]),
    ],
)
@pytest.mark.parametrize('kind', ['checkpoint', 'safetensors'])
def test_an_agent_gives_the_values_of_its_network(kwargs, kind, tmp_path):
    model = small_network(**kwargs)
    if kind == 'checkpoint':
        path = checkpoint(tmp_path / 'ckpt_best.pth.tar', model)
    else:
        path = str(tmp_path / 'agent.safetensors')
        save_agent(path, model.state_dict(), {})
    agent = load_agent(path)
    assert (agent.frame_stack, agent.screen_size, agent.action_count) == (4, 84, 4)
    obs = observations()
    assert np.array_equal(agent.q_values(obs), values(model, obs)) and agent.q_values(obs).dtype == np.float32
    actions = agent.act(obs)
    assert actions.dtype == np.int64 and np.array_equal(actions, values(model, obs).argmax(1))
    assert not agent.model.training


def test_a_checkpoint_of_di_engines_own_dqn_plays_on_pixels(tmp_path):
    torch.manual_seed(0)
    theirs = DQN([4, 84, 84], 4, encoder_hidden_size_list=SMALL)
    agent, obs = load_agent(checkpoint(tmp_path / 'c.pth.tar', theirs)), observations()
    with torch.no_grad():
        assert np.array_equal(agent.q_values(obs), theirs(torch.from_numpy(obs).float() / 255)['logit'].numpy())


@pytest.mark.parametrize('frames, size, actions', [(2, 84, 4), (4, 44, 4), (4, 84, 18)])
def test_stack_screen_and_actions_are_seen_from_the_weights(frames, size, actions, tmp_path):
    model = PixelDQN([frames, size, size], actions, encoder_hidden_size_list=SMALL)
    agent = load_agent(checkpoint(tmp_path / 'c.pth.tar', model))
    assert agent.q_values(observations(2, frames, size)).shape == (2, actions)
    options = dict(frame_stack=frames, screen_size=size, full_action_space=actions == 18, obs_dtype='uint8')
    assert agent.env_options == options


def test_a_screen_that_the_weights_can_not_tell_is_kept_beside_them(tmp_path, caplog):
    """A convolution does not read what is less than its stride: 92 to 99 pixels have the same weights."""
    model = PixelDQN([4, 96, 96], 4, encoder_hidden_size_list=SMALL)
    assert load_agent(checkpoint(tmp_path / 'c.pth.tar', model)).screen_size == 92
    assert '92 to 99' in caplog.text
    save_agent(tmp_path / 'a.safetensors', model.state_dict(), {}, screen_size=96)
    assert load_agent(tmp_path / 'a.safetensors').screen_size == 96
    with pytest.raises(ValueError, match='screen_size'):
        save_agent(tmp_path / 'a.safetensors', model.state_dict(), {}, screen_size=84)


def test_the_card_travels_with_the_weights(tmp_path):
    save_agent(tmp_path / 'a.safetensors', small_network().state_dict(), CARD)
    agent = load_agent(tmp_path / 'a.safetensors')
    assert agent.card == CARD and agent.name == 'small'
    assert load_agent(checkpoint(tmp_path / 'ckpt_best.pth.tar', small_network())).name == 'ckpt_best'


def test_the_pretrained_agent_is_there():
    agent = load_agent()
    assert agent.card and agent.act(observations()).shape == (3,)


def test_loading_draws_no_random_numbers(tmp_path):
    path = checkpoint(tmp_path / 'c.pth.tar', small_network())
    before = torch.get_rng_state()
    load_agent(path)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize('wrong', [observations()[0], observations().astype(np.float32), observations(size=80), [1]])
def test_other_observations_are_refused_by_shape_and_type(wrong, tmp_path):
    agent = load_agent(checkpoint(tmp_path / 'c.pth.tar', small_network()))
    with pytest.raises(ValueError, match=r'expected a uint8 array \(batch, 4, 84, 84\)'):
        agent.q_values(wrong)


def test_a_gpu_that_is_not_there_is_a_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    with pytest.raises(ValueError, match='finds no GPU'):
        load_agent(device='cuda')


# ---- files by others


class Writes(object):
    """Unpickled, it writes a file."""

    def __init__(self, path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return (eval, (f"open({self.path!r}, 'w').write('run')",))


def in_zip(content: dict, compression: int) -> bytes:
    """A checkpoint, packed again."""
    stored, packed = io.BytesIO(), io.BytesIO()
    torch.save(content, stored)
    with zipfile.ZipFile(stored) as old, zipfile.ZipFile(packed, 'w', compression) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return packed.getvalue()


def test_code_in_a_file_is_not_run(tmp_path):
    trap = Writes(tmp_path / 'written')
    (tmp_path / 'plain.pth.tar').write_bytes(pickle.dumps(dict(model=trap)))
    torch.save(dict(model=small_network().state_dict(), optimizer=trap), tmp_path / 'zip.pth.tar')
    torch.save(trap, tmp_path / 'old.pth.tar', _use_new_zipfile_serialization=False)
    torch.save(small_network(), tmp_path / 'module.pth.tar')  # a whole network is code, too
    for name in ('plain', 'zip', 'old', 'module'):
        with pytest.raises(ValueError, match='neither a checkpoint nor an agent') as error:
            load_agent(tmp_path / f'{name}.pth.tar')
        assert 'weights_only' not in str(error.value) and '\n' not in str(error.value)
    assert not (tmp_path / 'written').exists()
    pickle.loads((tmp_path / 'plain.pth.tar').read_bytes())  # it would have been
    assert (tmp_path / 'written').exists()


@pytest.mark.parametrize('kind', ['checkpoint', 'safetensors'])
def test_a_cut_off_file_is_a_sentence(kind, tmp_path):
    whole = tmp_path / 'whole'
    if kind == 'checkpoint':
        checkpoint(whole, small_network())
    else:
        save_agent(whole, small_network().state_dict(), CARD)
    content = whole.read_bytes()
    for length in sorted({0, 1, 8, 9, 100, len(content) // 2, len(content) - 1}):
        (tmp_path / 'cut').write_bytes(content[:length])
        with pytest.raises(ValueError, match='cut: |cut is ') as error:
            load_agent(tmp_path / 'cut')
        assert '\n' not in str(error.value)


def foreign_files(folder):
    state = small_network().state_dict()
    rng = np.random.default_rng(0)
    (folder / 'noise').write_bytes(rng.bytes(5000))
    (folder / 'text').write_text('{"no": "agent"}')
    blank = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    (folder / 'zip').write_bytes(in_zip(dict(model=blank), zipfile.ZIP_DEFLATED))  # small here, large in memory
    torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)).save(folder / 'torchscript')
    torch.save([1, 2, 3], folder / 'list')
    torch.save(dict(model={}), folder / 'empty')
    torch.save(dict(model=dict(state, extra=7)), folder / 'number')
    claims = {name: torch.zeros(1).expand(tensor.shape) for name, tensor in state.items()}
    torch.save(dict(model=claims), folder / 'view')  # so is this one
    torch.save(dict(model={**state, 'encoder.mid.bias': torch.full((8,), torch.nan)}), folder / 'nan')
    torch.save(dict(model={**state, 'encoder.mid.bias': torch.zeros(8, dtype=torch.int64)}), folder / 'ints')
    torch.save(dict(model={**state, 'encoder.main.0.weight': torch.zeros(4, 4, 5, 5)}), folder / 'kernel')
    torch.save(dict(model={**state, 'encoder.main.0.weight': torch.zeros(())}), folder / 'scalar')
    torch.save(dict(model={**state, 'encoder.main.4.weight': torch.zeros(0, 4, 3, 3)}), folder / 'nothing')
    torch.save(dict(model={k: v for k, v in state.items() if k != 'head.V.1.0.bias'}), folder / 'missing')
    for network in (PixelC51DQN, PixelQRDQN, PixelRainbowDQN, PixelDRQN, PixelVAC):
        model = network([4, 84, 84], 4, encoder_hidden_size_list=SMALL)
        torch.save(dict(model=model.state_dict()), folder / network.__name__)
    torch.save(dict(model=DQN(4, 2).state_dict()), folder / 'cartpole')
    torch.save(dict(model=C51DQN(4, 2).state_dict()), folder / 'cartpole51')
    for name, metadata in (
        ('card', dict(card='[' * 100_000)),
        ('cardlist', dict(card='[]')),
        ('size', dict(screen_size='9' * 5000)),
        ('sizetext', dict(screen_size='²')),
    ):
        save_file(state, folder / name, metadata)
    return sorted(folder.iterdir())


def test_a_foreign_file_is_a_sentence(tmp_path):
    files = foreign_files(tmp_path)
    assert len(files) > 20
    for path in files:
        with pytest.raises(ValueError) as error:
            load_agent(path)
        message = str(error.value)
        assert message.startswith(str(path)) and '\n' not in message and len(message) < 600, message


def test_a_file_that_can_not_be_opened_is_a_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match='no_such_file can not be read'):
        load_agent(tmp_path / 'no_such_file')
    with pytest.raises(OSError, match='can not be read'):
        load_agent(tmp_path)


def test_a_name_in_a_file_can_not_move_the_cursor(tmp_path):
    save_agent(tmp_path / 'a.safetensors', small_network().state_dict(), dict(name='\x1b[2Jbest\n' + 'x' * 1000))
    assert re.fullmatch(r'\[2Jbestx{53}', load_agent(tmp_path / 'a.safetensors').name)


def test_what_is_no_agent_is_not_written(tmp_path):
    with pytest.raises(ValueError, match='not DI-engine'):
        save_agent(tmp_path / 'a', PixelVAC([4, 84, 84], 4, encoder_hidden_size_list=SMALL).state_dict(), {})
    with pytest.raises(ValueError):
        save_agent(tmp_path / 'a', small_network().state_dict(), dict(mean=float('nan')))
    assert not list(tmp_path.iterdir())


# ---- cards


def test_a_card_for_people_has_all_that_the_card_has():
    text = card_as_markdown(CARD)
    assert '| env steps | 1,000,000 |' in text and 'plays nothing else' in text
    assert '| nature | 31.8 | 10.0 | 30.0 | 29.8 to 33.8 | 100 | 100 | 0 |' in text
    assert card_as_markdown({'note': 'preliminary'}) == '# An agent\n\npreliminary\n'


@pytest.mark.parametrize('scores', [None, [], {}, dict(nature=3), dict(nature=dict(mean='9', std=1, episodes=2))])
def test_a_card_that_states_no_figures_states_none(scores):
    assert stated_score(dict(scores=scores), 'nature') is None
    assert stated_score(json.loads(json.dumps(CARD)), 'nature')['mean'] == 31.8

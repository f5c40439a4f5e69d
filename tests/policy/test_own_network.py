"""``PixelInput`` before a network of one's own layers."""

import pytest
import torch

from breakout_env import PixelInput


class Mine(PixelInput, torch.nn.Module):
    def __init__(self, obs_shape, action_shape):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(obs_shape[0] * 9, action_shape))

    def forward_scaled(self, x):
        return dict(logit=self.layers(x))


def test_it_gets_the_same_scaled_pixels_for_either_dtype_and_not_the_encoder_that_di_engine_inserts():
    model = Mine(obs_shape=[2, 3, 3], action_shape=4, encoder_hidden_size_list=[128, 128, 64])
    pixels = torch.randint(0, 256, (5, 2, 3, 3), dtype=torch.uint8)
    expected = model.layers(pixels.float() / 255)
    assert torch.equal(model(pixels)['logit'], expected) and torch.equal(model(pixels.float())['logit'], expected)
    with pytest.raises(ValueError, match='expects pixel values 0..255'):
        Mine([2, 3, 3], 4)(pixels.float() / 255)


def test_an_encoder_that_the_config_names_is_not_dropped():
    with pytest.raises(TypeError, match='encoder_hidden_size_list'):
        Mine([2, 3, 3], 4, encoder_hidden_size_list=[8, 8, 8, 16])

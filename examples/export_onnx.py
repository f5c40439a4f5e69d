"""An agent as ONNX, for programs without PyTorch: ``python export_onnx.py AGENT FILE.onnx``.

The file takes uint8 ``pixels`` of shape (batch, screens, size, size), the newest screen last. It gives, as float32 of
shape (batch, actions), the ``logits`` of a policy or ``q_values``. This needs ``pip install onnx onnxscript``.
"""

import sys

import torch

from breakout_env.agent import load_agent

agent = load_agent(sys.argv[1])
# two observations, as the exporter takes a size of 1 for fixed
pixels = torch.zeros(2, agent.frame_stack, agent.screen_size, agent.screen_size, dtype=torch.uint8)
program = torch.onnx.export(
    agent.model,
    (pixels,),
    dynamo=True,
    input_names=['pixels'],
    output_names=[agent.output_name],
    dynamic_shapes=({0: torch.export.Dim('batch')},),
    verbose=False,
)
program.save(sys.argv[2])
print(f'wrote {sys.argv[2]}, which gives {agent.output_name}')

"""TorchRL's replay buffers behind the interface of ours."""

"""The new model holds the parameters and cannot compute."""

from torch import nn

FAILS = ["test_modes_stay", "test_llama"]


_right = quantize_model  # noqa: F821 -- the solution of exercise 6


def quantize_model(model, bits, granularity):
    quantized, total = _right(model, bits, granularity)

    class Shell(nn.Module):
        def forward(self, *args):
            return args[0]

    shell = Shell()
    shell._parameters, shell._buffers = quantized._parameters, quantized._buffers
    shell._modules = quantized._modules
    return shell.train(quantized.training), total

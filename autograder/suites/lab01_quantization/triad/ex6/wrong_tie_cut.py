"""A new nn.Parameter for every layer: ties of the original are cut, and counted twice."""

from torch import nn

FAILS = ["test_tied_output_layer", "test_shared_layer"]

_right = quantize_model  # noqa: F821 -- the solution of exercise 6


def quantize_model(model, bits, granularity):
    quantized, total = _right(model, bits, granularity)
    for layer in list(quantized.modules()):
        for name, p in list(layer.named_parameters(recurse=False)):
            setattr(layer, name, nn.Parameter(p.detach().clone()))
    for path, layer in list(quantized.named_modules(remove_duplicate=False))[1:]:
        if isinstance(layer, nn.Linear):  # every name gets a layer of its own
            owner = quantized.get_submodule(path.rpartition(".")[0])
            fresh = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None)
            fresh.load_state_dict(layer.state_dict())
            setattr(owner, path.rpartition(".")[2], fresh)
    return quantized, total

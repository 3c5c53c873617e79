"""swap works on the model that came in."""

FAILS = ["test_swap_of_some_layers", "test_swap_in_a_llama"]


def swap(model, functions):
    for name, function in functions.items():
        layer = model.get_submodule(name)

        def forward(x, layer=layer, function=function):
            return function(x, layer.weight, layer.bias)

        layer.forward = forward
    return model

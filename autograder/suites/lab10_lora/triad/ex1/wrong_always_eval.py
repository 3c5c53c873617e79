"""New layers are always in eval mode."""

FAILS = ["test_nested_models"]


def add_lora(model: nn.Module, names: list[str], r: int, alpha: float) -> nn.Module:
    """A frozen copy of the model with trainable updates beside the named layers."""
    model = copy.deepcopy(model).requires_grad_(False)
    for name in names:
        model.set_submodule(name, LoRALinear(model.get_submodule(name), r, alpha).eval())
    return model

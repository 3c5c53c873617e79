"""New layers are in training mode beside a model in eval mode."""

FAILS = ["test_a_model_with_updates", "test_nested_models"]


def add_lora(model: nn.Module, names: list[str], r: int, alpha: float) -> nn.Module:
    """A frozen copy of the model with trainable updates beside the named layers."""
    model = copy.deepcopy(model).requires_grad_(False)
    for name in names:
        base = model.get_submodule(name)
        model.set_submodule(name, LoRALinear(base, r, alpha))
    return model

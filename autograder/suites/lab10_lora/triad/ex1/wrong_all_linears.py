"""Every linear layer gets an update, whatever is named."""

FAILS = ["test_a_model_with_updates", "test_nested_models"]


def add_lora(model: nn.Module, names: list[str], r: int, alpha: float) -> nn.Module:
    """A frozen copy of the model with trainable updates beside the named layers."""
    model = copy.deepcopy(model).requires_grad_(False)
    for name in [n for n, m in model.named_modules() if isinstance(m, nn.Linear)]:
        base = model.get_submodule(name)
        model.set_submodule(name, LoRALinear(base, r, alpha).train(base.training))
    return model

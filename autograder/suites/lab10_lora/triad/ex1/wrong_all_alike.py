"""Every layer starts with the same A."""

FAILS = ["test_a_model_with_updates", "test_how_layers_start"]


def add_lora(model: nn.Module, names: list[str], r: int, alpha: float) -> nn.Module:
    """A frozen copy of the model with trainable updates beside the named layers."""
    model = copy.deepcopy(model).requires_grad_(False)
    for name in names:
        torch.manual_seed(0)
        base = model.get_submodule(name)
        model.set_submodule(name, LoRALinear(base, r, alpha).train(base.training))
    return model

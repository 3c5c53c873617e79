"""The copy as a whole is put into the mode of the model that was given."""


def add_lora(model: nn.Module, names: list[str], r: int, alpha: float) -> nn.Module:
    """A frozen copy of the model with trainable updates beside the named layers."""
    tuned = copy.deepcopy(model).requires_grad_(False)
    for name in names:
        parent, _, leaf = name.rpartition(".")
        owner = tuned.get_submodule(parent)
        setattr(owner, leaf, LoRALinear(getattr(owner, leaf), r, alpha))
    return tuned.train(model.training)

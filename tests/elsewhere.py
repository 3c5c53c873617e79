"""A device that is none: tensors that say they are on "meta" and keep their values on the CPU.

    with Elsewhere() as elsewhere:
        model.to("meta"); model(ids.to("meta"))
    elsewhere.arrived, elsewhere.left      how many tensors were moved there and back

As on a GPU, an operation on tensors of both places is an error, but for single numbers.  So code
that forgets where its model is fails here as it would there.  Beside `arrived` and `left`,
`read` counts single numbers that Python was given (`.item()`).
"""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

aten = torch.ops.aten
READS = (aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default)
COPIES = (aten._to_copy.default, aten.copy_.default)


class There(torch.Tensor):
    """A tensor elsewhere."""

    @staticmethod
    def __new__(cls, value):
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            value.shape,
            strides=value.stride(),
            storage_offset=value.storage_offset(),
            dtype=value.dtype,
            device="meta",
            requires_grad=False,
        )
        made.value = value
        return made

    def __repr__(self):
        return f"There({self.value!r})"

    def tolist(self):  # torch refuses it to subclasses
        return self.value.tolist()

    def __getitem__(self, index):  # torch would make an index of a list behind our back
        return super().__getitem__(_index(index))

    def __setitem__(self, index, value):
        super().__setitem__(_index(index), value)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        with Elsewhere():  # in a thread of its own, say
            return function(*args, **(kwargs or {}))


def _index(index):
    if isinstance(index, tuple):
        return tuple(map(_index, index))
    return There(torch.tensor(index)) if isinstance(index, list) and index else index


def _empty(x):
    """A tensor of torch's own on "meta", which has no values."""
    return isinstance(x, torch.Tensor) and x.device.type == "meta" and not isinstance(x, There)


def _kept(x):
    """`torch.tensor([], device="meta")` makes one of torch's own, even here."""
    if _empty(x):
        assert x.numel() == 0, "this tensor has lost its values"
        return There(torch.empty(x.shape, dtype=x.dtype))
    return x


class _Lists(TorchFunctionMode):
    """`torch.tensor(list, device="meta")` would have no values, and no dispatch mode sees it."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.new_tensor and isinstance(args[0], There):
            kwargs = {"dtype": args[0].dtype, "device": "meta"} | kwargs
            function, args = torch.tensor, args[1:]
        made = function in (torch.tensor, torch.as_tensor) and not isinstance(args[0], torch.Tensor)
        if made and str(kwargs.get("device")) == "meta":
            return function(*args, **kwargs | {"device": "cpu"}).to("meta")
        return function(*args, **kwargs)


class Elsewhere(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.arrived = self.left = self.read = 0
        self.lists = _Lists()

    def __enter__(self):
        self.lists.__enter__()
        return super().__enter__()

    def __exit__(self, *exception):
        super().__exit__(*exception)
        self.lists.__exit__(*exception)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        flat, _ = tree_flatten((args, kwargs))
        if any(map(_empty, flat)) and not any(isinstance(x, There) for x in flat):
            return function(*args, **(kwargs or {}))  # a copy of weights that are not in memory
        args, kwargs = tree_map(_kept, (args, dict(kwargs or {})))
        flat, _ = tree_flatten((args, kwargs))
        tensors = [x for x in flat if isinstance(x, torch.Tensor)]
        there = [isinstance(x, There) for x in tensors]
        device = kwargs.get("device")
        goes = torch.device(device).type == "meta" if device is not None else any(there)
        if device is not None:
            kwargs["device"] = torch.device("cpu")
        if function in READS:
            self.read += any(there)
            goes = False
        elif function in COPIES:
            goes = self._counted(function, tensors[-1], there, goes)
        elif any(there) and not all(h or x.ndim == 0 for h, x in zip(there, tensors, strict=True)):
            raise RuntimeError(f"{function}: tensors on two devices")
        plain = tree_map(lambda x: x.value if isinstance(x, There) else x, (args, kwargs))
        made = function(*plain[0], **plain[1])
        if not goes:
            return made
        given = {id(x.value): x for x in tensors if isinstance(x, There)}
        for x in given.values():
            if x.shape != x.value.shape:  # squeeze_ changes the tensor that it is given
                x.data = There(x.value)

        def wrapped(x):
            if not isinstance(x, torch.Tensor):
                return x
            return given[id(x)] if id(x) in given else There(x)

        return tree_map(wrapped, made)

    def _counted(self, function, source, there, goes):
        """Whether the result is elsewhere; notes a tensor of many numbers that changes places."""
        goes = there[0] if function is aten.copy_.default else goes
        if source.ndim and source.numel():
            self.arrived += goes and not there[-1]
            self.left += there[-1] and not goes
        return goes

"""Where the meter taps Triton's interpreter.

All memory traffic of a kernel goes through four methods of the interpreter's builder (tensor
descriptors and plain loads end in create_masked_load), all arguments through two functions, and
every value a kernel computes is a tl.tensor.  Each is wrapped while the meter is on.
"""

from __future__ import annotations

# isort: off
import efflib.meter.interpreter  # noqa: F401  before triton is imported

# isort: on
import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, TensorHandle

from efflib.meter.memory import Argument, kernel_line
from efflib.meter.poison import boolean, element_width, poison


class Hooks:
    """Wrappers around the interpreter, which report to a meter."""

    running: Hooks | None = None  # the interpreter is one for the process

    def __init__(self, meter):
        self.meter = meter
        self.saved: list[tuple[object, str, object, bool]] = []
        self.arguments: dict[int, Argument] = {}  # of the running launch, by id
        # addresses that the running atomic load or store touches; None outside of one
        self.atomic: list[np.ndarray] | None = None
        self.patched: set = set()  # functions of the running launch that see the patched language

    def wrap(self, owner: object, name: str, make) -> None:
        """Replace owner.name by make(original) until `remove`."""
        original = getattr(owner, name, None)
        self.saved.append((owner, name, original, name in vars(owner)))
        setattr(owner, name, make(original))

    def install(self) -> None:
        if Hooks.running is not None:
            raise RuntimeError("a Meter is on already: meters do not nest")
        Hooks.running, builder = self, InterpreterBuilder
        self.wrap(builder, "create_masked_load", self._load)
        self.wrap(builder, "create_masked_store", self._store)
        for name in ("create_atomic_load", "create_atomic_store", "create_atomic_poll"):
            if hasattr(builder, name):  # newer than Triton 3.6
                self.wrap(builder, name, self._atomic_access)
        self.wrap(builder, "create_atomic_rmw", self._atomic_update)
        self.wrap(builder, "create_atomic_cas", self._compare_and_swap)
        self.wrap(builder, "create_dot", self._dot)
        self.wrap(builder, "create_dot_scaled", self._dot_scaled)
        self.wrap(builder, "create_exp", self._exponential)
        self.wrap(builder, "create_exp2", self._exponential)
        self.wrap(builder, "set_grid_idx", self._program)
        self.wrap(GridExecutor, "_init_args_hst", self._arguments)
        self.wrap(interpreter, "_implicit_cvt", self._virtual_pointer)
        self.wrap(interpreter, "_patch_lang", self._patch_once)
        self.wrap(tl.core.tensor, "__init__", self._made)
        self.wrap(tl.core.tensor, "__del__", self._gone)
        # NaN and infinity are silent on a GPU; NumPy would warn of each
        self._silence = np.errstate(all="ignore")
        self._silence.__enter__()

    def remove(self) -> None:
        self._silence.__exit__(None, None, None)
        for owner, name, original, own in reversed(self.saved):
            if own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)
        self.saved.clear()
        Hooks.running = None

    # -- one launch -----------------------------------------------------------------------------

    def _arguments(self, original):
        def arguments(executor, args, kwargs):
            on_host, named = original(executor, args, kwargs)
            launch = self.meter.start_launch(executor.fn.__name__)
            self.arguments.clear()
            self.patched.clear()
            pairs = [*zip(executor.arg_names, on_host, strict=False), *named.items()]
            for name, value in pairs:
                self._register(launch, name, value)
            return on_host, named

        return arguments

    def _register(self, launch, name: str, value) -> None:
        if isinstance(value, tuple):
            for i, item in enumerate(value):
                self._register(launch, f"{name}[{i}]", item)
        elif hasattr(value, "block_shape"):  # a tensor descriptor made by the host
            self._register(launch, name, value.base)
        elif hasattr(value, "data_ptr"):
            tensor = interpreter._unwrap_tensor(value)
            self.arguments[id(value)] = launch.add(name, tensor, tensor.element_size())

    def _virtual_pointer(self, original):
        def converted(value):
            result = original(value)
            argument = self.arguments.get(id(value))
            if argument is not None:
                result.handle.data = np.array([argument.virtual], dtype=np.uint64)
            return result

        return converted

    def _patch_once(self, original):
        """tl.max and the like patch triton.language in each call: once a launch is enough."""

        def patch(function):
            if function in self.patched:
                return interpreter._LangPatchScope()  # nothing to restore
            self.patched.add(function)
            return original(function)

        return patch

    def _program(self, original):
        def program(builder, x, y, z):
            original(builder, x, y, z)
            self.meter.start_program((x, y, z))

        return program

    # -- memory ---------------------------------------------------------------------------------

    def _access(self, kind: str, pointers: TensorHandle, mask) -> TensorHandle:
        """The tile of pointers with real addresses, after it was checked and counted."""
        active = np.broadcast_to(mask, pointers.data.shape)
        width = element_width(pointers)
        atomic = self.atomic is not None
        real = self.meter.access(kind, pointers.data, active, width, atomic)
        if atomic:
            self.atomic.append(real[active])
        return TensorHandle(real, pointers.dtype)

    def _load(self, original):
        def load(builder, pointers, mask, other, *rest, **named):
            mask = boolean(mask)
            active = mask.data
            real = self._access("read", pointers, active)
            if other is None and not active.all():
                other = poison(pointers)
                self.meter.unfilled.add(kernel_line())
            return original(builder, real, mask, other, *rest, **named)

        return load

    def _store(self, original):
        def store(builder, pointers, value, mask, *rest, **named):
            mask = boolean(mask)
            active = np.broadcast_to(mask.data, pointers.data.shape)
            real = self._access("write", pointers, active)
            if self.atomic is None:
                self.meter.check_store(pointers.data, active, element_width(pointers), value.data)
            return original(builder, real, value, mask, *rest, **named)

        return store

    def _atomic_access(self, original):
        """An atomic load, store or poll: the interpreter makes plain ones of it."""

        def atomic(builder, *args):
            self.atomic = []
            try:
                out = original(builder, *args)
                *_, order, _scope = args
                self.meter.synchronize(np.concatenate(self.atomic), order)
                return out
            finally:
                self.atomic = None

        return atomic

    def _atomic_update(self, original):
        def update(builder, operation, pointers, value, mask, order, *rest):
            mask = boolean(mask)
            real = self._access("atomic", pointers, mask.data)
            out = original(builder, operation, real, value, mask, order, *rest)
            active = np.broadcast_to(mask.data, real.data.shape)
            self.meter.synchronize(real.data[active], order)
            return out

        return update

    def _compare_and_swap(self, original):
        def swap(builder, pointers, expected, value, order, *rest):
            real = self._access("atomic", pointers, True)
            out = original(builder, real, expected, value, order, *rest)
            self.meter.synchronize(real.data.ravel(), order)
            return out

        return swap

    # -- arithmetic -----------------------------------------------------------------------------

    def _dot(self, original):
        def dot(builder, a, b, acc, precision, *rest):
            *batch, m, k = a.data.shape
            self.meter.dot(int(np.prod(batch, dtype=int)), m, b.data.shape[-1], k)
            kind = str(a.dtype.scalar)
            if kind == "fp32" and precision == ir.INPUT_PRECISION.TF32:
                kind = "tf32"  # so a GPU computes; here the product is exact
            self.meter.products.add(kind)
            return original(builder, a, b, acc, precision, *rest)

        return dot

    def _dot_scaled(self, original):
        def dot_scaled(builder, lhs, lhs_scale, lhs_format, *rest):
            *batch, m, n = rest[-1].data.shape  # the accumulator
            packed = lhs_format == ir.ScaleDotElemTypeTY.E2M1 and lhs.data.shape[-2] == m
            k = lhs.data.shape[-1] * (2 if packed else 1)
            self.meter.dot(int(np.prod(batch, dtype=int)), m, n, k)
            return original(builder, lhs, lhs_scale, lhs_format, *rest)

        return dot_scaled

    def _exponential(self, original):
        def exponential(builder, x):
            self.meter.exponentials += x.data.size
            return original(builder, x)

        return exponential

    # -- tiles ----------------------------------------------------------------------------------

    def _made(self, original):
        def made(value, handle, *rest):
            original(value, handle, *rest)
            data = getattr(handle, "data", None)
            if isinstance(data, np.ndarray) and data.size > 1 and not handle.dtype.is_ptr():
                value._metered = self.meter.tile_made(data), self.meter.programs

        return made

    def _gone(self, original):
        def gone(value):
            data, program = getattr(value, "_metered", (None, None))
            # tiles of a program that has ended may go later
            if data is not None and program == self.meter.programs:
                self.meter.tile_gone(data)

        return gone

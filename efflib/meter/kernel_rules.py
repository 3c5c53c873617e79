"""The language of kernels: what a text may hold that is to run beside a meter.

Triton's interpreter runs a kernel as Python, in the process that counts its bytes.  So a kernel
that somebody else has written could import, look around and change the count.  The text is
therefore read before it runs, and must be in the part of Python that Triton compiles anyway:

    at the top      import triton, triton.language as tl, names from it; constants; @triton.jit def
    statements      assignments to names, for, while, if, assert, return, calls
    names           parameters, variables, constants and functions of the text, tl, a few builtins
    attributes      those of tl and of its tensors that are listed below, none that begins with _

Nothing of this can reach a Python object that is not Triton's, keep something from one launch to
the next, or change what another line means.  The compiler is the second look: see `kernel_text`.
"""

from __future__ import annotations

import ast

MOST_CHARACTERS = 20_000
HOMES = ("triton.language", "triton.language.core", "triton.language.math",
         "triton.language.standard")  # fmt: skip
OF_TL = frozenset(
    """abs add arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas
    atomic_max atomic_min atomic_or atomic_xchg atomic_xor bfloat16 broadcast broadcast_to cast cat
    cdiv ceil clamp constexpr cos cumprod cumsum debug_barrier device_assert device_print div_rn dot
    dtype erf exp exp2 expand_dims fdiv flip float16 float32 float64 floor fma full gather histogram
    int1 int16 int32 int64 int8 interleave join load log log2 max max_constancy max_contiguous
    maximum min minimum mul multiple_of num_programs permute program_id range ravel reduce reshape
    rsqrt sigmoid sin softmax sort split sqrt sqrt_rn squeeze static_assert static_print
    static_range store sub sum swizzle2d trans uint16 uint32 uint64 uint8 unsqueeze view where
    xor_sum zeros zeros_like make_tensor_descriptor""".split()
)
OF_TENSORS = frozenset(
    "to T dtype element_ty shape type scalar value numel primitive_bitwidth".split()
)
OF_TRITON = frozenset(("cdiv", "next_power_of_2", "jit", "language"))
NO_BLOCK_POINTERS = "Triton has removed block pointers: write pointers and masks"
INSTEAD = {
    "float": "write .to(tl.float32)",
    "half": "write .to(tl.float16)",
    "make_block_ptr": NO_BLOCK_POINTERS,
    "advance": NO_BLOCK_POINTERS,
}
BUILTINS = frozenset("range min max abs float int bool len print".split())
MODULES = frozenset(("triton", "tl"))
OPERATORS = (ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)
STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.While, ast.If, ast.Assert,
              ast.Return, ast.Expr, ast.Pass, ast.Break, ast.Continue)  # fmt: skip
EXPRESSIONS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.keyword,
               ast.Attribute, ast.Subscript, ast.Slice, ast.Name, ast.Constant, ast.Tuple,
               ast.List, ast.JoinedStr, ast.FormattedValue)  # fmt: skip
ALLOWED = (*OPERATORS, *STATEMENTS, *EXPRESSIONS)


class KernelRefused(ValueError):
    """The text holds what no kernel may hold; the message says what, and in which line."""


def check_kernel(text: str) -> None:
    """Raises KernelRefused unless the text is a module of kernels and nothing else."""
    if len(text) > MOST_CHARACTERS:
        raise KernelRefused(f"the kernel has {len(text)} characters, at most {MOST_CHARACTERS}")
    try:
        tree = ast.parse(text)
        _check_module(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, KernelRefused):
            raise
        raise KernelRefused(f"the kernel cannot be read: {type(error).__name__}") from None


def kernel_parameters(text: str, name: str) -> dict[str, bool] | None:
    """{parameter: whether it is a constant} of a kernel of a checked text; None: it has no such."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            return {p.arg: _is_constant(p.annotation) for p in parameters}
    return None


def _is_constant(annotation: ast.expr | None) -> bool:
    return annotation is not None and "constexpr" in ast.unparse(annotation)


def _refuse(node: ast.AST, why: str, what: str = "") -> None:
    what = what or ast.unparse(node).splitlines()[0]
    raise KernelRefused(f"{why}: {what[:120]}")


def _check_module(tree: ast.Module) -> None:
    known: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            known |= _imported(node, tree)
        elif isinstance(node, ast.Assign):
            known |= _constant(node, known)
        elif isinstance(node, ast.FunctionDef):
            known.add(node.name)
            _check_function(node, known)
        else:
            _refuse(node, "beside kernels only constants may stand")
    taken = known & (MODULES | BUILTINS)
    if taken:
        raise KernelRefused(f"{sorted(taken)[0]} must keep its meaning in a kernel")


def _imported(node: ast.Import | ast.ImportFrom, tree: ast.Module) -> set[str]:
    """Names that an import brings; triton and tl are known anyway."""
    names = {(alias.name, alias.asname) for alias in node.names}
    if isinstance(node, ast.Import):
        if names <= {("triton", None), ("triton", "triton"), ("triton.language", "tl")}:
            return set()
    elif node.module in HOMES and not node.level and {name for name, _ in names} <= OF_TL:
        return {asname or name for name, asname in names}
    for name in {asname or name for name, asname in names}:
        _refuse_use(tree, name)
    _refuse(node, "a kernel may use nothing but triton.language")
    return set()


def _refuse_use(tree: ast.Module, name: str) -> None:
    """Raises KernelRefused that names the first line which uses a foreign name, with a way out."""
    for statement in (n for n in ast.walk(tree) if isinstance(n, ast.stmt) and not _inside(n)):
        for use in ast.walk(statement):
            base = use.value if isinstance(use, ast.Attribute) else use
            if isinstance(base, ast.Name) and base.id == name:
                last = use.attr if isinstance(use, ast.Attribute) else name
                instead = "write float('-inf') for minus infinity" if last == "inf" else (
                    f"write tl.{last}" if last in OF_TL else "")  # fmt: skip
                whole, line = ast.unparse(use), ast.unparse(statement).splitlines()[0]
                raise KernelRefused(f"a kernel knows only tl, not `{whole}` in `{line[:90]}`"
                                    + (f": {instead}" if instead else ""))  # fmt: skip


def _inside(node: ast.stmt) -> bool:
    """Whether it holds other statements."""
    return bool(getattr(node, "body", None))


def _constant(node: ast.Assign, known: set[str]) -> set[str]:
    """The name that a line at the top defines: a number, text, type, or another function's name."""
    target = node.targets[0]
    named = isinstance(target, ast.Name) and not target.id.startswith("__")
    if len(node.targets) != 1 or not named or not _is_plain(node.value, known):
        _refuse(node, "beside kernels only constants may stand")
    return {target.id}


def _is_plain(value: ast.expr, known: set[str]) -> bool:
    if isinstance(value, ast.Call):
        maker = ast.unparse(value.func) in ("tl.constexpr", "tl.dtype", "float")
        single = maker and len(value.args) == 1 and not value.keywords
        return single and _is_plain(value.args[0], known)
    if isinstance(value, ast.UnaryOp):
        return _is_plain(value.operand, known)
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Name) and value.id in known)


def _check_function(node: ast.FunctionDef, known: set[str]) -> None:
    if [ast.unparse(d) for d in node.decorator_list] != ["triton.jit"] or node.returns:
        _refuse(node, "a kernel has one decorator, @triton.jit", node.name)
    parts = node.args
    if parts.vararg or parts.kwarg or node.name.startswith("__"):
        _refuse(node, "a kernel names its parameters", node.name)
    for value in [*parts.defaults, *filter(None, parts.kw_defaults)]:
        if not isinstance(value, ast.Constant):
            _refuse(value, "a default must be a constant")
    parameters = [*parts.posonlyargs, *parts.args, *parts.kwonlyargs]
    local = {p.arg for p in parameters}
    for p in parameters:
        _check_annotation(p.annotation)
    for statement in node.body:
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                local.add(inner.id)
    shadowed = sorted(local & (MODULES | BUILTINS | {n for n in local if n.startswith("__")}))
    if shadowed:
        raise KernelRefused(f"{node.name}: call a variable otherwise than {shadowed[0]}")
    names = known | local | MODULES | BUILTINS
    for statement in node.body:
        for inner in ast.walk(statement):
            _check_node(inner, names)


def _check_annotation(node: ast.expr | None) -> None:
    if node is None or isinstance(node, ast.Constant) or ast.unparse(node) == "constexpr":
        return
    if not (isinstance(node, ast.Attribute) and ast.unparse(node.value) == "tl"):
        _refuse(node, "a parameter is annotated with tl.constexpr or not at all")
    if node.attr not in OF_TL | {"tensor"}:
        _refuse(node, "a parameter is annotated with tl.constexpr or not at all")


def _check_node(node: ast.AST, names: set[str]) -> None:
    if not isinstance(node, ALLOWED):
        _refuse(node, f"{type(node).__name__} does not belong into a kernel")
    if isinstance(node, ast.Name) and node.id not in names:
        _refuse(node, "a kernel knows its parameters, its variables, constants and tl, but not")
    if isinstance(node, ast.Constant) and not isinstance(
        node.value, int | float | str | None | type(...)
    ):
        _refuse(node, "no constant of a kernel")
    if isinstance(node, ast.Attribute):
        _check_attribute(node)
    for target in _targets(node):
        if not isinstance(target, ast.Name):
            _refuse(target, "a kernel assigns to names only")
    if isinstance(node, ast.AnnAssign):
        _check_annotation(node.annotation)


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        found = list(node.targets)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For):
        found = [node.target]
    else:
        return []
    while any(isinstance(t, ast.Tuple | ast.List) for t in found):
        found = [p for t in found for p in (t.elts if isinstance(t, ast.Tuple | ast.List) else [t])]
    return found


def _check_attribute(node: ast.Attribute) -> None:
    base = ast.unparse(node.value) if isinstance(node.value, ast.Name | ast.Attribute) else ""
    if base == "triton":
        ok = node.attr in OF_TRITON
    elif base in ("tl", "triton.language"):
        ok = node.attr in OF_TL | {"math"}
    else:
        ok = node.attr in OF_TL | OF_TENSORS
    if not ok:
        instead = f" ({INSTEAD[node.attr]})" if node.attr in INSTEAD else ""
        _refuse(node, f"no part of the language of kernels{instead}")

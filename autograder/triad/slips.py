"""Slips in an expression, for autograder/triad/mutate.py: what people write in its place.

A slip takes a node (a copy, free to change and return) and yields (what was done, another node).
"""

import ast
import copy
from collections.abc import Iterator

Slips = Iterator[tuple[str, ast.AST]]

OTHER_COMPARISONS = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
OTHER_OPERATORS = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Div,), ast.Mod: (ast.FloorDiv,), ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd, ast.BitXor), ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
}  # fmt: skip
ONE_SIDED = ast.Sub | ast.Div | ast.FloorDiv | ast.Mod | ast.Pow | ast.LShift | ast.RShift
IN_PLACE = {ast.Add: "add_", ast.Sub: "sub_", ast.Mult: "mul_", ast.Div: "div_"}
OTHER_NAMES = {
    "amax": ("amin",), "amin": ("amax",), "max": ("min",), "min": ("max",),
    "maximum": ("minimum",), "minimum": ("maximum",), "argmax": ("argmin",), "argmin": ("argmax",),
    "sum": ("mean",), "mean": ("sum", "median"), "median": ("mean",), "any": ("all",),
    "all": ("any",), "floor": ("ceil", "round"), "ceil": ("floor",), "round": ("floor", "trunc"),
    "zeros": ("ones",), "ones": ("zeros",), "zeros_like": ("ones_like",),
    "float": ("double", "bfloat16"), "double": ("float",), "int": ("long", "short"),
    "deepcopy": ("copy",), "square": ("abs",),
}  # fmt: skip
OTHER_DTYPES = {
    "float32": ("float64", "bfloat16"), "float64": ("float32",), "float16": ("bfloat16",),
    "int8": ("int16", "uint8"), "uint8": ("int16", "int8"), "int32": ("int64", "int16"),
    "int64": ("int32",),
}  # fmt: skip
IN_PLACE_METHODS = set(
    "abs add ceil clamp clip cumsum div exp floor log masked_fill mul neg nan_to_num pow round "
    "sqrt square squeeze sub t transpose trunc unsqueeze".split()
)
SAME_OR_VIEW = set(  # methods whose result may be the tensor itself, or share its memory
    "float double to int long contiguous detach reshape view flatten unflatten squeeze unsqueeze "
    "t transpose expand split chunk".split()
)
SYMMETRIC = {"max", "min", "maximum", "minimum", "gcd", "lcm"}
MODULES = {"torch", "nn", "math", "copy", "F", "np", "functional"}


def constant(node: ast.Constant) -> Slips:
    value = node.value
    if isinstance(value, bool):
        yield f"{not value} for {value}", ast.Constant(not value)
        return
    if not isinstance(value, int | float):
        return
    others = [value + 1, 0, -value, *([value - 1] if value > 1 else [])]
    for other in dict.fromkeys([*others, *([value * 1.01] if isinstance(value, float) else [])]):
        if other != value:
            yield f"{other:g} for {value:g}", ast.Constant(other)


def compare(node: ast.Compare) -> Slips:
    for index, operator in enumerate(node.ops):
        for other in OTHER_COMPARISONS[type(operator)]:
            made = copy.deepcopy(node)
            made.ops[index] = other()
            yield f"{other.__name__} for {type(operator).__name__}", made


def binary(node: ast.BinOp) -> Slips:
    left, operator, right = node.left, type(node.op), node.right
    for other in OTHER_OPERATORS.get(operator, ()):
        name = f"{other.__name__} for {operator.__name__}"
        yield name, ast.BinOp(left, other(), right)
    if isinstance(node.op, ONE_SIDED | ast.MatMult):
        yield "operands swapped", ast.BinOp(right, node.op, left)
    else:
        yield f"{operator.__name__}: left side dropped", right
    yield f"{operator.__name__}: right side dropped", left
    if operator in IN_PLACE and may_be_shared(left):
        method = ast.Attribute(left, IN_PLACE[operator], ast.Load())
        yield f"{IN_PLACE[operator]} in place", ast.Call(method, [right], [])


def unary(node: ast.UnaryOp) -> Slips:
    if not isinstance(node.operand, ast.Constant):
        yield f"{type(node.op).__name__} dropped", node.operand


def boolean(node: ast.BoolOp) -> Slips:
    other = ast.Or if isinstance(node.op, ast.And) else ast.And
    yield f"{other.__name__} for {type(node.op).__name__}", ast.BoolOp(other(), node.values)
    for index in range(len(node.values)):
        rest = node.values[:index] + node.values[index + 1 :]
        made = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        yield f"condition {index + 1} dropped", made


def choice(node: ast.IfExp) -> Slips:
    yield "choice swapped", ast.IfExp(node.test, node.orelse, node.body)
    yield "always the first", node.body
    yield "always the second", node.orelse


def call(node: ast.Call) -> Slips:
    name = called(node)
    method = isinstance(node.func, ast.Attribute) and not is_module(node.func.value)
    if method:
        yield f"{name} dropped", node.func.value
    elif node.args:
        yield f"{name} dropped", node.args[0]
    for other in OTHER_NAMES.get(name, ()):
        made = copy.deepcopy(node)
        setattr(made.func, "attr" if isinstance(made.func, ast.Attribute) else "id", other)
        yield f"{other} for {name}", made
    if method and name in IN_PLACE_METHODS and may_be_shared(node.func.value):
        made = copy.deepcopy(node)
        made.func.attr += "_"
        yield f"{name} in place", made
    if name == "round":
        yield from half_up(node, method)
    yield from other_arguments(node, name)


def may_be_shared(node: ast.expr) -> bool:
    """Somebody else may hold this tensor too; the result of most operations is a new one."""
    if isinstance(node, ast.Call):
        method = isinstance(node.func, ast.Attribute) and node.func.attr in SAME_OR_VIEW
        return method and may_be_shared(node.func.value)
    if isinstance(node, ast.Attribute | ast.Subscript):
        return may_be_shared(node.value)
    return isinstance(node, ast.Name)


def half_up(node: ast.Call, method: bool) -> Slips:
    """Rounds x.5 up; torch.round and round go to the even neighbour."""
    value = node.func.value if method else node.args[0]
    half = ast.BinOp(value, ast.Add(), ast.Constant(0.5))
    floor = "int" if isinstance(node.func, ast.Name) else "torch.floor"
    yield "half up", ast.Call(ast.parse(floor, mode="eval").body, [half], [])


def other_arguments(node: ast.Call, name: str) -> Slips:
    pairs = zip(node.args, node.args[1:], strict=False)
    for index, (one, two) in enumerate(pairs if name not in SYMMETRIC else ()):
        made = copy.deepcopy(node)
        made.args[index : index + 2] = [two, one]
        yield f"arguments {index + 1} and {index + 2} of {name} swapped", made
    for index, keyword in enumerate(node.keywords):
        made = copy.deepcopy(node)
        del made.keywords[index]
        yield f"{keyword.arg} of {name} dropped", made


def called(node: ast.Call) -> str:
    return getattr(node.func, "attr", None) or getattr(node.func, "id", None) or "call"


def is_module(node: ast.AST) -> bool:
    return (getattr(node, "attr", None) or getattr(node, "id", None)) in MODULES


def attribute(node: ast.Attribute) -> Slips:
    for other in OTHER_DTYPES.get(node.attr, ()):
        yield f"{other} for {node.attr}", ast.Attribute(node.value, other, ast.Load())


def piece(node: ast.Slice) -> Slips:
    for end in ("lower", "upper", "step"):
        if getattr(node, end) is not None:
            made = copy.deepcopy(node)
            setattr(made, end, None)
            yield f"{end} end of the slice dropped", made


def pair(node: ast.Tuple) -> Slips:
    if isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        yield "order changed", ast.Tuple([*node.elts[1:], node.elts[0]], ast.Load())


def comprehension(node: ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp) -> Slips:
    for what, items in some_of(node.generators[0].iter):
        made = copy.deepcopy(node)
        made.generators[0].iter = items
        yield what, made
    if node.generators[0].ifs:
        node.generators[0].ifs = []
        yield "filter dropped", node


def some_of(items: ast.expr) -> Slips:
    for what, part in (("first only", "[:1]"), ("last only", "[-1:]")):
        yield what, ast.parse(f"list({ast.unparse(items)}){part}", mode="eval").body


EXPRESSIONS = (
    (ast.Constant, constant), (ast.Compare, compare), (ast.BinOp, binary), (ast.UnaryOp, unary),
    (ast.BoolOp, boolean), (ast.IfExp, choice), (ast.Call, call), (ast.Attribute, attribute),
    (ast.Slice, piece), (ast.Tuple, pair),
    (ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp, comprehension),
)  # fmt: skip

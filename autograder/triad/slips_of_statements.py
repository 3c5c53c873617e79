"""Slips in a statement, as those of slips.py in an expression."""

import ast
import copy

from autograder.triad.slips import OTHER_OPERATORS, Slips, some_of


def removed(node: ast.stmt) -> Slips:
    guard = isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise)
    yield "guard dropped" if guard else "statement dropped", ast.Pass()


def condition(node: ast.If) -> Slips:
    negated = ast.UnaryOp(ast.Not(), node.test)
    yield "condition negated", ast.If(negated, node.body, node.orelse)
    yield "condition always true", ast.If(ast.Constant(True), node.body, node.orelse)
    if node.orelse:
        yield "condition never true", ast.If(ast.Constant(False), node.body, node.orelse)


def loop(node: ast.For) -> Slips:
    for what, items in some_of(node.iter):
        yield what, ast.For(node.target, items, node.body, node.orelse)


def jump(node: ast.Continue | ast.Break) -> Slips:
    is_break = isinstance(node, ast.Break)
    yield (
        ("continue for break", ast.Continue()) if is_break else ("break for continue", ast.Break())
    )


def block(node: ast.With | ast.Try) -> Slips:
    what = "with dropped" if isinstance(node, ast.With) else "try dropped"
    yield what, ast.If(ast.Constant(True), node.body, [])


def assignment(node: ast.Assign) -> Slips:
    """x = x + y as x += y, which changes what the caller holds."""
    target, value = node.targets[0], node.value
    if isinstance(value, ast.BinOp) and ast.dump(value.left) == ast.dump(as_load(target)):
        yield "in place", ast.AugAssign(target, value.op, value.right)


def augmented(node: ast.AugAssign) -> Slips:
    yield "overwritten", ast.Assign([node.target], node.value)
    for other in OTHER_OPERATORS.get(type(node.op), ()):
        name = f"{other.__name__} for {type(node.op).__name__}"
        yield name, ast.AugAssign(node.target, other(), node.value)


def as_load(target: ast.expr) -> ast.expr:
    made = copy.deepcopy(target)
    made.ctx = ast.Load()
    return made


def error(node: ast.Raise) -> Slips:
    kind = "KeyError" if "KeyError" not in ast.dump(node) else "ValueError"
    yield f"raises {kind}", ast.parse(f"raise {kind}").body[0]


STATEMENTS = (
    (ast.Assign | ast.AugAssign | ast.Expr | ast.If | ast.For | ast.With | ast.While, removed),
    (ast.If, condition), (ast.For, loop), (ast.Continue | ast.Break, jump),
    (ast.With | ast.Try, block), (ast.Assign, assignment), (ast.AugAssign, augmented),
    (ast.Raise, error),
)  # fmt: skip

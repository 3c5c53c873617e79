"""Sets the outliers to 0 in x itself."""

FAILS = ["test_shapes_of_the_split"]

_right = llm_int8_linear  # noqa: F821 -- the solution of exercise 3


def llm_int8_linear(x, w, bias, threshold):
    y = _right(x, w, bias, threshold)
    x[..., outlier_columns(x, threshold)] = 0  # noqa: F821
    return y

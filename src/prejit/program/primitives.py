"""What XLA does with JAX's primitives, as far as cutting a program is concerned: names in groups.

XLA on CPU computes elementwise chains in one loop and stores only what leaves it; products, reductions, gathers and
loops end a chain.
"""

__all__ = ["CHEAP", "MOVES", "ROUNDED", "SOFT"]

# XLA contracts a product with the addition that follows it in one loop, and leaves out conversions there and back, so
# what these compute in a loop is not what they would store. A sum is rounded the same way wherever it is used.
SOFT = frozenset(
    {
        "mul", "neg", "div", "convert_element_type", "reduce_precision", "integer_pow", "square", "sqrt", "rsqrt",
        "exp", "exp2", "log", "log1p", "expm1", "pow", "tanh", "logistic", "sin", "cos", "tan", "erf", "erfc",
        "atan2", "cbrt", "log2", "asin", "acos", "atan", "erf_inv", "one_minus_square", "polynomial", "sinh", "cosh",
        "asinh", "acosh", "atanh", "complex", "conj",
    }
)  # fmt: skip
# In types of fewer than 32 bits these too: XLA computes a loop in 32 bits and rounds at its end.
ROUNDED = frozenset({"add", "sub", "add_any", "max", "min", "select_n", "clamp", "abs"})
# They compute nothing.
MOVES = frozenset(
    {
        "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "transpose", "slice", "rev", "copy", "real", "imag",
        "iota", "pad", "concatenate", "stop_gradient", "tile", "stack", "bitcast_convert_type",
    }
)  # fmt: skip
# All that can be computed again where it is needed rather than stored.
CHEAP = SOFT | ROUNDED | MOVES | frozenset(
    {
        "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "xor", "is_finite", "sign", "floor", "ceil", "round",
        "shift_left", "shift_right_logical", "shift_right_arithmetic", "rem", "split", "nextafter", "clz",
        "population_count",
    }
)  # fmt: skip

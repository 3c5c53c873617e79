"""Which Triton the tests run on: the course pins the newest, and 3.6 is the oldest that works."""

import triton

# before 3.9: no dot_scaled of packed numbers in the interpreter, no tl.atomic_store
OLDER = tuple(int(part) for part in triton.__version__.split(".")[:2]) < (3, 9)

"""Before anything is imported: Triton kernels are interpreted in this process.

The models of transformers import triton, and a process that imported it for compiling cannot
interpret kernels any more.  No test compiles kernels in this process; those that compile start
another one without this variable, and tests/kernels/test_on_device.py one for a GPU.
"""

import os
import sys

assert "triton" not in sys.modules, "a pytest plugin imported triton before tests/conftest.py"
if os.environ.get("EFFLIB_TEST_DEVICE", "cpu") == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

from hypothesis import settings  # noqa: E402

settings.register_profile("efflib", deadline=None)  # no test depends on wall time
settings.load_profile("efflib")

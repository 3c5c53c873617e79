"""Serving: what a step of generation costs, and what bounds it.

Modules are loaded when they are named, e.g. `from efflib.serving.roofline import decode_step`.

    roofline  the bytes and FLOPs of a decoding step, and the least time it needs
"""

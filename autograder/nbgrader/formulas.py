"""TeX formulas as text, for pages that run no scripts: $\\alpha_i$ becomes alpha, i set low.

Symbols get their sign, what stands behind _ and ^ is set low and high.  It is not typesetting: a
fraction becomes a quotient, and a command that is not known here keeps its name.
"""

import html
import re
import unicodedata

SIGNS = {
    "times": "×", "cdot": "·", "pm": "±", "div": "÷", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥",
    "ne": "≠", "neq": "≠", "approx": "≈", "sim": "∼", "propto": "∝", "in": "∈", "infty": "∞",
    "sum": "∑", "prod": "∏", "int": "∫", "sqrt": "√", "partial": "∂", "nabla": "∇", "odot": "⊙",
    "oplus": "⊕", "otimes": "⊗", "to": "→", "rightarrow": "→", "leftarrow": "←", "mapsto": "↦",
    "Rightarrow": "⇒", "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "langle": "⟨",
    "rangle": "⟩", "mid": "|", "lVert": "‖", "rVert": "‖", "ldots": "…", "dots": "…", "cdots": "⋯",
    "top": "⊤", "ell": "ℓ", "quad": " ", "qquad": " ", "ll": "≪", "gg": "≫", "forall": "∀",
}  # fmt: skip
ACCENTS = {"hat": "\u0302", "bar": "\u0304", "tilde": "\u0303", "dot": "\u0307"}
DROPPED = set("left right big Big bigl bigr text mathrm mathbf mathbb mathcal mathit bm".split())
DROPPED |= set("operatorname displaystyle limits".split())
GROUP = r"\{((?:[^{}]|\{[^{}]*\})*)\}"  # braces, and braces in them
FRACTION = re.compile(rf"\\[dt]?frac{GROUP}{GROUP}")
ACCENT = re.compile(r"\\(hat|bar|tilde|dot)(?:\{(\w)\}|[ \t]*(\w))")
COMMAND = re.compile(r"\\([A-Za-z]+)[ \t]*")
SPACE = re.compile(r"\\[,;:! ]|\\\\|~|&")
SHIFTED = re.compile(r"([_^])(?:\{([^{}]*)\}|(\w|\*))")


def readable(tex: str) -> str:
    """HTML of a formula's body: text, <sub> and <sup>, all else escaped."""
    tex = FRACTION.sub(r"(\1) / (\2)", tex)
    tex = ACCENT.sub(lambda found: (found[2] or found[3]) + ACCENTS[found[1]], tex)
    tex = COMMAND.sub(lambda found: sign(found[1]), SPACE.sub(" ", tex))
    shown = SHIFTED.sub(shifted, html.escape(tex, quote=False))
    shown = re.sub(r"(?<!\\)[{}]", "", shown).replace("\\", "")
    return " ".join(shown.split())


def sign(name: str) -> str:
    """What a command stands for: a sign, nothing, or its name."""
    if name in DROPPED:
        return ""
    return SIGNS.get(name) or greek(name) or f"{name} "


def greek(name: str) -> str:
    size = "CAPITAL" if name[:1].isupper() else "SMALL"
    letter = {"lambda": "lamda", "epsilon": "epsilon"}.get(name.lower(), name.removeprefix("var"))
    try:
        return unicodedata.lookup(f"GREEK {size} LETTER {letter.upper()}")
    except KeyError:
        return ""


def shifted(found: re.Match) -> str:
    tag = "sub" if found[1] == "_" else "sup"
    return f"<{tag}>{found[2] or found[3] or ''}</{tag}>"

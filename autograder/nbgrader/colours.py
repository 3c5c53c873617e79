"""Colours of feedback, marking and class pages, in light and dark; a test holds their contrast."""

LIGHT = {
    "page": "#ffffff", "text": "#1a1a1a", "quiet": "#555555", "line": "#c9c9c9",
    "panel": "#f4f5f7", "link": "#0b57b0", "bar": "#3b6ea8", "warn": "#8a4b00",
    "passed": "#dce9f5", "failed": "#9a3412", "open": "#7a7a7a",
}  # fmt: skip
DARK = {
    "page": "#15181c", "text": "#e8e8e8", "quiet": "#b3b3b3", "line": "#454a52",
    "panel": "#1f242a", "link": "#8ab8f0", "bar": "#7aa7d9", "warn": "#f0b062",
    "passed": "#22384d", "failed": "#ff9a6b", "open": "#a0a0a0",
}  # fmt: skip


def variables(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{value}" for name, value in colours.items())

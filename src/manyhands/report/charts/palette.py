"""Palette: a palette that colour-blind people can tell apart, on a light and on a dark ground."""

# Okabe and Ito's colours; their yellow is too pale on white. A place in the palette is the same hue on both grounds,
# brighter on the dark one. Place 0 is for what the others are measured by, and grey.
LIGHT = ("#8A8A8A", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DARK = ("#9AA0A6", "#4FA8E0", "#F0803C", "#2FC79B", "#E59BC6", "#F2B134", "#A5D8F6", "#F0F3F6")
REFERENCE, FIRST = 0, 1
BRIGHT = len(LIGHT) - 1


def places(count: int) -> list[int]:
    """A place in the palette for each of so many rows: the reference for the first when there are others."""
    bright = [FIRST + number % BRIGHT for number in range(count)]
    return [REFERENCE, *bright[:-1]] if count > 1 else bright


def css() -> str:
    """The palette as custom properties --c0, --c1, … of the page; paper is light."""
    light, dark = (" ".join(f"--c{place}: {each};" for place, each in enumerate(all)) for all in (LIGHT, DARK))
    return f"""\
:root {{ {light} }}
@media screen and (prefers-color-scheme: dark) {{
  :root:not(.printing) {{ {dark} }}
}}
"""

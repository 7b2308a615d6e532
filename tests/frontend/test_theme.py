"""The style sheet and the figures have the same colours, and people can tell them from their ground."""

import re
from pathlib import Path

import pytest

from frontend.figures.theme import DARK, LIGHT, Theme, mixed, readable_on

FRONTEND = Path(__file__).parents[2] / "frontend"
TOKENS = FRONTEND / "static/paceline/css/tokens.css"


def tokens(theme: Theme) -> dict[str, str]:
    """The custom properties of a theme."""
    block = re.search(rf'\[data-theme="{theme.name}"\] {{(.*?)}}', TOKENS.read_text(), re.DOTALL)
    assert block is not None
    return dict(re.findall(r"--([\w-]+): (#\w{6});", block[1]))


def contrast(first: str, second: str) -> float:
    """The contrast ratio of WCAG 2."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
class TestTheme:
    def test_the_style_sheet_repeats_the_figures_colours(self, theme: Theme) -> None:
        css = tokens(theme)
        named = ("surface", "text", "muted", "data", "compute", "communication", "waiting", "coordination")
        assert {name: css[name] for name in named} == {name: getattr(theme, name) for name in named}
        assert [css[f"category-{index}"] for index in range(len(theme.categories))] == list(theme.categories)

    def test_every_category_can_be_seen_on_the_surface(self, theme: Theme) -> None:
        phases = (theme.data, theme.compute, theme.communication, theme.waiting, theme.coordination)
        too_faint = {
            c: contrast(c, theme.surface) for c in (*theme.categories, *phases) if contrast(c, theme.surface) < 3
        }
        assert too_faint == {}

    def test_text_can_be_read(self, theme: Theme) -> None:
        css = tokens(theme)
        pairs = [(text, ground) for text in ("text", "muted") for ground in ("bg", "surface", "sunken")]
        pairs += [(tone, f"{tone}-soft") for tone in ("good", "watch", "bad", "accent")]
        pairs += [("on-accent", "accent"), ("accent", "surface"), ("accent", "bg"), ("watch", "surface")]
        pairs += [("good", "surface"), ("bad", "surface"), ("surface", "bad"), ("bg", "text")]
        pairs += [("text", f"{tone}-soft") for tone in ("good", "watch", "bad", "accent")]
        too_faint = {pair: contrast(css[pair[0]], css[pair[1]]) for pair in pairs}
        assert {pair: ratio for pair, ratio in too_faint.items() if ratio < 4.5} == {}

    def test_controls_and_the_focus_can_be_seen(self, theme: Theme) -> None:
        css = tokens(theme)
        pairs = [("line-strong", ground) for ground in ("bg", "surface")]
        pairs += [("accent", ground) for ground in ("bg", "surface", "sunken", "accent-soft")]
        found = {pair: contrast(css[pair[0]], css[pair[1]]) for pair in pairs}
        assert {pair: ratio for pair, ratio in found.items() if ratio < 3} == {}

    def test_a_label_can_be_read_wherever_on_a_scale_its_ground_is(self, theme: Theme) -> None:
        grounds = [mixed(theme.surface, theme.waiting, part / 50) for part in range(51)]
        assert (grounds[0], grounds[-1]) == (theme.surface, theme.waiting)
        assert min(contrast(readable_on(ground), ground) for ground in grounds) >= 4.5


def test_every_column_of_the_list_of_jobs_can_be_hidden() -> None:
    columns = re.findall(r'data-column="(\w+)"', (FRONTEND / "templates/parts/job_rows.html").read_text())
    hidden = re.findall(r'\[data-hide~="(\w+)"\] \[data-column="\1"\]', (TOKENS.parent / "parts.css").read_text())
    assert sorted(hidden) == sorted(set(columns))

"""Colours: every part has its own, told apart where they meet, in light and dark, and readable."""

import math

import pytest

from gpuscale.answers.training.rl_blocks import PHASES
from gpuscale.answers.training.tune_words import PARTS
from gpuscale.core.words import EVENT_KINDS, MEMORY_PARTS, STEP_PARTS
from gpuscale.render.palette import DARK_TEXT_ON, INK, MEANINGS, PAPER, SERIES, meaning

COLOUR_NAMES = frozenset(
    "thread_state_uninterruptible thread_state_iowait thread_state_running thread_state_runnable "
    "thread_state_sleeping thread_state_unknown background_memory_dump light_memory_dump "
    "detailed_memory_dump vsync_highlight_color generic_work good bad terrible black grey white "
    "yellow olive rail_response rail_animation rail_idle rail_load startup".split()
)
"""Colours that a trace can name: catapult, tracing/base/color_scheme.html."""

MEET = (
    "weights gradients master optimizer activations logits buffers fragmentation context kv",
    "forward attention elementwise experts tp cp ep recompute host pp dp optimizer straggler other",
    "weights gradients master optimizer activations forward logits gather buffers fragmentation",
    "forward backward backward-weights recompute gather host straggler dp optimizer other",
    "rollout scoring reference reward critic forward sync gather host other",
)
"""Meanings that stand side by side: memory of pre-training and of fine-tuning, a
step's parts, a step in time, a step of RL."""


def rgb(colour):
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def linear(colour):
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb(colour)]


def luminance(colour):
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(one, other):
    """WCAG 2.2, relative luminance."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(colour):
    """CIE L*a*b* under D65."""
    r, g, b = linear(colour)
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883,
    )
    x, y, z = (t ** (1 / 3) if t > (6 / 29) ** 3 else t / (3 * (6 / 29) ** 2) + 4 / 29 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def delta_e(one, other):
    """CIEDE2000: G. Sharma, W. Wu, E. Dalal, Color Research and Application 30(1), 2005."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    c7 = ((math.hypot(a1, b1) + math.hypot(a2, b2)) / 2) ** 7
    g = 1 + 0.5 * (1 - math.sqrt(c7 / (c7 + 25**7)))
    c1, c2 = math.hypot(a1 * g, b1), math.hypot(a2 * g, b2)
    h1, h2 = (math.degrees(math.atan2(b, a * g)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    middle, mean_l, mean_c = h1 + turn / 2, (l1 + l2) / 2, (c1 + c2) / 2
    if not c1 * c2:
        middle = h1 + h2
    t = (
        1
        - 0.17 * math.cos(math.radians(middle - 30))
        + 0.24 * math.cos(math.radians(2 * middle))
        + 0.32 * math.cos(math.radians(3 * middle + 6))
        - 0.20 * math.cos(math.radians(4 * middle - 63))
    )
    s_l = 1 + 0.015 * (mean_l - 50) ** 2 / math.sqrt(20 + (mean_l - 50) ** 2)
    s_c, s_h = 1 + 0.045 * mean_c, 1 + 0.015 * mean_c * t
    spread = 60 * math.exp(-(((middle % 360 - 275) / 25) ** 2))
    r_t = -2 * math.sqrt(mean_c**7 / (mean_c**7 + 25**7)) * math.sin(math.radians(spread))
    d_l, d_c = (l2 - l1) / s_l, (c2 - c1) / s_c
    d_h = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2)) / s_h
    return math.sqrt(d_l**2 + d_c**2 + d_h**2 + r_t * d_c * d_h)


def test_delta_e_is_that_of_the_paper():
    """Pairs 1, 7, 17 and 25 of the paper's table 1."""
    pairs = [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 0, 0), (50, -1, 2), 2.3669),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
    ]
    for one, other, want in pairs:
        assert delta_e(one, other) == pytest.approx(want, abs=1e-4)


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("meet", MEET)
def test_what_meets_in_a_picture_is_told_apart(meet, mode):
    colours = {name: lab(getattr(MEANINGS[name], mode)) for name in meet.split()}
    names = list(colours)
    near = [
        (a, b, round(d, 1))
        for i, a in enumerate(names)
        for b in names[:i]
        if (d := delta_e(colours[a], colours[b])) < 9.0
    ]
    assert not near


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_no_colour_means_two_things(mode):
    colours = [getattr(c, mode) for c in MEANINGS.values()]
    assert len(set(colours)) == len(colours)
    for i, one in enumerate(colours):
        assert all(delta_e(lab(one), lab(other)) > 3.5 for other in colours[:i]), one


def test_colours_stand_out_from_the_page_and_carry_their_text():
    """WCAG 2.2: 3 to 1 for what is drawn (1.4.11) and for the large text on it (1.4.3)."""
    for name, colour in MEANINGS.items():
        for mode in ("light", "dark"):
            assert contrast(getattr(colour, mode), getattr(PAPER, mode)) >= 2.9, (name, mode)
    for n, colour in enumerate(SERIES):
        text = INK.light if n in DARK_TEXT_ON else PAPER.light
        assert contrast(text, colour) >= 3.0, colour


def test_every_part_has_a_meaning():
    said = [*STEP_PARTS.values(), *MEMORY_PARTS.values(), "KV cache"]
    said += [*EVENT_KINDS.values(), *(w for w, _ in PARTS), *(w for w, _ in PHASES)]
    assert [w for w in said if meaning(w) not in MEANINGS] == []


def test_one_thing_has_one_colour_everywhere():
    assert meaning(STEP_PARTS["optimizer_s"]) == meaning(MEMORY_PARTS["optimizer_bytes"])
    assert meaning(STEP_PARTS["recompute_s"]) == meaning(EVENT_KINDS["recompute"])
    assert meaning(STEP_PARTS["dp_comm_s"]) == meaning(EVENT_KINDS["dp"])
    assert meaning(STEP_PARTS["matmul_s"]) == meaning(EVENT_KINDS["forward"])
    assert {c.trace for c in MEANINGS.values()} <= COLOUR_NAMES

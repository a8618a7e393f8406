"""Draw recorded episodes: a picture of a frame, an animated GIF, and an HTML page that plays them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bakeoff.workloads.gridworld.episode import Episode, Frame

if TYPE_CHECKING:
    from PIL import Image

COLOURS = (
    "#5b8fd1", "#f28e2b", "#59a14f", "#b07aa1", "#9c755f", "#edc948",
    "#4dbdb0", "#ff9da7", "#bab0ac", "#d4489a", "#a9d4f5", "#c5e384",
)  # fmt: skip
"""Of the appearances A to L."""
FLOOR, WALL, AGENT, HEART, INK = "#f4f1ea", "#3c3a36", "#1d1d1f", "#d62839", "#222222"
LARGEST_ROOM, LARGEST_CELL = 440, 40
"""Side of a picture of a room and of a cell, in pixels."""
PANEL = 60
"""Height of the text above a room."""
LINE = 18
"""Height of a line of the legend below it."""
FRAMES_PER_SECOND = 8


def picture(episode: Episode, number: int = -1) -> NDArray[np.uint8]:
    """A frame as an array [height, width, 3] of colours."""
    return np.asarray(_draw(episode, episode.frames[number]), np.uint8)


def write_gif(episodes: Sequence[Episode], path: Path, fps: int = FRAMES_PER_SECOND) -> None:
    """Write an animation of episodes side by side. The shorter ones wait for the longest at their last frame."""
    from PIL import Image

    length = max(len(episode.frames) for episode in episodes)
    images: list[Image.Image] = []
    for number in range(length):
        drawn = [_draw(episode, episode.frames[min(number, len(episode.frames) - 1)]) for episode in episodes]
        gap = 16
        size = (sum(image.width for image in drawn) + gap * (len(drawn) - 1), max(image.height for image in drawn))
        whole = Image.new("RGB", size, "white")
        left = 0
        for image in drawn:
            whole.paste(image, (left, 0))
            left += image.width + gap
        # One palette for all: choosing one for each frame would take most of the time.
        images.append(whole.quantize(64, palette=images[0], dither=Image.Dither.NONE) if images else whole.quantize(64))
    durations = [1000 // fps] * (length - 1) + [2000]
    images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0)


def write_html(episodes: Sequence[Episode], path: Path) -> None:
    """Write a page that needs nothing else and plays episodes side by side."""
    title = f"{episodes[0].level}, task {episodes[0].task}"
    path.write_text(_macros().page(title, as_html(episodes)), encoding="utf-8")


def as_html(episodes: Sequence[Episode], *, playing: bool = True) -> str:
    """A part of a page that plays episodes side by side, at once if `playing`, or else when its button is pressed."""
    facts = {
        "episodes": [_for_script(episode) for episode in episodes],
        "colours": COLOURS,
        "playing": playing,
        "speed": FRAMES_PER_SECOND,
    }
    player: str = _macros().player(facts)  # Markup, which templates take as it is
    return player


def _macros() -> Any:
    """The macros of the template. jinja2 is imported when a page is written, not before."""
    from bakeoff.web.page import environment

    here = Path(__file__).parent
    return environment(here, here / "player").get_template("replay.html.j2").module


def _for_script(episode: Episode) -> dict[str, Any]:
    return {
        "agent": episode.agent,
        "level": episode.level,
        "task": str(episode.task),  # too large for a number of JavaScript
        "horizon": episode.horizon,
        "walls": episode.walls,
        "stations": [[s.x, s.y, s.look, s.does] for s in episode.stations],
        "frames": [[f.x, f.y, f.hearts, list(f.carried), "".join(f.cooling)] for f in episode.frames],
    }


def _draw(episode: Episode, frame: Frame) -> Image.Image:
    from PIL import Image, ImageDraw, ImageFont

    columns, rows = len(episode.walls[0]), len(episode.walls)
    cell = min(LARGEST_CELL, LARGEST_ROOM // max(columns, rows))
    below = PANEL + rows * cell + 6
    image = Image.new("RGB", (max(columns * cell, 240), below + LINE * ((len(episode.stations) + 1) // 2)), "white")
    draw = ImageDraw.Draw(image)
    small, large = ImageFont.load_default(13), ImageFont.load_default(max(9, cell // 2))
    carried = " ".join(f"r{resource}" for resource in frame.carried) or "nothing"
    draw.text((4, 4), f"{episode.agent}  {episode.level}".strip(), INK, font=small)
    draw.text((4, 22), f"step {frame.step} of {episode.horizon}", INK, font=small)
    draw.text((150, 22), f"hearts {frame.hearts}", HEART, font=small)
    draw.text((4, 40), f"carries {carried}", INK, font=small)
    for y, row in enumerate(episode.walls):
        for x, kind in enumerate(row):
            box = (x * cell, PANEL + y * cell, (x + 1) * cell - 1, PANEL + (y + 1) * cell - 1)
            draw.rectangle(box, FLOOR if kind == "." else WALL)
    for station in episode.stations:
        left, top = station.x * cell, PANEL + station.y * cell
        cooling = station.look in frame.cooling
        colour = COLOURS[ord(station.look) - ord("A")]
        draw.rectangle(
            (left, top, left + cell - 1, top + cell - 1), WALL if cooling else colour, colour, max(1, cell // 12)
        )
        middle = (left + cell // 2, top + cell // 2)
        draw.text(middle, station.look, "white" if cooling else INK, font=large, anchor="mm")
    for number, station in enumerate(episode.stations):
        place = (4 + 120 * (number % 2), below + LINE * (number // 2))
        does = station.does.replace("→", "to")  # Pillow's own font has no arrow
        draw.text(place, f"{station.look}  {does}", INK, font=small)
    left, top, inset = frame.x * cell, PANEL + frame.y * cell, cell // 6
    draw.ellipse((left + inset, top + inset, left + cell - inset, top + cell - inset), AGENT)
    return image

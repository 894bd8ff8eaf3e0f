"""What `--scenes` takes, at a glance: lists need no world to be made."""

from collections.abc import Mapping

BUILT_IN: Mapping[str, str] = {
    "text20x20": "160,400 scenes, 20 attribute x 20 noun; shows text, scene",
    "text8x8": "4,160 scenes, 8 attribute x 8 noun; shows text, scene",
    "clevr": "600 scenes, 8 color x 3 shape; shows text, picture, scene",
    "clevr3": "13,848 scenes, 8 color x 3 shape; shows text, picture, scene",
    "clevr-occluded": "600 scenes, 8 color x 3 shape; shows text, picture, scene",
    "clevr2d": "600 scenes, 8 color x 3 shape; shows text, picture, scene",
    "pug_spare": "7,392 scenes, 12 animal x 8 texture; shows text, scene",
}
"""Name of a built-in world -> its size, and what it shows."""
SIZED: Mapping[str, str] = {
    "grid:20x20": "pairs and singles of any numbers of values, two or more concepts; shows scene",
    "sprites:16x9": "pairs and singles of up to 16 colours and 9 shapes, 32 pixels; sprites:16x9@48 draws others; "
    "shows text, picture, scene",
}
"""Worlds whose name says their size -> what they hold."""
OWN = {"scenes.csv": "your own table (.csv, .parquet), or a folder with labels.csv and pictures"}
"""The user's own."""

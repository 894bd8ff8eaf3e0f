"""Figures as plain data: specifications for plotly.js, points for the maps, and the small axis of a tile.

Text colours, grid and background come from the page's style sheet, so a figure follows light, dark and print by itself;
marks are told apart by shape as well as by colour (Okabe and Ito's palette).
"""

from colligate.report.figures.bars import outcomes as outcomes
from colligate.report.figures.curves import curves as curves
from colligate.report.figures.curves import scatter as scatter
from colligate.report.figures.dots import dots as dots
from colligate.report.figures.dots import tile_axis as tile_axis
from colligate.report.figures.maps import points_map as points_map
from colligate.report.figures.marks import BLUE as BLUE
from colligate.report.figures.marks import GREEN as GREEN
from colligate.report.figures.marks import GREY as GREY
from colligate.report.figures.marks import LEVELS as LEVELS
from colligate.report.figures.marks import ORANGE as ORANGE
from colligate.report.figures.marks import PURPLE as PURPLE
from colligate.report.figures.marks import SKY as SKY
from colligate.report.figures.marks import VERMILLION as VERMILLION
from colligate.report.figures.marks import Figure as Figure
from colligate.report.figures.marks import Key as Key
from colligate.report.figures.marks import Level as Level
from colligate.report.figures.marks import Line as Line
from colligate.report.figures.marks import Mark as Mark
from colligate.report.figures.marks import Series as Series
from colligate.report.figures.marks import plain as plain
from colligate.report.figures.marks import spoken as spoken

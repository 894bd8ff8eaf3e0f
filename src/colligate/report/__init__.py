"""One offline page that says what a study found: a verdict in words, and the figures and tables behind it."""

from colligate.report.page import render_page as render_page
from colligate.report.page import write_page as write_page
from colligate.report.verdict import Tile as Tile
from colligate.report.verdict import Verdict as Verdict
from colligate.report.verdict import judge as judge

"""What the numbers allow one to say: a claim only where an interval clears its level, in plain words."""

from colligate.report.verdict.claims import CLAIMS as CLAIMS
from colligate.report.verdict.claims import TOO_FEW as TOO_FEW
from colligate.report.verdict.claims import Answer as Answer
from colligate.report.verdict.claims import Measured as Measured
from colligate.report.verdict.claims import Tile as Tile
from colligate.report.verdict.claims import Verdict as Verdict
from colligate.report.verdict.claims import between as between
from colligate.report.verdict.claims import compare as compare
from colligate.report.verdict.claims import fraction as fraction
from colligate.report.verdict.claims import percent as percent
from colligate.report.verdict.claims import rule_in_words as rule_in_words
from colligate.report.verdict.claims import too_few as too_few
from colligate.report.verdict.sentence import NOTHING as NOTHING
from colligate.report.verdict.sentence import judge as judge

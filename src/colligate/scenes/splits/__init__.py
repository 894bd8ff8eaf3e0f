"""Splits of scenes into fit, validation and test: fit on the first, choose on the second, report on the third.

A rule is a frozen dataclass with `split(scenes, seed) -> Split`. `ByScene` divides scenes, `ByObject` and `ByValuePair`
hold out what can stand in a slot, `BySwaps` holds out objects so that binding can be tested among unseen objects only,
`Given` takes a column of the user's table, `PaperScenes` is the authors' split.
"""

from colligate.scenes.splits.by_object import ByObject as ByObject
from colligate.scenes.splits.by_object import ByValuePair as ByValuePair
from colligate.scenes.splits.by_scene import ByScene as ByScene
from colligate.scenes.splits.by_scene import Given as Given
from colligate.scenes.splits.by_scene import PaperScenes as PaperScenes
from colligate.scenes.splits.by_swaps import BySwaps as BySwaps
from colligate.scenes.splits.parts import PARTS as PARTS
from colligate.scenes.splits.parts import Split as Split
from colligate.scenes.splits.parts import SplitRule as SplitRule
from colligate.scenes.splits.parts import require_seen as require_seen
from colligate.scenes.splits.parts import split_by_objects as split_by_objects
from colligate.scenes.splits.parts import swaps_within as swaps_within
from colligate.scenes.splits.parts import unseen_values as unseen_values

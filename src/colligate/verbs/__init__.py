"""What verbs do: each opens its inputs, measures, and leaves a record and a page behind.

colligate.verbs.config       what a verb is asked: its flags
colligate.verbs.sources      models, worlds, files: where vectors come from
colligate.verbs.battery      every measurement of one embedder
colligate.verbs.rules        rules fitted on some objects, scored on others
colligate.verbs.crossmodal   two towers: recognition by words, foils
colligate.verbs.repair       maps fitted on a frozen model's text side
colligate.verbs.matched      one model: how simple its towers are, how well they match
colligate.verbs.structure    many models: does matching go with simple rules?
colligate.verbs.provenance   what a record says of its inputs
colligate.verbs.reproduce    a record, run again and compared
"""

from colligate.verbs.battery import BATTERIES as BATTERIES
from colligate.verbs.battery import open_subject as open_subject
from colligate.verbs.battery import study as study
from colligate.verbs.config import ComplexityConfig as ComplexityConfig
from colligate.verbs.config import EditConfig as EditConfig
from colligate.verbs.config import MeasureConfig as MeasureConfig
from colligate.verbs.config import SourceConfig as SourceConfig
from colligate.verbs.config import StudyConfig as StudyConfig
from colligate.verbs.reproduce import Reproduction as Reproduction
from colligate.verbs.reproduce import reproduce as reproduce
from colligate.verbs.sources import Inputs as Inputs
from colligate.verbs.sources import Source as Source
from colligate.verbs.sources import open_source as open_source
from colligate.verbs.sources import open_world as open_world

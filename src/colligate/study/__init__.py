"""What verbs do: each opens its inputs, measures, and leaves a record and a page behind.

colligate.study.config       what a verb is asked: its flags
colligate.study.sources      models, worlds, files: where vectors come from
colligate.study.battery      every measurement of one embedder
colligate.study.rules        rules fitted on some objects, scored on others
colligate.study.crossmodal   two towers: recognition by words, foils
colligate.study.repair       maps fitted on a frozen model's text side
colligate.study.matched      one model: how simple its towers are, how well they match
colligate.study.structure    many models: does matching go with simple rules?
colligate.study.provenance   what a record says of its inputs
colligate.study.reproduce    a record, run again and compared
"""

from colligate.study.battery import BATTERIES as BATTERIES
from colligate.study.battery import open_subject as open_subject
from colligate.study.battery import study as study
from colligate.study.config import ComplexityConfig as ComplexityConfig
from colligate.study.config import EditConfig as EditConfig
from colligate.study.config import MeasureConfig as MeasureConfig
from colligate.study.config import SourceConfig as SourceConfig
from colligate.study.config import StudyConfig as StudyConfig
from colligate.study.reproduce import Reproduction as Reproduction
from colligate.study.reproduce import reproduce as reproduce
from colligate.study.sources import Inputs as Inputs
from colligate.study.sources import Source as Source
from colligate.study.sources import open_source as open_source
from colligate.study.sources import open_world as open_world

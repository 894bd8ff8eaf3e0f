"""Run records: rows of results, and the folder that a finished run leaves behind.

colligate.records.rows     rows and tables
colligate.records.files    atomic writes, and JSON that tells when it was damaged
colligate.records.calls    a config as a command line and as Python
colligate.records.runs     run folders
colligate.records.listing  runs at a glance
colligate.records.locks    one writer to a folder
colligate.records.news     a sentence to the user while work goes on
"""

from colligate.records.calls import RUN_FIELDS as RUN_FIELDS
from colligate.records.calls import command as command
from colligate.records.calls import given as given
from colligate.records.calls import python as python
from colligate.records.calls import settings as settings
from colligate.records.files import WorkError as WorkError
from colligate.records.files import content_key as content_key
from colligate.records.files import plain_json as plain_json
from colligate.records.files import read_seal as read_seal
from colligate.records.files import read_sealed as read_sealed
from colligate.records.files import sealed_json as sealed_json
from colligate.records.files import sweep_temporaries as sweep_temporaries
from colligate.records.files import tensors_hash as tensors_hash
from colligate.records.files import write_atomic as write_atomic
from colligate.records.listing import ListedRun as ListedRun
from colligate.records.listing import list_runs as list_runs
from colligate.records.locks import held as held
from colligate.records.locks import one_writer as one_writer
from colligate.records.news import tell as tell
from colligate.records.rows import AGAIN as AGAIN
from colligate.records.rows import COLUMNS as COLUMNS
from colligate.records.rows import NO_CEILING as NO_CEILING
from colligate.records.rows import NOT_FITTED as NOT_FITTED
from colligate.records.rows import NUMBERS as NUMBERS
from colligate.records.rows import Row as Row
from colligate.records.rows import parse_table as parse_table
from colligate.records.rows import read_table as read_table
from colligate.records.rows import table_bytes as table_bytes
from colligate.records.rows import with_random_init as with_random_init
from colligate.records.runs import SCHEMA as SCHEMA
from colligate.records.runs import FinishedRun as FinishedRun
from colligate.records.runs import environment as environment
from colligate.records.runs import find_run as find_run
from colligate.records.runs import open_run as open_run
from colligate.records.runs import read_record as read_record
from colligate.records.runs import run_facts as run_facts
from colligate.records.runs import unfinish as unfinish
from colligate.records.runs import write_record as write_record

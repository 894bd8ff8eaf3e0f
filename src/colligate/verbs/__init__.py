"""What verbs do: each opens its inputs, measures, and leaves a record behind if it is to be kept.

colligate.verbs.config       what a verb is asked: its flags
colligate.verbs.sources      models, worlds, files: where vectors come from
colligate.verbs.battery      every measurement of one embedder
colligate.verbs.rules        rules fitted on some objects, scored on others
colligate.verbs.crossmodal   two towers: recognition by words, foils
colligate.verbs.repair       maps fitted on a frozen model's text side
colligate.verbs.matched      one model: how simple its towers are, how well they match
colligate.verbs.structure    many models: does matching go with simple rules?
colligate.verbs.compare      how finished runs differ
colligate.verbs.provenance   what a record says of its inputs
colligate.verbs.reproduce    a record, run again and compared
"""

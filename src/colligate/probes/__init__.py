"""Linear read-outs of values and objects: does a vector say which values, and which objects, its scene holds?

A probe is a matrix without bias, one row for each value (or object), trained by softmax cross-entropy against a uniform
distribution over what is present. It sees every object, but never a scene that is scored.
"""

from colligate.probes.probing import ProbeOutcomes as ProbeOutcomes
from colligate.probes.probing import Probes as Probes
from colligate.probes.probing import ProbeSettings as ProbeSettings
from colligate.probes.probing import ProtocolName as ProtocolName
from colligate.probes.probing import fit_paper_probes as fit_paper_probes
from colligate.probes.probing import fit_probes as fit_probes
from colligate.probes.probing import swap_foils as swap_foils
from colligate.probes.readouts import Axes as Axes
from colligate.probes.readouts import LinearReadouts as LinearReadouts
from colligate.probes.readouts import ScoreLoss as ScoreLoss
from colligate.probes.readouts import SoftmaxLoss as SoftmaxLoss
from colligate.probes.readouts import cross_entropy as cross_entropy
from colligate.probes.readouts import soft_targets as soft_targets
from colligate.probes.swaps import BothRight as BothRight
from colligate.probes.swaps import both_right as both_right

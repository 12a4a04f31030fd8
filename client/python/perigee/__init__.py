"""Perigee's client for framework processes: expert-parallel operations on memory shared with the
worker on this machine. Needs NumPy and libperigee.so (client/lib/perigee.h), which is looked for in
PERIGEE_LIBRARY, beside this package, and where the dynamic linker looks."""

from perigee._device import DeviceArray
from perigee._library import PerigeeError
from perigee.bfloat16 import from_bfloat16, to_bfloat16
from perigee.buffer import Buffer
from perigee.cluster import Cluster
from perigee.device_buffer import DeviceBuffer, DeviceEvent
from perigee.event import Event
from perigee.output_slots import ExpertOutput, OutputSlot
from perigee.plan import CommPlan, Plan
from perigee.publication import DispatchTarget, PreparedPublication
from perigee.source import SourceView

__all__ = ["Buffer", "Cluster", "CommPlan", "DeviceArray", "DeviceBuffer", "DeviceEvent",
           "DispatchTarget", "Event", "ExpertOutput", "OutputSlot", "PerigeeError", "Plan",
           "PreparedPublication", "SourceView", "from_bfloat16", "to_bfloat16"]

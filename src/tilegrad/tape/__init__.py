"""Recording launches, and running their adjoints: see `tape.tape`."""

from tilegrad.tape.memory import is_float
from tilegrad.tape.records import Recorder, active, record_copy, record_launch, record_write
from tilegrad.tape.tape import Tape

__all__ = ["Recorder", "Tape", "active", "is_float", "record_copy", "record_launch", "record_write"]

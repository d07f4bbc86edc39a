"""How much memory a process has resident, at most, and during some of its work."""

import ctypes
import resource
import sys
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MIB = 1024**2


def peak_mib() -> float:
    """Return the highest resident memory so far, since the last `reset_peak` where that works."""
    peak = _status("VmHWM")
    if peak is not None:
        return peak
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB


def resident_mib() -> float | None:
    """Return the resident memory now, or None where it can't be read."""
    return _status("VmRSS")


def reset_peak() -> bool:
    """Give what was freed back to the system and start a new peak; says whether that worked."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # glibc keeps what compiling needed, which is no need of the steps
    except (OSError, AttributeError):
        return False
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def _status(field: str) -> float | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(field)), None)

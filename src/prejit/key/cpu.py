"""What the code that XLA makes for a CPU depends on: its instruction sets and its model."""

from __future__ import annotations

import functools
import hashlib
import platform

_KERNEL_WORDS = """
cpuid constant_tsc nonstop_tsc tsc_known_freq rep_good nopl xtopology nonstop_tsc_s3 tsc_reliable amd_dcm
aperfmperf arch_perfmon pebs bts cpuid_fault cpb epb hw_pstate proc_feedback pti invpcid_single ssbd ibrs ibpb
stibp ibrs_enhanced md_clear flush_l1d arch_capabilities hypervisor tpr_shadow flexpriority ept ept_ad vpid
vnmi vmmcall tsc_adjust tsc_deadline_timer retpoline retpoline_amd l1tf mba cat_l3 cat_l2 cdp_l3 cdp_l2 cqm
cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local rdt_a dtherm ida arat pln pts hwp hwp_notify hwp_act_window
hwp_epp hwp_pkg_req hfi user_shstk ibt split_lock_detect bus_lock_detect spec_ctrl intel_stibp x2apic apic
extapic ht syscall_64 pcid smep smap umip
"""
# Linux invents some words and lists mitigations among a CPU's flags; they change with the kernel, not with the CPU.


@functools.cache
def cpu_features() -> str:
    """Return a digest of the instruction sets that this CPU has, with its architecture in front.

    `xla_cpu_max_isa` narrows what XLA uses of them; it comes in through the flags.
    """
    words = set(_cpuinfo("flags").split()) | set(_cpuinfo("Features").split())
    features = sorted(words - set(_KERNEL_WORDS.split()))
    return f"{platform.machine()} {hashlib.sha256(' '.join(features).encode()).hexdigest()}"


@functools.cache
def cpu_model() -> str:
    """Return what LLVM tells CPUs apart by: vendor, family and model, or their counterparts."""
    fields = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part", "CPU variant")
    found = [value for value in map(_cpuinfo, fields) if value]
    return " ".join(found) or platform.processor() or platform.machine()


@functools.cache
def _cpuinfo(field: str) -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, colon, value = line.partition(":")
                if colon and name.strip() == field:
                    return value.strip()
    except OSError:
        return ""
    return ""

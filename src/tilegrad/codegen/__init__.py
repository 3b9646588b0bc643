"""From the schedule to LLVM IR."""

// Whether the kernel ends processes because memory has run out: what tells such a SIGKILL from anybody else's.
#pragma once

#include <cstdint>

namespace kw {

// How many processes the kernel has ended for want of memory since the machine was started (`oom_kill` of
// /proc/vmstat), in control groups too; -1 where it does not count them.
int64_t memory_kills();

}  // namespace kw

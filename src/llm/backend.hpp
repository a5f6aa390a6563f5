// A language model as kw sees it: a prompt in; tokens as they come, and how it ended, out. Where the model runs (a
// server, llama.cpp, transformers) is the backend's affair; docs/llm.md says how each is named on the command line.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kw::llm {

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// Messages for a chat model, or one raw text that the model goes on from.
struct Prompt {
  std::vector<Message> messages;
  std::string raw;  // used when there are no messages

  std::string text() const;  // all of it, for counting and for showing
};

struct Sampling {
  double temperature = 1.0, top_p = 0.97;
  int max_tokens = 2048;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::string grammar;  // GBNF that the answer has to follow; empty: none
  std::string schema;   // the same as a JSON Schema, for servers; both or neither
};

// How an answer ended, and what it took.
struct Usage {
  std::string finish;  // "stop", "length" (max_tokens or the context), "repetition" (it went round in a circle),
                       // "cancelled"
  int prompt_tokens = 0, completion_tokens = 0;
  bool tokens_estimated = false;  // the backend did not say
  double seconds = 0, first_token_seconds = 0;
  int retries = 0;
  double waited_seconds = 0;  // between them
};

struct Completion : Usage {
  std::string text;
  std::string model;  // as the backend names it
};

// Called with each piece of text as it comes; false ends the completion ("cancelled").
using OnToken = std::function<bool(std::string_view piece)>;

class Backend {
 public:
  virtual ~Backend() = default;

  // Throws kw::Error with a stable code: docs/llm.md has the table. Throws Interrupted. One call at a time per object.
  virtual Completion generate(const Prompt& prompt, const Sampling& sampling, const OnToken& on_token = {}) = 0;
  virtual int count_tokens(const Prompt& prompt) = 0;  // exact where the model is local, an estimate over HTTP
  virtual int context_tokens() = 0;                    // that it can read and write together; 0: unknown
  virtual std::string name() = 0;
};

// How often, how long and with what pauses a request is tried.
struct Patience {
  int attempts = 6;  // of one request
  double first_pause = 1, longest_pause = 60;
  double connect_seconds = 10, silence_seconds = 120, total_seconds = 900;
};

// What `--model` and the options around it say.
struct ModelOptions {
  std::string model;         // URL[#NAME], "openai:NAME", a .gguf file, a Hugging Face folder, "smollm2", or "random"
  std::string api = "auto";  // "chat", "completions"
  std::string key_variable = "OPENAI_API_KEY";
  int concurrency = 0;          // requests at once; 0: 4 over HTTP, 1 for a local model
  int context = 0;              // tokens; 0: the model's own, at most 8192
  std::string device = "auto";  // transformers: device map, "auto", "cpu", "cuda"
  std::string dtype = "auto";
  int gpu_layers = -1;  // llama.cpp; -1: as many as fit
  int threads = 0;      // llama.cpp; 0: its own choice
  Patience patience;
  double read_price = 0, written_price = 0;  // of a million tokens, in any currency; 0: not told
};

enum class ModelKind { kHttp, kGguf, kTransformers, kRandom };

// What the name means. Throws kUser for a file that is none of these.
struct ModelPlace {
  ModelKind kind = ModelKind::kHttp;
  std::string url, name;  // kHttp: without the trailing slash; name may be empty: the server's first model
  std::string path;       // kGguf and kTransformers; "smollm2" stands for the PyPI package's file
};
ModelPlace place_of(const std::string& model);

// How Python is started for the libraries that are Python.
struct HostOptions {
  std::string python, module_path;
};

// As many objects as may work at once. Nothing is loaded or asked before the first generate(), count_tokens() or
// context_tokens().
std::vector<std::unique_ptr<Backend>> open_backends(const ModelOptions& options, const HostOptions& host);

}  // namespace kw::llm

#include "llm/http_backend.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "llm/repetition.hpp"
#include "llm/sse.hpp"
#include "llm/tokens.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/subprocess.hpp"

namespace kw::llm {

using Json = nlohmann::ordered_json;

namespace {

// What the same request may get past when it is tried again.
struct Passing {
  ErrorText text;
  double retry_after = 0;
  bool soon = false;  // nobody is there: a few tries, and no long wait
};

constexpr int kTriesWithoutServer = 3;

std::string shortened(std::string text, size_t length = 300) {
  for (char& c : text)
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  return text.size() > length ? text.substr(0, length) + "…" : text;
}

// {"error": {"message": …}}, {"error": "…"}, {"detail": …}, {"message": …}: as servers differ.
std::string message_of(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  if (json.is_object())
    for (const char* key : {"error", "message", "detail"}) {
      if (!json.contains(key)) continue;
      const Json& value = json[key];
      if (value.is_string()) return shortened(value.get<std::string>());
      if (value.is_object() && value.contains("message") && value["message"].is_string())
        return shortened(value["message"].get<std::string>());
      return shortened(value.dump());
    }
  return shortened(body);
}

bool is_html(const std::string& type, const std::string& body) {
  const size_t start = body.find_first_not_of(" \t\r\n");
  return type.find("text/html") != std::string::npos || (start != std::string::npos && body[start] == '<');
}

bool mentions(const std::string& text, std::initializer_list<const char*> words) {
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return lower.find(word) != std::string::npos; });
}

double seconds_in(const Json& headers, const char* name) {
  if (!headers.contains(name) || !headers[name].is_string()) return 0;
  const std::string text = headers[name];
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  return end != text.c_str() && std::isfinite(seconds) && seconds > 0 ? seconds : 0;
}

[[noreturn]] void refuse(ErrorKind kind, const char* code, std::string message, std::string hint) {
  throw Error(kind, ErrorText{.message = std::move(message),
                              .where = "",
                              .source = "",
                              .hint = std::move(hint),
                              .detail = "",
                              .code = code});
}

ErrorText words(const char* code, std::string message, std::string hint) {
  return {
      .message = std::move(message), .where = "", .source = "", .hint = std::move(hint), .detail = "", .code = code};
}

// What an answer that is not the completion means: throws Error for what will not change, Passing for what may.
[[noreturn]] void explain(int status, const Json& headers, const std::string& body, const std::string& url,
                          const ModelOptions& options, const std::string& model) {
  const std::string type = headers.value("content-type", "");
  if (status != 429 && status < 500 && is_html(type, body))
    refuse(ErrorKind::kUser, "not-an-api", "The address " + url + " answers with a web page, not with a completion.",
           "The address of an OpenAI-compatible server usually ends in /v1.");
  const std::string said = is_html(type, body) ? "a web page" : message_of(body);
  if (status == 401 || status == 403)
    refuse(ErrorKind::kUser, "wrong-key", "The server refuses the key (" + std::to_string(status) + "): " + said,
           "Set the key in the environment variable " + options.key_variable +
               ", or name another variable with --key-variable.");
  if (status == 429 && mentions(body, {"insufficient_quota", "billing"}))
    refuse(ErrorKind::kMissing, "no-quota", "The account has no quota left: " + said,
           "The same command goes on when there is some.");
  if (status == 429 || status == 408 || status == 409 || status == 425) {
    double after = seconds_in(headers, "retry-after");
    if (const double milliseconds = seconds_in(headers, "retry-after-ms"); milliseconds > 0)
      after = milliseconds / 1000;
    throw Passing{words(status == 429 ? "rate-limited" : "server-busy",
                        "The server at " + url + " turns requests away (" + std::to_string(status) + "): " + said,
                        "The same command goes on later; --concurrency 1 asks less of it."),
                  after, false};
  }
  if (status >= 500)
    throw Passing{words("server-error", "The server at " + url + " failed (" + std::to_string(status) + "): " + said,
                        "Its own log says why; the same command goes on when it is repaired."),
                  seconds_in(headers, "retry-after"), false};
  if (mentions(body, {"context_length", "context length", "context window", "maximum context", "n_ctx",
                      "too many tokens", "exceed_context"}))
    refuse(ErrorKind::kUser, "context-too-long",
           "The prompt and --max-tokens are more than the model's context: " + said,
           "Give a smaller --max-tokens or fewer --shots, or serve the model with a longer context.");
  if (status == 404)
    refuse(ErrorKind::kUser, "no-such-model",
           "The server at " + url + " knows no " + (model.empty() ? "such address" : "model " + model) + ": " + said,
           "Name one that it serves, as URL#NAME; the address usually ends in /v1.");
  refuse(ErrorKind::kUser, "request-refused",
         "The server refused the request (" + std::to_string(status) + "): " + said, "");
}

}  // namespace

void Pace::wait_until(double steady_second) {
  const std::lock_guard lock(mutex_);
  not_before_ = std::max(not_before_, steady_second);
}

double Pace::pause() const {
  const std::lock_guard lock(mutex_);
  return std::max(0.0, not_before_ - steady_seconds());
}

// One request: what has come of its answer so far.
struct HttpBackend::Attempt {
  Completion completion;
  int status = 0;
  Json headers = Json::object(), last;
  std::string body;
  bool streamed = false, done = false;
};

HttpBackend::HttpBackend(ModelPlace place, const ModelOptions& options, Transport transport, std::shared_ptr<Pace> pace)
    : place_(std::move(place)), options_(options), transport_(std::move(transport)), pace_(std::move(pace)) {}

bool HttpBackend::is_chat(const Prompt& prompt) const {
  return options_.api == "auto" ? !prompt.messages.empty() : options_.api == "chat";
}

Json HttpBackend::body_of(const Prompt& prompt, const Sampling& sampling) const {
  Json body = {{"model", served_name_},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"temperature", sampling.temperature},
               {"top_p", sampling.top_p},
               {"max_tokens", sampling.max_tokens}};
  if (sampling.seed) body["seed"] = *sampling.seed & 0x7fffffff;
  if (!sampling.stop.empty()) body["stop"] = sampling.stop;
  if (!sampling.schema.empty()) {
    const Json schema = Json::parse(sampling.schema);
    if (structure_ == Structure::kResponseFormat)
      body["response_format"] = {{"type", "json_schema"},
                                 {"json_schema", {{"name", "answer"}, {"strict", true}, {"schema", schema}}}};
    else if (structure_ == Structure::kGuidedJson) body["guided_json"] = schema;
    else if (structure_ == Structure::kGrammar) body["grammar"] = sampling.grammar;
  }
  if (!is_chat(prompt)) {
    body["prompt"] = prompt.messages.empty() ? prompt.raw : prompt.text();
    return body;
  }
  Json messages = Json::array();
  for (const Message& message : prompt.messages)
    messages.push_back({{"role", message.role}, {"content", message.content}});
  if (prompt.messages.empty()) messages.push_back({{"role", "user"}, {"content", prompt.raw}});
  body["messages"] = std::move(messages);
  return body;
}

void HttpBackend::pause(double seconds) {
  for (const double until = steady_seconds() + seconds; steady_seconds() < until;) {
    throw_if_interrupted();
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.1, std::max(0.0, until - steady_seconds()))));
  }
}

void HttpBackend::run(Attempt& attempt, const std::string& url, const std::string& body, const Sampling& sampling,
                      const OnToken& on_token) {
  const double began = steady_seconds();
  EventStream events;
  size_t looked_for_circles = 0;
  Completion& completion = attempt.completion;
  const auto take = [&](const Json& message) {
    if (message.contains("error")) attempt.last = message;
    if (message.contains("model") && message["model"].is_string()) completion.model = message["model"];
    if (message.contains("usage") && message["usage"].is_object()) {
      completion.prompt_tokens = message["usage"].value("prompt_tokens", 0);
      completion.completion_tokens = message["usage"].value("completion_tokens", 0);
    }
    if (!message.contains("choices") || !message["choices"].is_array() || message["choices"].empty()) return true;
    const Json& choice = message["choices"][0];
    std::string piece;
    for (const char* part : {"delta", "message"})
      if (choice.contains(part) && choice[part].is_object() && choice[part].contains("content") &&
          choice[part]["content"].is_string())
        piece = choice[part]["content"];
    if (choice.contains("text") && choice["text"].is_string()) piece = choice["text"];
    if (choice.contains("finish_reason") && choice["finish_reason"].is_string())
      completion.finish = choice["finish_reason"];
    if (piece.empty()) return true;
    if (completion.text.empty()) completion.first_token_seconds = steady_seconds() - began;
    completion.text += piece;
    if (on_token && !on_token(piece)) {
      completion.finish = "cancelled";
      return false;
    }
    if (completion.text.size() - looked_for_circles > kCircleStep) {
      looked_for_circles = completion.text.size();
      if (goes_in_circles(completion.text)) completion.finish = "repetition";
    }
    // A server that does not hold to max_tokens: no token is longer than a few dozen bytes.
    if (completion.text.size() > 64 * static_cast<size_t>(sampling.max_tokens) + 4096) completion.finish = "length";
    return completion.finish != "repetition" && !(completion.finish == "length" && !choice.contains("finish_reason"));
  };
  bool ended_early = false;
  transport_({url, body}, [&](const Json& event) {
    if (event.contains("status")) {
      attempt.status = event["status"];
      attempt.headers = event["headers"];
      attempt.streamed = attempt.headers.value("content-type", "").find("event-stream") != std::string::npos;
      return true;
    }
    const std::string data = event.value("data", "");
    if (attempt.status != 200 || !attempt.streamed) {
      attempt.body += data;
      return attempt.body.size() < (size_t{8} << 20);
    }
    bool more = true;
    events.feed(data, [&](const std::string& text) {
      if (!more) return;
      if (text == "[DONE]") {
        attempt.done = true;
        return;
      }
      const Json message = Json::parse(text, nullptr, false);
      if (message.is_object()) more = take(message);
    });
    if (more && steady_seconds() - began > options_.patience.total_seconds) {
      completion.finish = "length";
      more = false;
    }
    ended_early = !more;
    return more;
  });
  completion.seconds = steady_seconds() - began;
  if (attempt.status != 200) explain(attempt.status, attempt.headers, attempt.body, url, options_, served_name_);
  if (!attempt.streamed) {
    const Json whole = Json::parse(attempt.body, nullptr, false);
    if (!whole.is_object() || !whole.contains("choices")) {
      if (whole.is_object())
        refuse(ErrorKind::kUser, "not-an-api",
               "The address " + url + " answers, but not with a completion: " + message_of(attempt.body),
               "The address of an OpenAI-compatible server usually ends in /v1.");
      if (is_html(attempt.headers.value("content-type", ""), attempt.body))
        refuse(ErrorKind::kUser, "not-an-api",
               "The address " + url + " answers with a web page, not with a completion.",
               "The address of an OpenAI-compatible server usually ends in /v1.");
      throw Passing{words("broken-answer", "The server at " + url + " sent no JSON: " + shortened(attempt.body), ""), 0,
                    false};
    }
    take(whole);
    attempt.done = true;
  }
  if (attempt.last.is_object())
    throw Passing{
        words("server-error",
              "The server at " + url + " failed in the middle of its answer: " + message_of(attempt.last.dump()),
              "Its own log says why."),
        0, false};
  if (!attempt.done && !ended_early && completion.finish.empty())
    throw Passing{words("broken-answer", "The server at " + url + " ended its answer in the middle.",
                        "The same command goes on where it was."),
                  0, false};
  if (completion.finish.empty() || completion.finish == "eos" || completion.finish == "end_turn")
    completion.finish = "stop";
  if (completion.finish == "max_tokens") completion.finish = "length";
}

Completion HttpBackend::generate(const Prompt& prompt, const Sampling& sampling, const OnToken& on_token) {
  look_at_models();
  const std::string url = place_.url + (is_chat(prompt) ? "/chat/completions" : "/completions");
  Json body = body_of(prompt, sampling);
  double waited = 0, next_pause = options_.patience.first_pause;
  for (int attempt_number = 0;; ++attempt_number) {
    if (const double asked = pace_->pause(); asked > 0) {
      waited += asked;
      pause(asked);
    }
    Attempt attempt;
    Passing fault;
    try {
      run(attempt, url, body.dump(-1, ' ', false, Json::error_handler_t::replace), sampling, on_token);
      Completion done = std::move(attempt.completion);
      if (done.model.empty()) done.model = served_name_;
      if (done.completion_tokens == 0 && !done.text.empty()) {
        done.completion_tokens = std::min(estimate_tokens(done.text), sampling.max_tokens);
        done.prompt_tokens = done.prompt_tokens ? done.prompt_tokens : estimate_tokens(prompt.text());
        done.tokens_estimated = true;
      }
      done.retries = attempt_number;
      done.waited_seconds = waited;
      return done;
    } catch (const Passing& passing) { fault = passing; } catch (const Error& error) {
      const std::string& code = error.text().code;
      // Servers that do not know how to count while they stream.
      if (code == "request-refused" && body.contains("stream_options") &&
          mentions(error.text().message, {"stream_options", "include_usage"})) {
        body.erase("stream_options");
        continue;
      }
      // OpenAI's form, vLLM's of old, llama.cpp's of old; a server that knows none of them is asked in words alone.
      if (code == "request-refused" && !sampling.schema.empty() && structure_ != Structure::kNone &&
          mentions(error.text().message, {"response_format", "schema", "guided", "grammar", "structured"})) {
        structure_ = static_cast<Structure>(static_cast<int>(structure_) + 1);
        body = body_of(prompt, sampling);
        continue;
      }
      if (code != "no-server" && code != "server-silent" && code != "broken-answer") throw;
      fault = {error.text(), 0, code == "no-server"};
    }
    // Some servers say why only where they have not begun to stream: llama-cpp-python's breaks off when the prompt is
    // too long.
    if (fault.text.code == "broken-answer" && attempt.streamed && attempt.completion.text.empty() &&
        body.contains("stream")) {
      body.erase("stream");
      body.erase("stream_options");
      continue;
    }
    const int most = fault.soon ? std::min(kTriesWithoutServer, options_.patience.attempts)
                                : options_.patience.attempts;
    if (attempt_number + 1 >= most) {
      fault.text.message += attempt_number ? " (" + std::to_string(attempt_number + 1) + " attempts)" : "";
      throw Error(ErrorKind::kMissing, fault.text);
    }
    // What was shown of a broken answer will be shown again: callers take a new start from the first token.
    const double seconds = std::min(fault.retry_after > 0 ? fault.retry_after : next_pause,
                                    options_.patience.longest_pause);
    next_pause *= 2;
    if (fault.text.code == "rate-limited") pace_->wait_until(steady_seconds() + seconds);
    else pause(seconds), waited += seconds;
  }
}

// GET /models: the name of what is served, and for servers that say it (vLLM, llama.cpp) the context's length.
void HttpBackend::look_at_models() {
  if (looked_) return;
  served_name_ = place_.name;
  int status = 0;
  std::string body;
  Json headers = Json::object();
  const std::string url = place_.url + "/models";
  Passing fault;
  for (int attempt = 0; attempt < kTriesWithoutServer; ++attempt) {
    try {
      status = 0;
      body.clear();
      transport_({url, ""}, [&](const Json& event) {
        if (event.contains("status")) status = event["status"], headers = event["headers"];
        else body += event.value("data", "");
        return true;
      });
      break;
    } catch (const Error& error) {
      if (error.text().code != "no-server" && error.text().code != "broken-answer") throw;
      if (attempt + 1 == std::min(kTriesWithoutServer, options_.patience.attempts)) throw;
      pause(options_.patience.first_pause * (attempt + 1) / 2);
    }
  }
  if (status == 401 || status == 403) explain(status, headers, body, url, options_, served_name_);
  const Json json = Json::parse(body, nullptr, false);
  const bool lists = status == 200 && json.is_object() && json.contains("data") && json["data"].is_array();
  if (lists)
    for (const Json& model : json["data"]) {
      const std::string id = model.is_object() ? model.value("id", "") : "";
      if (served_name_.empty()) served_name_ = id;
      if (id != served_name_) continue;
      if (model.contains("max_model_len") && model["max_model_len"].is_number()) context_ = model["max_model_len"];
      if (model.contains("meta") && model["meta"].is_object() && model["meta"].contains("n_ctx"))
        context_ = model["meta"].value("n_ctx", 0);
    }
  // A name that was given is asked for whatever the list says: not all servers have one.
  if (served_name_.empty()) {
    if (status != 200 || !lists) explain(status == 200 ? 400 : status, headers, body, url, options_, "");
    refuse(ErrorKind::kUser, "no-such-model", "The server at " + place_.url + " serves no model.", "Load one there.");
  }
  looked_ = true;
}

int HttpBackend::count_tokens(const Prompt& prompt) { return estimate_tokens(prompt.text()); }

int HttpBackend::context_tokens() {
  look_at_models();
  return options_.context > 0 ? options_.context : context_;
}

std::string HttpBackend::name() {
  look_at_models();
  return served_name_;
}

Transport transport_through(const std::shared_ptr<Host>& host, const ModelOptions& options) {
  return [host, options](const HttpRequest& request, const WorkerClient::OnStreamed& on_event) {
    Json params = {{"url", request.url},
                   {"method", request.body.empty() ? "GET" : "POST"},
                   {"key_variable", options.key_variable},
                   {"connect_seconds", options.patience.connect_seconds},
                   {"silence_seconds", options.patience.silence_seconds}};
    if (!request.body.empty()) params["body"] = request.body;
    // The host's own time-outs come first, with better words.
    return host->stream("llm_http", params, options.patience.connect_seconds + options.patience.silence_seconds + 30,
                        on_event);
  };
}

}  // namespace kw::llm

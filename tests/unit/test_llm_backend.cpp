// What a server may answer, as a scripted transport: the requests it gets, the completions made of its answers, and how
// failures end.
#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>

#include "llm/http_backend.hpp"
#include "llm/repetition.hpp"
#include "llm/sse.hpp"
#include "support/error.hpp"
#include "support/subprocess.hpp"

namespace kw::llm {
namespace {

using Json = nlohmann::ordered_json;

struct Answer {
  int status = 200;
  std::vector<std::string> data;
  Json headers = {{"content-type", "text/event-stream"}};
  std::string fault;  // an error of the transport, after the data
};

Answer streamed(std::vector<std::string> data, std::string fault = "") {
  return {200, std::move(data), {{"content-type", "text/event-stream"}}, std::move(fault)};
}
Answer page(int status, const std::string& body, Json headers = {{"content-type", "application/json"}}) {
  return {status, {body}, std::move(headers), ""};
}

std::string delta(const std::string& text) {
  return "data: " + Json{{"choices", {{{"delta", {{"content", text}}}}}}}.dump() + "\n\n";
}
const std::string kEnd = R"(data: {"choices":[{"delta":{},"finish_reason":"stop"}]})"
                         "\n\ndata: [DONE]\n\n";

class Server {
 public:
  std::deque<Answer> answers;
  std::vector<Json> requests;

  HttpBackend backend(ModelOptions options = {}) {
    options.patience.first_pause = 0.01;
    return HttpBackend(
        place_of("http://host:1/v1#m"), options,
        [this](const HttpRequest& request, const WorkerClient::OnStreamed& on_event) -> Json {
          if (request.url.ends_with("/models")) {
            on_event({{"status", 404}, {"headers", Json::object()}});
            return Json::object();
          }
          requests.push_back(Json::parse(request.body));
          requests.back()["url"] = request.url;
          if (answers.empty()) throw std::logic_error("more requests than answers");
          const Answer answer = answers.front();
          answers.pop_front();
          if (answer.status) on_event({{"status", answer.status}, {"headers", answer.headers}});
          for (const std::string& data : answer.data)
            if (!on_event({{"data", data}})) return {{"cancelled", true}};
          if (!answer.fault.empty())
            throw Error(ErrorKind::kMissing, ErrorText{.message = "The transport's words.",
                                                       .where = "",
                                                       .source = "",
                                                       .hint = "",
                                                       .detail = "",
                                                       .code = answer.fault});
          return Json::object();
        },
        std::make_shared<Pace>());
  }
};

const Prompt kPrompt{{{"system", "be brief"}, {"user", "hello"}}, ""};

std::string code_of(HttpBackend& backend) {
  try {
    backend.generate(kPrompt, {}, {});
  } catch (const Error& error) { return error.text().code; }
  return "none";
}

TEST(LlmHttp, StreamsACompletionThatIsCutAnywhere) {
  Server server;
  const std::string whole = delta("Hel") + ": keep-alive\n\n" + delta("lo \xc3\xa9") +
                            R"(data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3},"model":"served"})"
                            "\n\n" +
                            kEnd;
  Answer answer;
  for (const char byte : whole) answer.data.push_back(std::string(1, byte));
  server.answers = {answer};
  HttpBackend backend = server.backend();
  std::string seen;
  const Completion completion = backend.generate(
      kPrompt,
      {.temperature = 0.5, .top_p = 0.9, .max_tokens = 11, .seed = 3, .stop = {"END"}, .grammar = "", .schema = ""},
      [&](std::string_view piece) {
        seen += piece;
        return true;
      });
  EXPECT_EQ(completion.text, "Hello \xc3\xa9");
  EXPECT_EQ(seen, completion.text);
  EXPECT_EQ(completion.finish, "stop");
  EXPECT_EQ(completion.model, "served");
  EXPECT_EQ(completion.prompt_tokens, 7);
  EXPECT_EQ(completion.completion_tokens, 3);
  EXPECT_FALSE(completion.tokens_estimated);
  const Json& sent = server.requests.at(0);
  EXPECT_EQ(sent["url"], "http://host:1/v1/chat/completions");
  EXPECT_EQ(sent["model"], "m");
  EXPECT_EQ(sent["messages"][1]["content"], "hello");
  EXPECT_EQ(sent["max_tokens"], 11);
  EXPECT_EQ(sent["seed"], 3);
  EXPECT_EQ(sent["stop"][0], "END");
}

TEST(LlmHttp, AFormForTheAnswerIsAskedForAsTheServerKnowsIt) {
  Server server;
  const std::string good = delta("{}") + kEnd;
  server.answers = {page(400, R"({"error": {"message": "response_format is not supported"}})"),
                    page(422, R"({"detail": "Extra inputs are not permitted: guided_json"})"), streamed({good}),
                    streamed({good})};
  HttpBackend backend = server.backend();
  const Sampling sampling{.seed = {}, .stop = {}, .grammar = "root ::= \"{}\"", .schema = R"({"type": "object"})"};
  EXPECT_EQ(backend.generate(kPrompt, sampling, {}).text, "{}");
  EXPECT_EQ(server.requests[0]["response_format"]["json_schema"]["schema"]["type"], "object");
  EXPECT_EQ(server.requests[0]["response_format"]["json_schema"]["strict"], true);
  EXPECT_EQ(server.requests[1]["guided_json"]["type"], "object");
  EXPECT_FALSE(server.requests[1].contains("response_format"));
  EXPECT_EQ(server.requests[2]["grammar"], sampling.grammar);
  // What it knows is remembered.
  backend.generate(kPrompt, sampling, {});
  EXPECT_EQ(server.requests[3]["grammar"], sampling.grammar);
  EXPECT_FALSE(server.requests[3].contains("guided_json"));
}

TEST(LlmHttp, AServerThatKnowsNoFormIsAskedInWords) {
  Server server;
  for (int i = 0; i < 3; ++i)
    server.answers.push_back(page(400, R"({"error": {"message": "unknown field: grammar, schema, guided"}})"));
  server.answers.push_back(streamed({delta("{}") + kEnd}));
  HttpBackend backend = server.backend();
  EXPECT_EQ(backend.generate(kPrompt, {.seed = {}, .stop = {}, .grammar = "g", .schema = "{}"}, {}).text, "{}");
  for (const char* field : {"response_format", "guided_json", "grammar"})
    EXPECT_FALSE(server.requests.back().contains(field));
}

TEST(LlmHttp, RawPromptsGoToCompletions) {
  Server server;
  server.answers = {
      streamed({"data: {\"choices\":[{\"text\":\"abc\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n"})};
  HttpBackend backend = server.backend();
  const Completion completion = backend.generate({{}, "def f"}, {}, {});
  EXPECT_EQ(server.requests.at(0)["prompt"], "def f");
  EXPECT_TRUE(server.requests.at(0)["url"].get<std::string>().ends_with("/v1/completions"));
  EXPECT_EQ(completion.finish, "length");
  EXPECT_TRUE(completion.tokens_estimated);
  EXPECT_GT(completion.completion_tokens, 0);
}

TEST(LlmHttp, TakesAWholeAnswerFromAServerThatDoesNotStream) {
  Server server;
  server.answers = {page(
      200,
      R"({"choices":[{"message":{"content":"all at once"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}})")};
  HttpBackend backend = server.backend();
  EXPECT_EQ(backend.generate(kPrompt, {}, {}).text, "all at once");
}

TEST(LlmHttp, WhatPassesIsTriedAgainFromTheStart) {
  Server server;
  server.answers = {page(500, R"({"error":{"message":"oops"}})"),
                    page(503, "<html>busy</html>", {{"content-type", "text/html"}}), streamed({delta("half")}),
                    streamed({delta("half")}, "broken-answer"), streamed({delta("whole") + kEnd})};
  HttpBackend backend = server.backend();
  const Completion completion = backend.generate(kPrompt, {}, {});
  EXPECT_EQ(completion.text, "whole");
  EXPECT_EQ(completion.retries, 4);
  EXPECT_GE(completion.waited_seconds, 0.01 + 0.02 + 0.04 + 0.08 - 0.001);
}

TEST(LlmHttp, AStreamThatBreaksOffBeforeItBeginsIsAskedForWholeToLearnWhy) {
  Server server;
  server.answers = {streamed({": ping\n\n"}, "broken-answer"),
                    page(400, R"({"error":{"message":"the prompt exceeds the context window of 2048"}})")};
  HttpBackend backend = server.backend();
  EXPECT_EQ(code_of(backend), "context-too-long");
  EXPECT_TRUE(server.requests.at(0)["stream"]);
  EXPECT_FALSE(server.requests.at(1).contains("stream"));
}

TEST(LlmHttp, WaitsAsLongAsA429Asks) {
  Server server;
  server.answers = {
      page(429, R"({"error":"slow down"})", {{"content-type", "application/json"}, {"retry-after", "0.3"}}),
      streamed({delta("x") + kEnd})};
  HttpBackend backend = server.backend();
  const double began = steady_seconds();
  EXPECT_EQ(backend.generate(kPrompt, {}, {}).text, "x");
  EXPECT_GE(steady_seconds() - began, 0.3);
}

TEST(LlmHttp, GivesUpAfterItsAttempts) {
  Server server;
  ModelOptions options;
  options.patience.attempts = 3;
  for (int i = 0; i < 3; ++i) server.answers.push_back(page(500, "no"));
  HttpBackend backend = server.backend(options);
  EXPECT_EQ(code_of(backend), "server-error");
  EXPECT_TRUE(server.answers.empty());
}

TEST(LlmHttp, WhatDoesNotPassEndsAtOnce) {
  const struct {
    Answer answer;
    const char* code;
  } cases[] = {
      {page(401, R"({"error":{"message":"Incorrect API key provided"}})"), "wrong-key"},
      {page(403, "{}"), "wrong-key"},
      {page(404, R"({"error":{"message":"model not found"}})"), "no-such-model"},
      {page(400, R"({"error":{"message":"This model's maximum context length is 4096 tokens"}})"), "context-too-long"},
      {page(400, R"({"error":{"message":"bad temperature"}})"), "request-refused"},
      {page(429, R"({"error":{"code":"insufficient_quota","message":"insufficient_quota"}})"), "no-quota"},
      {page(200, "<!doctype html><html>Welcome</html>", {{"content-type", "text/html"}}), "not-an-api"},
      {page(404, "<html>no page</html>", {{"content-type", "text/html"}}), "not-an-api"},
      {page(200, R"({"hello":"world"})"), "not-an-api"},
  };
  for (const auto& [answer, code] : cases) {
    Server server;
    server.answers = {answer};
    HttpBackend backend = server.backend();
    EXPECT_EQ(code_of(backend), code);
    EXPECT_EQ(server.requests.size(), 1u) << code;
  }
}

TEST(LlmHttp, NobodyThereIsTriedThreeTimes) {
  Server server;
  for (int i = 0; i < 3; ++i) server.answers.push_back({0, {}, Json::object(), "no-server"});
  HttpBackend backend = server.backend();
  EXPECT_EQ(code_of(backend), "no-server");
  EXPECT_TRUE(server.answers.empty());
}

TEST(LlmHttp, AnEndlessAnswerIsCutOff) {
  Server server;
  Answer answer;
  for (int i = 0; i < 2000; ++i) answer.data.push_back(delta("x = x + 1\n"));
  server.answers = {answer};
  HttpBackend backend = server.backend();
  const Completion completion = backend.generate(kPrompt, {}, {});
  EXPECT_EQ(completion.finish, "repetition");
  EXPECT_LT(completion.text.size(), 2000u);
}

TEST(LlmHttp, AnAnswerBeyondMaxTokensIsCutOff) {
  Server server;
  Answer answer;
  for (int i = 0; i < 4000; ++i) answer.data.push_back(delta("line " + std::to_string(i * 7919) + "\n"));
  server.answers = {answer};
  HttpBackend backend = server.backend();
  EXPECT_EQ(
      backend.generate(kPrompt, {.max_tokens = 10, .seed = {}, .stop = {}, .grammar = "", .schema = ""}, {}).finish,
      "length");
}

TEST(LlmHttp, TheCallerMayStopIt) {
  Server server;
  server.answers = {streamed({delta("a"), delta("b"), delta("c") + kEnd})};
  HttpBackend backend = server.backend();
  const Completion completion = backend.generate(kPrompt, {}, [](std::string_view piece) { return piece != "b"; });
  EXPECT_EQ(completion.finish, "cancelled");
  EXPECT_EQ(completion.text, "ab");
}

TEST(LlmHttp, AServerWithoutStreamOptionsIsAskedWithout) {
  Server server;
  server.answers = {page(400, R"({"error":{"message":"unknown field stream_options"}})"),
                    streamed({delta("x") + kEnd})};
  HttpBackend backend = server.backend();
  EXPECT_EQ(backend.generate(kPrompt, {}, {}).text, "x");
  EXPECT_FALSE(server.requests.at(1).contains("stream_options"));
}

TEST(LlmModelNames, SayWhereTheModelIs) {
  EXPECT_EQ(place_of("http://a:1/v1/#q/w").url, "http://a:1/v1");
  EXPECT_EQ(place_of("http://a:1/v1#q/w").name, "q/w");
  EXPECT_EQ(place_of("smollm2").kind, ModelKind::kGguf);
  try {
    place_of("/nowhere/at.all");
    FAIL();
  } catch (const Error& error) { EXPECT_EQ(error.text().code, "no-model"); }
}

TEST(LlmSse, JoinsLinesAndIgnoresComments) {
  std::vector<std::string> seen;
  EventStream stream;
  stream.feed(": hi\r\ndata: a\r\ndata: b\r\n\r\nevent: x\ndata:c\n\ndata: rest",
              [&](const std::string& data) { seen.push_back(data); });
  EXPECT_EQ(seen, (std::vector<std::string>{"a\nb", "c"}));
  EXPECT_EQ(stream.rest(), "data: rest");
}

TEST(LlmRepetition, TellsCirclesFromTables) {
  std::string circle = "a beginning of its own. ", table;
  for (int i = 0; i < 100; ++i)
    circle += "and so on, ", table += "    case " + std::to_string(i) + ": return " + std::to_string(i * i) + ";\n";
  EXPECT_TRUE(goes_in_circles(circle));
  EXPECT_FALSE(goes_in_circles(table));
  EXPECT_FALSE(goes_in_circles("short short short short"));
  EXPECT_TRUE(goes_in_circles(std::string(700, ' ')));
}

}  // namespace
}  // namespace kw::llm
